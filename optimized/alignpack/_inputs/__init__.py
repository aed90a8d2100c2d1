"""Callers' arguments: integers, length tables, values and fills, checked before anything is allocated."""
