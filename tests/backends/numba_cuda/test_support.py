"""Why Numba's kernels do not run on a GPU, each reason on a machine that lacks only that; and what happens instead."""

from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import alignpack
from alignpack import _backends, backends, warmup
from alignpack._backends import select_backend, torch_backend
from alignpack._backends.numba_cuda import backend as numba_cuda
from alignpack._backends.numba_cuda import support

GPU = torch.device("cuda", 0)


class Machine:
    """A machine with a GPU and everything that is needed; tests take something away."""

    def __init__(self) -> None:
        self.versions = {"numba-cuda": "0.30.4", "cuda-core": "1.2.2"}
        self.simulates = 0
        self.implementation = "NVIDIA"
        self.absent_libraries: tuple[str, ...] = ()
        self.library_error: type[Exception] = RuntimeError
        self.driver, self.compiler = 13000, 13
        self.broken: Exception | None = None

    def version(self, package: str) -> str:
        """`importlib.metadata.version`."""
        if package not in self.versions:
            raise metadata.PackageNotFoundError(package)
        return self.versions[package]

    def load(self, module: str) -> Any:
        """`importlib.import_module`."""
        if module == "numba.cuda" and self.broken is not None:
            raise self.broken
        return {
            "numba": SimpleNamespace(config=SimpleNamespace(ENABLE_CUDASIM=self.simulates)),
            "numba.cuda": SimpleNamespace(implementation=self.implementation),
            "cuda.core": SimpleNamespace(),
            "cuda.pathfinder": SimpleNamespace(load_nvidia_dynamic_lib=self.library),
            "cuda.bindings.nvjitlink": SimpleNamespace(version=lambda: (self.compiler, 0)),
            "cuda.bindings.driver": SimpleNamespace(cuDriverGetVersion=lambda: (0, self.driver)),
        }[module]

    def library(self, name: str) -> None:
        """`cuda.pathfinder.load_nvidia_dynamic_lib`."""
        if name in self.absent_libraries:
            raise self.library_error(f"no lib{name}.so\nin any folder")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    support.missing.cache_clear()
    monkeypatch.setattr(metadata, "version", machine.version)
    monkeypatch.setattr(support, "_load", machine.load)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.delenv("ALIGNPACK_BACKEND", raising=False)
    return machine


@pytest.fixture(autouse=True)
def forget() -> Any:
    yield
    support.missing.cache_clear()


def test_nothing_is_missing(machine: Machine) -> None:
    assert support.missing(GPU) is None
    assert select_backend(None, GPU).name == "numba"


def test_a_device_without_a_number_is_the_one_that_is_current(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    capabilities = [(9, 0), (7, 0)]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capabilities[device.index])
    for current, name in [(0, "numba"), (1, "torch"), (0, "numba")]:
        monkeypatch.setattr(torch.cuda, "current_device", lambda current=current: current)
        assert select_backend(None, torch.device("cuda")).name == name


def lacks(**facts: Any) -> Callable[[Machine, pytest.MonkeyPatch], None]:
    return lambda machine, _: vars(machine).update(facts)


INSTALL = "python -m pip install 'alignpack[cuda]'"

REASONS: dict[str, Callable[[Machine, pytest.MonkeyPatch], None]] = {
    "this PyTorch is built without CUDA": lambda _, patch: patch.setattr(torch.version, "cuda", None),
    "PyTorch finds no CUDA device": lambda _, patch: patch.setattr(torch.cuda, "is_available", lambda: False),
    f"numba-cuda >= 0.30.4 is not installed: {INSTALL}": lacks(versions={}),
    f"cuda-core >= 1.0 is not installed: {INSTALL}": lacks(versions={"numba-cuda": "0.30.4.dev1"}),
    f"numba-cuda >= 0.30.4 is needed, 0.29.0 is installed: {INSTALL}": lacks(versions={"numba-cuda": "0.29.0"}),
    f"cuda-core >= 1.0 is needed, 0.7.0 is installed: {INSTALL}": lacks(
        versions={"numba-cuda": "0.31", "cuda-core": "0.7.0"}
    ),
    "Numba-CUDA cannot be imported: no module named llvmlite": lacks(broken=ImportError("no module named llvmlite")),
    "Numba-CUDA cannot be imported: libLLVM.so: invalid ELF header": lacks(
        broken=OSError("libLLVM.so: invalid ELF header")
    ),
    "Numba simulates CUDA in this process (NUMBA_ENABLE_CUDASIM)": lacks(simulates=1),
    "Numba's built-in CUDA target is in the place of numba-cuda": lacks(implementation="Built-in"),
    "the CUDA library nvvm cannot be loaded: no libnvvm.so in any folder": lacks(absent_libraries=("nvvm", "nvrtc")),
    "the driver supports CUDA 12.4, and the installed compiler is that of CUDA 13: update the driver, or install "
    "'alignpack[cuda12]'": lacks(driver=12040),
    "its compute capability is 7.0, at least 7.5 is needed": lambda _, patch: patch.setattr(
        torch.cuda, "get_device_capability", lambda _: (7, 0)
    ),
    "PyTorch finds 0 CUDA devices": lambda _, patch: patch.setattr(torch.cuda, "device_count", lambda: 0),
}


@pytest.mark.parametrize("reason", REASONS)
def test_each_reason(reason: str, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    REASONS[reason](machine, monkeypatch)
    assert support.missing(GPU) == reason
    assert select_backend(None, GPU).name == "torch"  # CUDA tensors are served all the same
    with pytest.raises(RuntimeError) as caught:
        select_backend("numba", GPU)
    assert str(caught.value).startswith(f"backend='numba' does not run on cuda:0: {reason}; on cuda:0: ")
    if torch.cuda.device_count():
        assert backends()["cuda:0"] == {"numba": reason, "torch": None}


@pytest.mark.parametrize("error", [RuntimeError, OSError])
@pytest.mark.parametrize("library", ["nvvm", "nvrtc", "nvJitLink"])
def test_each_library(library: str, error: type[Exception], machine: Machine) -> None:
    machine.absent_libraries, machine.library_error = (library,), error
    assert support.missing(GPU) == f"the CUDA library {library} cannot be loaded: no lib{library}.so in any folder"


def test_the_oldest_capability_runs(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    assert support.missing(GPU) is None


def test_pytorch_for_cuda_12(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "12.9")
    machine.versions = {}
    assert "alignpack[cuda12]" in str(support.missing(GPU))


def test_other_errors_are_shown(machine: Machine) -> None:
    machine.broken = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError):
        select_backend(None, GPU)


def test_no_kernels_for_other_devices() -> None:
    assert support.missing(torch.device("xpu")) == "its type is xpu, not cuda"


def test_values_and_layout_on_two_devices() -> None:
    on_host = alignpack.packed_layout(torch.tensor([[3]]), None, (1, 3), 4)
    elsewhere = on_host.to("meta")  # in place of a GPU: devices are compared before anything is read
    with pytest.raises(ValueError, match=r"^values must be on the device of the layout, cpu, got meta$"):
        on_host.pack(torch.zeros(1, 3, device="meta"))
    with pytest.raises(ValueError, match=r"^values must be on the device of the layout, meta, got cpu$"):
        elsewhere.pack(torch.zeros(1, 3))


def test_the_overview_names_every_device(machine: Machine) -> None:
    assert backends()["cuda:0"] == {"numba": None, "torch": None}
    assert backends()["cpu"]["torch"] is None
    assert list(backends()) == ["cpu", "cuda:0"]


def test_warmup_loads_the_kernels_where_they_run(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    warmed: list[torch.device] = []
    recording = replace(numba_cuda.BACKEND, warmup=warmed.append)
    monkeypatch.setattr(_backends, "BACKENDS", (recording, torch_backend.BACKEND))
    warmup("cpu")
    assert not warmed
    warmup()
    warmup("cuda:0")
    assert warmed == [torch.device("cuda"), GPU]
    machine.versions = {}
    support.missing.cache_clear()
    warmup("cuda:0")  # PyTorch serves the device and needs nothing
    assert len(warmed) == 2
