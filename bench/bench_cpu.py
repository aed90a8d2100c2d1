"""Speed on the CPU, as ratios within one run: alignpack against what people write, and against what memory allows.

`make bench` runs it. Without `--benchmark-enable`, as in the tests, small sizes show that the candidates agree; nothing
is timed. `bench/measure.py` says how times are taken.
"""

from collections.abc import Callable

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from bench.cases import Case, Results, Sizes, layout, pack, pack_backward
from bench.measure import BURST, ROUNDS, burst_medians, calls_within, peak_bytes
from bench.report import Line, markdown

SUITE = "cpu"

WIDE = Sizes(4, 8192, 16, (1024,), torch.bfloat16)
IDS = Sizes(8, 8192, 16)
TINY = Sizes(1, 64, 2, (8,), torch.float32)

CASES = (
    Case("layout, 8 x 8192, 8 documents a row", Sizes(8, 8192, 8), layout, "loop", {"torch": {"loop": None}}),
    Case("layout, 8 x 8192, 64 documents a row", Sizes(8, 8192, 64), layout, "loop", {"torch": {"loop": 8}}),
    Case("layout, 8 x 8192, 512 documents a row", Sizes(8, 8192, 512), layout, "loop", {"torch": {"loop": 60}}),
    Case("pack, [4, 8192, 1024] bfloat16", WIDE, pack, "composed", {"torch": {"clone": 1.25, "composed": None}}),
    Case(
        "pack + backward, [4, 8192, 1024] bfloat16",
        WIDE,
        pack_backward,
        "composed",
        {"torch": {"clone": None, "composed": 2.5}},
    ),
    Case("pack, [8, 8192] int64", IDS, pack, "composed", {"torch": {"clone": None, "composed": 2.5}}),
    Case("pack, [1, 64, 8] float32", TINY, pack, "composed", {"torch": {"add": None, "composed": None}}),
)


@pytest.mark.parametrize("backend", ["torch"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cpu(case: Case, backend: str, benchmark: BenchmarkFixture, lines: list[Line]) -> None:
    candidates = case.prepare(case.sizes if benchmark.enabled else case.sizes.small(), backend)
    alignpack = candidates["alignpack"]
    torch.testing.assert_close(alignpack(), candidates[case.baseline](), rtol=0, atol=0)
    # The plugin's own table shows how alignpack's time varies; the ratios come from the bursts below.
    benchmark.pedantic(alignpack, rounds=ROUNDS, iterations=calls_within(alignpack, BURST))  # type: ignore[no-untyped-call]
    if not benchmark.enabled:
        return
    targets = case.targets[backend]
    medians = burst_medians({name: candidates[name] for name in ("alignpack", *targets)})
    own = [_line(case, backend, other, medians) for other in targets]
    own.append(Line(SUITE, case.name, backend, "memory of the results", _memory(alignpack), faster=False))
    lines.extend(own)
    benchmark.extra_info["median_seconds"] = medians
    benchmark.extra_info["ratios"] = {line.against: line.measured for line in own}
    if missed := [line for line in own if line.met is False]:
        pytest.fail(f"missed targets:\n{markdown(missed)}", pytrace=False)


def _line(case: Case, backend: str, other: str, medians: dict[str, float]) -> Line:
    seconds = medians["alignpack"], medians[other]
    faster = other == case.baseline
    ratio = seconds[1] / seconds[0] if faster else seconds[0] / seconds[1]
    return Line(SUITE, case.name, backend, other, ratio, faster, case.targets[backend][other], seconds)


def _memory(candidate: Callable[[], Results]) -> float:
    """Peak of the memory that a call takes, as a multiple of what it gives back."""
    return peak_bytes(candidate) / sum(result.nbytes for result in candidate())
