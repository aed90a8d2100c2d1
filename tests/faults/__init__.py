"""Deliberate faults: the fuzz harness must find each of them, or it proves nothing. `python -m tests.faults` runs them.

Each wraps a correct target and changes one thing in it, of a kind that was reported in public against code that packs,
pads or shards. A fault that no law of its group finds is a hole in the strategies or the laws.
"""

from tests.faults import fills, gathers, gradients, groups, objects, refusals, shifts, tables, values
from tests.faults.wrapping import REGISTERED, Fault

MODULES = (tables, refusals, values, fills, gradients, objects, groups, shifts, gathers)
"""Where the faults stand; importing a module registers those in it."""

FAULTS: dict[str, Fault] = REGISTERED
"""All faults by name."""
