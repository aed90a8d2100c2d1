"""Launching kernels: compiled once for each compute capability, launched on PyTorch's current stream by raw pointers.

Numba compiles, `cuda.core` loads and launches. Numba's own dispatcher inspects every tensor at each call, which costs tens
of times a launch. The first use of CUDA imports this module.
"""

import contextlib
import functools
import re
import threading
from collections.abc import Iterator
from typing import Any, Protocol

import torch

from alignpack._backends.numba_cuda.kernels import KERNELS, Kernel
from alignpack._backends.numba_cuda.shapes import THREADS, Shape

BLOCKS_AT_ONCE = 4
"""Blocks per multiprocessor that registers must allow: 64 registers a thread leave enough threads to hide latency."""


class Launcher(Protocol):
    """Runs kernels: on the GPU, or in tests on a stand-in."""

    def launch(self, kernel: Kernel, device: torch.device, grid: Shape, block: Shape, *arguments: int) -> None:
        """Run a kernel on `device`'s current stream; the arguments are addresses and integers."""

    def load(self, kernel: Kernel, device: torch.device) -> object:
        """Load a kernel on `device`, so that its first launch costs what every other does."""


class CudaLauncher:
    """Launches on GPUs through `cuda.core`."""

    def __init__(self) -> None:
        from cuda.core import Device, LaunchConfig, Stream, launch

        self._launch, self._device = launch, Device
        # PyTorch has a few dozen streams. Others come and go, and a new one may reuse an old one's handle; the wrapper
        # holds only the handle, so it stays right.
        self._stream = functools.lru_cache(256)(lambda _device, handle: Stream.from_handle(handle))
        self._config = functools.lru_cache(1024)(lambda grid, block: LaunchConfig(grid=grid, block=block))
        self._on_device: dict[tuple[str, int], Any] = {}
        self._compiled: dict[tuple[str, Shape], Any] = {}
        self._compiling = threading.Lock()
        self._thread = threading.local()

    def launch(self, kernel: Kernel, device: torch.device, grid: Shape, block: Shape, *arguments: int) -> None:
        """See `Launcher`."""
        index = device.index
        ready = self._on_device.get((kernel.name, index))
        if torch.cuda.current_device() != index:
            with torch.cuda.device(index):
                self._run(ready or self.load(kernel, device), index, grid, block, arguments)
            return
        if index not in self._contexts():
            # A thread that got its tensors from PyTorch's cache may not have called CUDA yet.
            self._device(index).set_current()
            self._contexts().add(index)
        self._run(ready or self.load(kernel, device), index, grid, block, arguments)

    def _run(self, loaded: Any, index: int, grid: Shape, block: Shape, arguments: tuple[int, ...]) -> None:
        stream = self._stream(index, current_stream(index))
        self._launch(stream, self._config(grid, block), loaded, *arguments)

    def load(self, kernel: Kernel, device: torch.device) -> Any:
        """See `Launcher`.

        Raises:
            RuntimeError: a CUDA graph is being captured, during which no code may be loaded.
        """
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                f"a CUDA graph is being captured and the kernel {kernel.name} is not loaded on {device}: call "
                f"alignpack.warmup({str(device)!r}) before the capture"
            )
        capability = torch.cuda.get_device_capability(device)
        with self._compiling:
            loaded = self._compiled.get((kernel.name, capability))
            if loaded is None:
                with torch.cuda.device(device):
                    self._device(device.index).set_current()
                    loaded = compile_kernel(kernel, capability)
                self._compiled[kernel.name, capability] = loaded
            self._on_device[kernel.name, device.index] = loaded
        return loaded

    def _contexts(self) -> set[int]:
        """The devices whose context this thread has entered."""
        entered: set[int] | None = getattr(self._thread, "entered", None)
        if entered is None:
            entered = self._thread.entered = set()
        return entered


def current_stream(index: int) -> int:
    """The handle of PyTorch's current stream on a device."""
    # The public form makes three Python objects, which costs more than the launch. Inductor uses this one too.
    handle: int = torch._C._cuda_getCurrentRawStream(index)
    return handle


def assembly(kernel: Kernel, capability: Shape) -> str:
    """The kernel as PTX; no GPU is needed."""
    from numba import cuda, types

    ptx, _ = cuda.compile(
        kernel.function,
        types.void(*kernel.parameters),
        device=False,
        abi="numba",
        cc=capability,
        output="ptx",
        launch_bounds=(THREADS, BLOCKS_AT_ONCE),
    )
    return str(ptx)


def machine_code(ptx: str, capability: Shape) -> Any:
    """PTX as a `cuda.core.ObjectCode`, without a GPU and without the driver, which may be older than the PTX."""
    from cuda.core import Program, ProgramOptions

    options = ProgramOptions(arch="sm_{}{}".format(*capability))
    return Program(ptx, "ptx", options=options).compile("cubin")


def compile_kernel(kernel: Kernel, capability: Shape) -> Any:
    """The kernel as a `cuda.core.Kernel`, loaded on the current device."""
    ptx = assembly(kernel, capability)
    entry = re.search(r"\.entry\s+([\w$]+)", ptx)
    if entry is None:
        raise RuntimeError(f"Numba made no entry for the kernel {kernel.name}")
    return machine_code(ptx, capability).get_kernel(entry[1])


_stand_in: Launcher | None = None


def launcher() -> Launcher:
    """The launcher in use."""
    return _stand_in or _cuda_launcher()


@functools.cache
def _cuda_launcher() -> CudaLauncher:
    return CudaLauncher()


@contextlib.contextmanager
def launching_with(stand_in: Launcher) -> Iterator[None]:
    """For tests: launch everything with this launcher instead, in all threads."""
    global _stand_in
    before, _stand_in = _stand_in, stand_in
    try:
        yield
    finally:
        _stand_in = before


def load_all(device: torch.device) -> None:
    """Load every kernel and launch it once over zero rows, because drivers load code lazily, at the first launch."""
    for kernel in KERNELS:
        launcher().load(kernel, device)  # raises during a capture, which would record the launch
        launcher().launch(kernel, device, (1, 1), (32, 1), *[0] * len(kernel.parameters))
