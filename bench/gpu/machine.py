"""The GPU as the check uses it, and a stand-in on the host with which the check itself is tried before it meets a card."""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Protocol

import torch

import alignpack
from alignpack_fuzz.targets import BACKENDS, BackendTarget

Call = Callable[[], object]


class Machine(Protocol):
    """What the parts of the check need from a device.

    Attributes:
        device: where tensors live.
        targets: the implementations that run, by the names of their backends.
        kernels: the one that launches this library's kernels, if it runs.
        small: whether sizes are to be tiny.
    """

    device: torch.device
    targets: dict[str, BackendTarget]
    kernels: BackendTarget | None
    small: bool

    def facts(self) -> dict[str, object]:
        """What the figures depend on."""

    def side_stream(self) -> contextlib.AbstractContextManager[None]:
        """Another stream, kept busy first, so that work that ran on the wrong stream reads what is not yet written."""

    def captured(self, call: Call, warm: bool) -> tuple[object, Call]:
        """What the call gave when a graph was captured from it, and how to replay it; `warm`: called once before."""

    def waiting_forbidden(self) -> contextlib.AbstractContextManager[None]:
        """Inside, making the host wait for the device is an error."""

    def wait(self) -> None:
        """For all work."""

    def seconds(self, calls: list[Call], rounds: int) -> float:
        """Median of the device's seconds for each of the calls, which are made in turn."""

    def most_bytes(self, call: Call) -> int:
        """The most memory held during a call beyond what was held before."""


class Gpu:
    """The current CUDA device."""

    small = False

    def __init__(self) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device())
        reasons = alignpack.backends()[str(self.device)]
        self.targets = {target.backend: target for target in BACKENDS if reasons[target.backend] is None}
        self.kernels = self.targets.get("numba")

    def facts(self) -> dict[str, object]:
        """See `Machine`."""
        properties = torch.cuda.get_device_properties(self.device)
        return {
            "gpu": properties.name,
            "capability": "{}.{}".format(*torch.cuda.get_device_capability(self.device)),
            "memory": properties.total_memory,
            "cuda": torch.version.cuda,
            "torch": torch.__version__,
        }

    @contextlib.contextmanager
    def side_stream(self) -> Iterator[None]:
        """See `Machine`."""
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)
            yield
        torch.cuda.current_stream(self.device).wait_stream(stream)

    def captured(self, call: Call, warm: bool) -> tuple[object, Call]:
        """See `Machine`."""
        if warm:
            stream = torch.cuda.Stream(self.device)
            stream.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(stream):
                call()
            torch.cuda.current_stream(self.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = call()
        return result, graph.replay

    @contextlib.contextmanager
    def waiting_forbidden(self) -> Iterator[None]:
        """See `Machine`."""
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def wait(self) -> None:
        """See `Machine`."""
        torch.cuda.synchronize(self.device)

    def seconds(self, calls: list[Call], rounds: int) -> float:
        """See `Machine`."""
        for call in calls:
            call()
        times: list[float] = []
        for _ in range(rounds):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(20_000_000)  # the host gets ahead, so that its own time does not count
            begin.record()
            for call in calls:
                call()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / 1000 / len(calls))
        return statistics.median(times)

    def most_bytes(self, call: Call) -> int:
        """See `Machine`."""
        before = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        call()
        return torch.cuda.max_memory_allocated(self.device) - before


class Rehearsal:
    """The host: kernels in Numba's simulator, with stand-ins for streams and graphs. Its figures mean nothing."""

    small = True

    def __init__(self) -> None:
        from alignpack_fuzz.simulator import simulated_target  # which imports Numba's CUDA target

        self.device = torch.device("cpu")
        self.kernels: BackendTarget | None = simulated_target()
        self.targets = {"numba-sim": self.kernels, "torch": next(one for one in BACKENDS if one.backend == "torch")}

    def facts(self) -> dict[str, object]:
        """See `Machine`."""
        return {"gpu": None, "torch": torch.__version__}

    def side_stream(self) -> contextlib.AbstractContextManager[None]:
        """See `Machine`."""
        return contextlib.nullcontext()

    def captured(self, call: Call, warm: bool) -> tuple[object, Call]:
        """See `Machine`: replaying puts what a new call gives into what the first gave."""
        result = call()

        def replay() -> None:
            new = call()
            for old_tensor, new_tensor in zip(_tensors(result), _tensors(new), strict=True):
                old_tensor.detach().copy_(new_tensor.detach())

        return result, replay

    def waiting_forbidden(self) -> contextlib.AbstractContextManager[None]:
        """See `Machine`."""
        return contextlib.nullcontext()

    def wait(self) -> None:
        """See `Machine`."""

    def seconds(self, calls: list[Call], rounds: int) -> float:
        """See `Machine`."""
        times = []
        for _ in range(rounds):
            begin = time.perf_counter()
            for call in calls:
                call()
            times.append((time.perf_counter() - begin) / len(calls))
        return statistics.median(times)

    def most_bytes(self, call: Call) -> int:
        """See `Machine`."""
        call()
        return 0


def _tensors(result: object) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else [part for part in result if part is not None]  # type: ignore[attr-defined]
