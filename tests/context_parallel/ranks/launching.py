"""Starting the ranks of a launch and reading what became of the checks; `one_rank.py` is what each rank runs."""

import json
import os
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import pytest

from tests.context_parallel.ranks.one_rank import PASSED
from tests.paths import ROOT

FOLDER = Path(__file__).parent
FILES = [FOLDER / f"{name}.py" for name in ("gathering", "sharding", "refusing", "compressed_attention")]
"""The checks for any number of ranks; one launch runs them all, because starting takes longer than most of them."""

FILES_OF_TWO_RANKS = [FOLDER / "conformance.py"]
"""The checks for exactly two ranks."""

LAUNCH_TIMEOUT = 240
"""Seconds for all checks together; one that hangs takes 20 of them."""

SIZES = [2, 4, pytest.param(8, marks=pytest.mark.nightly)]
"""How many ranks the checks run on."""


@cache
def launched(size: int) -> tuple[list[dict[str, str]], list[int]]:
    """`launch` of all files, once for all tests that ask for this many ranks."""
    return launch(size, FILES + FILES_OF_TWO_RANKS if size == 2 else FILES)


def launch(size: int, files: list[Path]) -> tuple[list[dict[str, str]], list[int]]:
    """Run the checks of the files on `size` ranks: each rank's results by check, and the exit statuses."""
    command = [sys.executable, "-m", "tests.context_parallel.ranks.one_rank", "--size", str(size)]
    deadline = time.monotonic() + LAUNCH_TIMEOUT
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [*command, "--rank", str(rank), "--folder", folder, *map(str, files)],
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                cwd=ROOT,
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


def failures(results: list[dict[str, str]], check: str) -> str:
    found = {rank: of_rank.get(check, "did not come to an end") for rank, of_rank in enumerate(results)}
    return "\n".join(f"rank {rank}: {result}" for rank, result in found.items() if result != PASSED)
