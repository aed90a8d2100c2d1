"""The `numba` backend on the CPU: compiled loops."""
