"""The launch layer down to the driver, which is one that does nothing and tells what it was told."""

import contextlib
import ctypes
import itertools
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from alignpack._backends.numba_cuda.kernels import GATHER_WIDE, KERNELS, WRITE_LAYOUT
from alignpack._backends.numba_cuda.launch import CudaLauncher, launcher
from alignpack._backends.numba_cuda.support import missing

pytestmark = pytest.mark.slow  # the C compiler runs as a process
HERE = Path(__file__).parent
GPUS = torch.device("cuda", 0), torch.device("cuda", 1)
STREAMS = {0: 0, 1: 0x5000}
"""PyTorch's current stream of each device; 0 is the default one."""


class Driver:
    """What the driver saw last."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.last_arguments.restype = ctypes.POINTER(ctypes.c_int64)
        library.last_shape.restype = ctypes.POINTER(ctypes.c_uint)
        for name in ("last_stream", "last_context", "last_kernel", "launches_seen"):
            getattr(library, name).restype = ctypes.c_uint64

    def expect(self, parameters: int) -> None:
        """Keep the first `parameters` arguments of every launch."""
        self._library.expect_parameters(parameters)

    def arguments(self, count: int) -> list[int]:
        """The arguments kept from the last launch, as signed integers."""
        return list(self._library.last_arguments()[:count])

    @property
    def shape(self) -> list[int]:
        """Grid and block."""
        return list(self._library.last_shape()[:6])

    def __getattr__(self, name: str) -> int:
        return int(getattr(self._library, name)())


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    # Loaded under the driver's name before anything asks for the driver.
    path = tmp_path_factory.mktemp("driver") / "libcuda.so.1"
    options = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-Wl,-soname,libcuda.so.1"]
    subprocess.run(["cc", *options, "-o", path, HERE / "driver.c", "-ldl"], check=True)
    return Driver(ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL))


class Torch:
    """What PyTorch says of its devices; one for each thread, as there."""

    def __init__(self) -> None:
        self.local = threading.local()
        self.capturing = False

    def current(self) -> int:
        """`torch.cuda.current_device`."""
        return int(getattr(self.local, "index", 0))

    @contextlib.contextmanager
    def device(self, device: torch.device | int) -> Iterator[None]:
        """`torch.cuda.device`."""
        from cuda.core import Device

        before = self.current()
        self.local.index = device if isinstance(device, int) else device.index
        Device(self.local.index).set_current()  # as `cudaSetDevice` does
        yield
        self.local.index = before
        Device(before).set_current()


@pytest.fixture
def pytorch(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Torch:
    pytorch = Torch()
    monkeypatch.setattr(torch.cuda, "current_device", pytorch.current)
    monkeypatch.setattr(torch.cuda, "device", pytorch.device)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: pytorch.capturing)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", STREAMS.__getitem__, raising=False)
    return pytorch


def test_nothing_is_missing(driver: Driver, pytorch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages, libraries and versions as they are installed here."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(GPUS))
    missing.cache_clear()
    try:
        assert [missing(gpu) for gpu in GPUS] == [None, None]
    finally:
        missing.cache_clear()


ARGUMENTS = (2**47 + 16, 2**46, 2**45, -1, -(2**63), 3, 2**33, 5, 0, 7, 8)


@pytest.mark.parametrize("gpu", GPUS, ids=str)
def test_the_driver_is_told_everything(gpu: torch.device, driver: Driver, pytorch: Torch) -> None:
    driver.expect(len(ARGUMENTS))
    launcher, before = CudaLauncher(), driver.launches_seen
    launcher.launch(GATHER_WIDE[16], gpu, (70000, 65535), (32, 8), *ARGUMENTS)
    assert driver.launches_seen == before + 1
    assert driver.arguments(len(ARGUMENTS)) == list(ARGUMENTS)
    assert driver.shape == [70000, 65535, 1, 32, 8, 1]
    assert driver.last_stream == STREAMS[gpu.index]
    assert driver.last_context == 0x1000 + gpu.index
    assert pytorch.current() == 0


def test_streams_and_shapes_are_those_of_the_call(
    driver: Driver, pytorch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept from earlier calls is never taken for another stream, grid or block."""
    driver.expect(9)
    launcher = CudaLauncher()
    for stream, grid, block in itertools.product((0, 0x6000, 0x7000), ((1, 1), (1, 2), (3, 2)), ((32, 1), (32, 8))):
        monkeypatch.setitem(STREAMS, 0, stream)
        for _ in range(2):
            launcher.launch(WRITE_LAYOUT, GPUS[0], grid, block, *range(9))
            assert (driver.last_stream, driver.shape) == (stream, [*grid, 1, *block, 1])


def test_each_kind_of_gpu_has_its_own_code(driver: Driver, pytorch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0) if device.index == 0 else (8, 0))
    launcher = CudaLauncher()
    assert launcher.load(WRITE_LAYOUT, GPUS[0]) is not launcher.load(WRITE_LAYOUT, GPUS[1])
    driver.expect(9)
    kernels = []
    for gpu in (*GPUS, *GPUS):
        launcher.launch(WRITE_LAYOUT, gpu, (1, 1), (32, 1), *range(9))
        kernels.append(driver.last_kernel)
    assert kernels[0] == kernels[2] != kernels[1] == kernels[3]


def test_the_gpu_is_what_launches(driver: Driver, pytorch: Torch) -> None:
    assert isinstance(launcher(), CudaLauncher)
    assert launcher() is launcher()


def test_a_kernel_is_compiled_once(driver: Driver, pytorch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.expect(9)
    launcher = CudaLauncher()
    kernels = set()
    for gpu in (*GPUS, *GPUS):
        launcher.launch(WRITE_LAYOUT, gpu, (1, 1), (32, 1), *range(9))
        kernels.add(driver.last_kernel)
    assert len(kernels) == 1  # both devices are of one kind, and code is loaded for all
    assert launcher.load(WRITE_LAYOUT, GPUS[0]) is launcher.load(WRITE_LAYOUT, GPUS[1])


def test_a_new_thread_enters_the_context(driver: Driver, pytorch: Torch) -> None:
    """As a backward does, whose thread may never have called CUDA before."""
    driver.expect(9)
    launcher, seen = CudaLauncher(), []

    def backward() -> None:
        for gpu in GPUS:
            launcher.launch(WRITE_LAYOUT, gpu, (1, 1), (32, 1), *range(9))
            seen.append(driver.last_context)

    backward()  # here first: that one thread has entered a context says nothing of another
    assert seen == [0x1000, 0x1001]
    seen.clear()
    thread = threading.Thread(target=backward)
    thread.start()
    thread.join()
    assert seen == [0x1000, 0x1001]


def test_a_cold_kernel_in_a_capture(driver: Driver, pytorch: Torch) -> None:
    driver.expect(9)
    launcher, before = CudaLauncher(), driver.launches_seen
    pytorch.capturing = True
    with pytest.raises(RuntimeError) as caught:
        launcher.launch(WRITE_LAYOUT, GPUS[1], (1, 1), (32, 1), *range(9))
    assert str(caught.value) == (
        "a CUDA graph is being captured and the kernel write_layout is not loaded on cuda:1: call "
        "alignpack.warmup('cuda:1') before the capture"
    )
    assert driver.launches_seen == before
    pytorch.capturing = False
    for kernel in KERNELS[-1:]:
        launcher.load(kernel, GPUS[1])
    pytorch.capturing = True
    launcher.launch(WRITE_LAYOUT, GPUS[1], (1, 1), (32, 1), *range(9))
    assert driver.launches_seen == before + 1
