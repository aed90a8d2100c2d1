"""What a fresh process waits for: `import alignpack`, and the first layout and `pack`, each in processes of its own."""

import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.cases import RUNNING
from bench.report import Line, markdown

SUITE = "start"

IMPORT = """
import time
import torch
start = time.perf_counter()
import alignpack
print(time.perf_counter() - start)
"""

FIRST_CALL = """
import sys, time
import torch
from alignpack import packed_layout
values = torch.arange(8 * 8192).view(8, 8192)
lengths = torch.full((8, 16), 512)
start = time.perf_counter()
packed = packed_layout(lengths, None, (8, 8192), 4, backend=sys.argv[1]).pack(values, backend=sys.argv[1])
seconds = time.perf_counter() - start
assert torch.equal(packed, values)  # whole groups stay where they are
print(seconds)
"""


def test_import(benchmark: BenchmarkFixture, lines: list[Line]) -> None:
    benchmark.pedantic(_seconds, (IMPORT,), rounds=1)  # type: ignore[no-untyped-call]
    if benchmark.enabled:
        median = statistics.median(_seconds(IMPORT) for _ in range(9))
        _record(lines, Line(SUITE, "import alignpack", "any", "import torch", 1000 * median, "ms", 80))


@pytest.mark.parametrize("backend", RUNNING)
def test_first_call(backend: str, benchmark: BenchmarkFixture, lines: list[Line], tmp_path: Path) -> None:
    benchmark.pedantic(_seconds, (FIRST_CALL, backend), rounds=1)  # type: ignore[no-untyped-call]
    cold, cached = [], []
    for attempt in range(3 if benchmark.enabled else 0):
        cache = str(tmp_path / str(attempt))
        cold.append(_seconds(FIRST_CALL, backend, NUMBA_CACHE_DIR=cache))
        cached.append(_seconds(FIRST_CALL, backend, NUMBA_CACHE_DIR=cache))
    if benchmark.enabled:
        for state, seconds in (("nothing cached", cold), ("cached on disk", cached)):
            median = 1000 * statistics.median(seconds)
            _record(lines, Line(SUITE, f"first layout and pack, {state}", backend, "nothing", median, "ms"))


def _record(lines: list[Line], line: Line) -> None:
    lines.append(line)
    if line.met is False:
        pytest.fail(f"missed target:\n{markdown([line])}", pytrace=False)


def _seconds(program: str, *arguments: str, **environment: str) -> float:
    run = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(run.stdout)
