"""Cost against documents per row, batch, width and slots: linear, with no cliff (`bench/growth.py` has the criterion).

Judged on a quiet machine by `make bench` and `make bench-growth`. Without `--benchmark-enable` the ends of each axis show that the
candidates agree, with rows and widths cut short.
"""

import gc
from dataclasses import replace

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from alignpack._backends import BackendName
from bench import workloads
from bench.cases import RUNNING
from bench.growth import TOLERANCE, Point, Series
from bench.measure import burst_times
from bench.workloads import Prepare, Sizes

IDS = Sizes(4, 65536, 64)
WIDE = Sizes(2, 4096, 16, (256,), torch.bfloat16)

AXES: dict[str, list[Sizes]] = {
    "documents per row": [replace(IDS, documents=2**power) for power in range(14)],
    "batch": [replace(IDS, sequence=8192, documents=16, batch=2**power) for power in range(9)],
    "width": [replace(WIDE, trailing=(4**power,)) for power in range(7)],
    "slots": [
        Sizes(batch, sequence, max(1, sequence // 128))
        for batch, sequence in (
            (1, 64), (1, 256), (1, 1024), (1, 4096), (1, 16384), (1, 65536), (2, 131072), (8, 131072), (64, 131072)
        )
    ],
}  # fmt: skip
"""Each a list of sizes; the last axis is the one that is drawn, against what people write as well."""

OPERATIONS: dict[str, tuple[Prepare, str, str]] = {
    "layout": (workloads.layout, "zeros", "loop"),
    "pack": (workloads.pack, "clone", "composed"),
    "pack + backward": (workloads.pack_backward, "two clones", "composed"),
}
ASKED = [
    *((axis, operation) for axis in ("documents per row", "batch", "slots") for operation in ("layout", "pack")),
    ("width", "pack"),
    ("width", "pack + backward"),
]


def size_on(axis: str, sizes: Sizes) -> int:
    """Where a size stands on its axis."""
    return {
        "documents per row": sizes.documents,
        "batch": sizes.batch,
        "width": sizes.trailing[0] if sizes.trailing else 1,
        "slots": sizes.batch * sizes.sequence,
    }[axis]


@pytest.mark.parametrize("backend", RUNNING)
@pytest.mark.parametrize(("axis", "operation"), ASKED, ids=lambda name: name.replace(" ", "-"))
def test_growth(
    axis: str, operation: str, backend: BackendName, benchmark: BenchmarkFixture, series: list[Series]
) -> None:
    prepare, limit, rival = OPERATIONS[operation]
    if not benchmark.enabled:
        for sizes in (AXES[axis][0], AXES[axis][-1]):
            contest = prepare(sizes.small(), backend)
            contest.check()
        benchmark(contest.alignpack)
        return
    names = ("alignpack", limit, rival) if axis == "slots" else ("alignpack", limit)
    points = []
    for sizes in AXES[axis]:
        contest = prepare(sizes, backend)
        contest.check()
        candidates = contest.candidates()
        times = burst_times({name: candidates[name] for name in names}, rounds=7, budget=0.5)
        seconds = [times[name].median for name in names]
        points.append(Point(size_on(axis, sizes), *seconds))
        gc.collect()
    benchmark.pedantic(contest.alignpack, rounds=3)  # type: ignore[no-untyped-call]
    grown = Series(axis, operation, backend, limit, tuple(points), rival if axis == "slots" else None)
    series.append(grown)
    if not grown.linear:
        pytest.fail(
            f"the cost per unit rises {grown.worst():.2f} times as much as the limit's; {TOLERANCE} is the most",
            pytrace=False,
        )
