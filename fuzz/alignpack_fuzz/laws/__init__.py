"""The laws that an implementation keeps: each is one function, checked on random cases, with the target as parameter.

`core` laws hold for every implementation of the contract; `strict` laws are what `alignpack` promises beyond it. A law
raises AssertionError where it is broken. Anything else that a target raises is a broken law, too.
"""

from alignpack_fuzz.laws import layouts, values, gradients, objects, groups, shifts, gathers, repetition  # isort: skip - the order of the report
from alignpack_fuzz.laws.registry import LAWS, Law

MODULES = (layouts, values, gradients, objects, groups, shifts, gathers, repetition)
"""Where the laws stand; importing a module registers those in it."""

__all__ = ["LAWS", "MODULES", "Law", "choose"]


def choose(names: str) -> list[Law]:
    """The laws that a comma-separated list of names and groups names; an empty one names all.

    Raises:
        ValueError: a name is neither a law nor a group.
    """
    chosen: dict[str, Law] = {}
    for name in filter(None, (name.strip() for name in names.split(","))):
        group = {law.name: law for law in LAWS.values() if name in (law.name, law.group)}
        if not group:
            raise ValueError(f"{name!r} is neither a law nor a group; there are core, strict, {', '.join(LAWS)}")
        chosen |= group
    return list((chosen or LAWS).values())
