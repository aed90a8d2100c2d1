"""What a call on a GPU costs the host: everything but the launch, which does nothing here, so that no GPU is needed.

Host tensors are in the place of CUDA tensors. That the same calls give right results is shown on Numba's simulator, by
`tests/backends/numba_cuda/simulator`; nothing is computed here. The launch itself adds what `cuda.core.launch` takes.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from alignpack import _backends, packed_layout
from alignpack._backends.numba_cuda import backend as numba_cuda
from alignpack._backends.numba_cuda import launch as launching
from alignpack._backends.numba_cuda.kernels import Kernel
from alignpack._backends.numba_cuda.shapes import Shape
from bench.measure import BURST, ROUNDS, Candidate, burst_times, calls_within
from bench.report import Line, markdown

SUITE = "host"
BACKEND = "numba on CUDA"
TARGETS = {"without gradients": 8.0, "with gradients": 12.0, "the backend's part": None}


class Nothing:
    """A launcher that counts."""

    launches = 0

    def launch(self, kernel: Kernel, device: torch.device, grid: Shape, block: Shape, *arguments: int) -> None:
        """Nothing runs."""
        self.launches += 1

    def load(self, kernel: Kernel, device: torch.device) -> None:
        """Nothing is loaded."""


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nothing]:
    on_host = replace(numba_cuda.BACKEND, device_type="cpu", unavailable=lambda _: None)
    monkeypatch.setattr(_backends, "BACKENDS", (on_host,))  # found as the first one, as on a GPU
    launcher = Nothing()
    with launching.launching_with(launcher):
        yield launcher


@pytest.mark.parametrize("case", TARGETS)
def test_host(case: str, launcher: Nothing, benchmark: BenchmarkFixture, lines: list[Line]) -> None:
    layout = packed_layout(torch.tensor([[40, 24]]), None, (1, 64), 4)
    values = torch.zeros(1, 64, 8, requires_grad=case == "with gradients")
    calls: dict[str, Candidate] = {"alignpack": lambda: layout.pack(values), "add": lambda: values.add(1)}
    if case == "the backend's part":
        calls["alignpack"] = lambda: numba_cuda.gather_slots(values, layout.source_indices, (0,))
    before = launcher.launches
    calls["alignpack"]()
    assert launcher.launches == before + 1
    benchmark.pedantic(calls["alignpack"], rounds=ROUNDS, iterations=calls_within(calls["alignpack"], BURST))  # type: ignore[no-untyped-call]
    if not benchmark.enabled:
        return
    times = burst_times(calls)
    mine, add = times["alignpack"], times["add"]
    seconds = mine.median, add.median
    ratio, quartiles = seconds[0] / seconds[1], mine.quartiles_over(add)
    line = Line(SUITE, case, BACKEND, "add", ratio, "time", TARGETS[case], seconds, quartiles)
    lines.append(line)
    benchmark.extra_info["ratios"] = {"add": ratio}
    if line.met is False:
        pytest.fail(f"missed a target:\n{markdown([line])}", pytrace=False)
