"""Context parallelism between real processes, over gloo.

Starting processes that import PyTorch takes longer than most checks, so one launch for each number of ranks runs the
checks of all files in `tests/parallel`, and every check is a test here.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parent / "parallel"
LAUNCH_TIMEOUT = 150  # seconds; many checks, each of which may wait for 20 when it is broken

SIZES = [2, 4, pytest.param(8, marks=pytest.mark.nightly)]


def _load_runner() -> ModuleType:
    import importlib.util

    spec = importlib.util.spec_from_file_location("ranks", FOLDER / "ranks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RUNNER = _load_runner()
FILES = [FOLDER / f"{name}.py" for name in ("gathering", "sharding", "refusing")]
CHECKS = [name for path in FILES for name in RUNNER.checks_of(path)]


def launch(size: int, files: list[Path]) -> tuple[list[dict[str, str]], list[int]]:
    """Run the checks of the files on so many ranks: each rank's results by check, and the exit statuses."""
    command = [sys.executable, str(FOLDER / "ranks.py"), "--size", str(size)]
    deadline = time.monotonic() + LAUNCH_TIMEOUT
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [*command, "--rank", str(rank), "--folder", folder, *map(str, files)],
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
            for rank in range(size)
        ]
        try:
            for rank in ranks:
                rank.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass  # what is missing in the results fails as such
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
        results = []
        for number in range(size):
            path = Path(folder, f"{number}.json")
            results.append(json.loads(path.read_text()) if path.exists() else {})
        return results, [rank.returncode for rank in ranks]


@cache
def launched(size: int) -> tuple[list[dict[str, str]], list[int]]:
    return launch(size, FILES)


def failures(results: list[dict[str, str]], check: str) -> str:
    found = {rank: of_rank.get(check, "did not come to an end") for rank, of_rank in enumerate(results)}
    return "\n".join(f"rank {rank}: {result}" for rank, result in found.items() if result != RUNNER.PASSED)


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
