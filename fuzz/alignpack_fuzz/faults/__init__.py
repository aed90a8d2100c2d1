"""Deliberate faults: the harness must find each of them, or it proves nothing.

Each wraps a correct target and changes one thing in it, of a kind that was reported in public against code that packs,
pads or shards. A fault that no law of its group finds is a hole in the strategies or the laws.
"""

from alignpack_fuzz.faults import fills, gathers, gradients, groups, objects, refusals, shifts, tables, values
from alignpack_fuzz.faults.wrapping import REGISTERED, Fault

MODULES = (tables, refusals, values, fills, gradients, objects, groups, shifts, gathers)
"""Where the faults stand; importing a module registers those in it."""

FAULTS: dict[str, Fault] = REGISTERED
"""All faults by name."""
