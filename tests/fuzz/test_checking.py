"""The runner: it shrinks, it counts, it poisons memory, and it leaves the process as it was."""

import os
from typing import Any

import pytest
import torch
from hypothesis import strategies as st

from alignpack_fuzz.checking import check, poisoned
from alignpack_fuzz.laws import Law
from alignpack_fuzz.lookup import find_target
from alignpack_fuzz.targets import REFERENCE, Target


def law(cases: st.SearchStrategy[Any], holds: Any) -> Law:
    def raise_unless(_: Target, case: Any) -> None:
        assert holds(case), f"broken by {case}"

    return Law("a_law", "core", "says something", cases, raise_unless)


def test_the_smallest_case_is_reported() -> None:
    run = check(law(st.integers(0, 1000), lambda number: number < 17), REFERENCE, examples=200, seed=0)
    assert (run.case, str(run.error).splitlines()[0]) == (17, "broken by 17")
    assert run.found_after == run.examples


def test_examples_are_counted() -> None:
    run = check(law(st.integers(), lambda _: True), REFERENCE, examples=50, seed=0)
    assert (run.examples, run.case, run.error, run.found_after) == (50, None, None, None)


def test_a_law_that_breaks_only_once_is_found() -> None:
    seen: set[int] = set()

    def holds(number: int) -> bool:
        fresh = number not in seen
        seen.add(number)
        return number < 100 or not fresh

    run = check(law(st.integers(0, 1000), holds), REFERENCE, examples=200, seed=0)
    assert "the same case does not always break it" in str(run.error)


def test_fresh_memory_is_poisoned() -> None:
    before = torch.are_deterministic_algorithms_enabled()
    with poisoned():
        for fresh in (torch.empty(4), torch.ones(2, 2).new_empty(3), torch.empty_like(torch.ones(5))):
            assert fresh.isnan().all()
        assert (torch.empty(4, dtype=torch.int64) == torch.iinfo(torch.int64).max).all()
    assert torch.are_deterministic_algorithms_enabled() == before


def test_a_backend_is_active_only_while_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for outside in (None, "something"):
        if outside is not None:
            monkeypatch.setenv("ALIGNPACK_BACKEND", outside)
        with find_target("alignpack:backend=torch").active():
            assert os.environ["ALIGNPACK_BACKEND"] == "torch"
        assert os.environ.get("ALIGNPACK_BACKEND") == outside
