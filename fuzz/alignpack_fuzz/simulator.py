"""The CUDA kernels without a GPU: Numba's simulator in the GPU's place, host tensors in that of CUDA tensors.

The whole process is simulated or not, which `NUMBA_ENABLE_CUDASIM=1` must say before Numba is imported. One Python thread
plays each CUDA thread, a few thousand of them in a second, so launches are cut down: the kernels must be right for any
grid and block. Raw addresses are read and written through `ctypes`, as the kernels would.
"""

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from numba import cuda

import alignpack
import alignpack._backends
from alignpack._backends.numba_cuda import backend as numba_cuda
from alignpack._backends.numba_cuda.kernels import WRITE_LAYOUT, Kernel
from alignpack._backends.numba_cuda.launch import launching_with
from alignpack._backends.numba_cuda.shapes import Shape
from alignpack._backends.numba_cuda.words import POINTERS, SIMULATED
from alignpack_fuzz.targets import BackendTarget

NAME = "numba-sim"
"""The simulated backend, as `ALIGNPACK_BACKEND` and the fuzzer's targets call it."""

NEEDED = "kernels are simulated only where NUMBA_ENABLE_CUDASIM=1 was set before Numba was imported"

_INTEGERS = {1: ctypes.c_int8, 2: ctypes.c_int16, 4: ctypes.c_int32, 8: ctypes.c_int64}


@dataclass(frozen=True)
class Launch:
    """What a launcher was told."""

    kernel: Kernel
    device: torch.device
    grid: Shape
    block: Shape
    arguments: tuple[int, ...]


@dataclass
class Simulator:
    """A launcher that runs kernels on the host.

    Attributes:
        largest: blocks along each axis of a grid, and threads along each axis of a block, at most; None: as told.
        launches: what was launched, in order.
    """

    largest: int | None = 2
    launches: list[Launch] = field(default_factory=list)

    def launch(self, kernel: Kernel, device: torch.device, grid: Shape, block: Shape, *arguments: int) -> None:
        """See `alignpack._backends.numba_cuda.launch.Launcher`."""
        self.launches.append(Launch(kernel, device, grid, block, arguments))
        self.run(self.launches[-1])

    def load(self, kernel: Kernel, device: torch.device) -> None:
        """Nothing is compiled."""

    def run(self, launch: Launch) -> None:
        """Simulate it."""
        if not SIMULATED:
            raise RuntimeError(
                "kernels are simulated only where NUMBA_ENABLE_CUDASIM=1 was set before Numba was imported"
            )
        widths = [_WORD_BYTES[parameter] for parameter in launch.kernel.parameters if parameter in _WORD_BYTES]
        addresses, integers = launch.arguments[: len(widths)], launch.arguments[len(widths) :]
        extents = _extents(launch.kernel, *integers)
        arguments = [*map(Pointer, addresses, widths, extents), *integers]
        grid, block = (
            tuple(min(size, self.largest or size) for size in shape) for shape in (launch.grid, launch.block)
        )
        with _ONE_AT_A_TIME:
            cuda.jit(launch.kernel.function)[grid, block](*arguments)


@dataclass(frozen=True)
class Pointer:
    """A raw address of `words` words of `word_bytes` bytes; offsets count words, and an offset outside is refused."""

    address: int
    word_bytes: int
    words: int

    def load(self, offset: int) -> Any:
        """The word there, an int; a pair of them for 16 bytes."""
        self._check(offset)
        if self.word_bytes == 16:
            return self._place(8, 2 * offset).value, self._place(8, 2 * offset + 1).value
        return self._place(self.word_bytes, offset).value

    def store(self, offset: int, value: Any) -> None:
        """The opposite; a word of another width is refused, as by the compiler."""
        self._check(offset)
        if self.word_bytes == 16:
            self._place(8, 2 * offset).value, self._place(8, 2 * offset + 1).value = value
            return
        half = 1 << (8 * self.word_bytes - 1)
        if not -half <= value < half:
            raise OverflowError(f"{value} does not fit a word of {self.word_bytes} bytes")
        self._place(self.word_bytes, offset).value = value

    def word(self, low: int, high: int) -> Any:
        """The first bytes of a 16-byte pattern as a word."""
        return (low, high) if self.word_bytes == 16 else _INTEGERS[self.word_bytes](low).value

    def _check(self, offset: int) -> None:
        if not 0 <= offset < self.words:
            raise IndexError(f"word {offset} of {self.words} is touched")

    def _place(self, word_bytes: int, offset: int) -> Any:
        if self.address % self.word_bytes:
            raise ValueError(f"address {self.address:#x} is not aligned to {self.word_bytes} bytes")
        return _INTEGERS[word_bytes].from_address(self.address + word_bytes * offset)


def _extents(kernel: Kernel, *integers: int) -> tuple[int, ...]:
    """The words that each pointer of a kernel may be used for."""
    if kernel is WRITE_LAYOUT:
        batch, documents, columns, slots = integers
        return 3 * batch * documents, batch * columns, batch * slots, batch * columns, batch * columns
    _, _, batch, columns, slots, row_stride, slot_stride, *width = integers
    words = width[0] if width else 1
    source = (batch - 1) * row_stride + (slots - 1) * slot_stride + words if slots else 0
    return source, batch * columns, batch * columns * words


_WORD_BYTES = {pointer: word_bytes for word_bytes, pointer in POINTERS.items()}
# The simulator keeps what runs in global variables.
_ONE_AT_A_TIME = threading.Lock()


class SimulatedTarget(BackendTarget):
    """`alignpack` with the kernels of the `numba` backend on GPUs."""

    @contextmanager
    def active(self) -> Iterator[None]:
        """The backend for GPUs serves the CPU under a name of its own, and everything is launched on the simulator."""
        before = alignpack._backends.BACKENDS
        simulated = replace(numba_cuda.BACKEND, name=NAME, device_type="cpu", unavailable=lambda _: None)
        alignpack._backends.BACKENDS = (*before, simulated)
        try:
            with launching_with(Simulator()), super().active():
                yield
        finally:
            alignpack._backends.BACKENDS = before


def simulated_target() -> SimulatedTarget:
    """The target.

    Raises:
        ValueError: this process does not simulate.
    """
    if not SIMULATED:
        raise ValueError(NEEDED)
    return SimulatedTarget(f"alignpack:backend={NAME}", alignpack.packed_layout, NAME)
