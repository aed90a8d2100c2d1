"""Context parallelism between real processes, over gloo.

One launch for each number of ranks runs the checks of all files in `ranks/`, and every check is a test here.
"""

import time
from pathlib import Path

import pytest

from tests.context_parallel.ranks.launching import FILES, FOLDER, LAUNCH_TIMEOUT, SIZES, failures, launch, launched
from tests.context_parallel.ranks.one_rank import checks_of

pytestmark = pytest.mark.slow

CHECKS = [name for path in FILES for name in checks_of(path)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("check", CHECKS)
def test_ranks(check: str, size: int) -> None:
    results, _ = launched(size)
    if found := failures(results, check):
        pytest.fail(found, pytrace=False)


@pytest.mark.parametrize("size", SIZES)
def test_ranks_leave_in_order(size: int) -> None:
    _, statuses = launched(size)
    assert statuses == [0] * size


@pytest.mark.parametrize("size", SIZES)
def test_a_rank_that_dies_leaves_no_other_waiting(size: int) -> None:
    started = time.monotonic()
    results, statuses = launch(size, [FOLDER / "dying.py"])
    assert time.monotonic() - started < LAUNCH_TIMEOUT / 2
    assert statuses[1] == 7
    survivors = results[:1] + results[2:]
    assert not failures(survivors, "check_a_rank_that_dies")


def test_failures_are_seen(tmp_path: Path) -> None:
    """What a check raises, on whichever rank, is what the test shows."""
    path = tmp_path / "failing.py"
    path.write_text("def check_fails(group):\n    assert group.rank() == 0, 'the other rank'\n")
    results, _ = launch(2, [path])
    assert "rank 1: Traceback" in failures(results, "check_fails")
    assert "rank 0" not in failures(results, "check_fails")
    assert "did not come to an end" in failures(results, "check_missing")
