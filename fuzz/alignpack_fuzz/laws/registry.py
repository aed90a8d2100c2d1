"""What a law is, and all that were registered."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import strategies as st

from alignpack_fuzz.targets import Target

Group = Literal["core", "strict"]
Check = Callable[[Target, Any], None]


@dataclass(frozen=True)
class Law:
    """One law.

    Attributes:
        group: `core` or `strict`.
        meaning: what it says and which faults break it.
        cases: the random cases that it is checked on.
        check: raises when a target breaks it on a case.
    """

    name: str
    group: Group
    meaning: str
    cases: st.SearchStrategy[Any]
    check: Check


LAWS: dict[str, Law] = {}
"""All laws by name, in the order in which their modules are imported."""


def law(group: Group, cases: st.SearchStrategy[Any]) -> Callable[[Check], Check]:
    """Register a function as a law of a group, checked on such cases; its name and docstring are the law's."""

    def register(check: Check) -> Check:
        LAWS[check.__name__] = Law(check.__name__, group, inspect.getdoc(check) or "", cases, check)
        return check

    return register
