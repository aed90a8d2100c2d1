"""Which backend a call gets."""

import dataclasses
import subprocess
import sys
from typing import Any

import pytest
import torch

import alignpack
from alignpack import _backends
from alignpack._backends import BACKENDS, select_backend, torch_backend
from alignpack._backends.interface import Backend

CPU = torch.device("cpu")


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> Backend:
    """A backend that stands first and cannot run."""
    backend = dataclasses.replace(
        torch_backend.BACKEND, name="absent", unavailable=lambda _: "its package is not there"
    )
    monkeypatch.setattr(_backends, "BACKENDS", (backend, torch_backend.BACKEND))
    return backend


@pytest.fixture(autouse=True)
def no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALIGNPACK_BACKEND", raising=False)


def build(**options: str) -> alignpack.PackedSequenceLayout:
    return alignpack.packed_layout(torch.tensor([[3]]), None, (1, 3), 4, **options)  # type: ignore[arg-type]


def test_without_a_name_the_first_that_runs(absent: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    assert select_backend(None, CPU).name == "torch"
    fast = dataclasses.replace(torch_backend.BACKEND, name="fast")
    monkeypatch.setattr(_backends, "BACKENDS", (fast, *BACKENDS))
    assert select_backend(None, CPU).name == "fast"


def test_a_name_forces_it(absent: Backend) -> None:
    assert select_backend("torch", CPU).name == "torch"


def test_the_environment_chooses_for_build_and_moves(absent: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = build()
    monkeypatch.setenv("ALIGNPACK_BACKEND", "absent")
    for call in (build, lambda: layout.pack(torch.zeros(1, 3)), lambda: layout.restore(torch.zeros(1, 4))):
        with pytest.raises(RuntimeError, match=r"^ALIGNPACK_BACKEND='absent' does not run on cpu"):
            call()
    assert build(backend="torch").equal(layout)  # a name is stronger
    monkeypatch.setenv("ALIGNPACK_BACKEND", "")
    assert select_backend(None, CPU).name == "torch"


def test_an_unknown_name(absent: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    rest = "is not a backend; on cpu: 'absent' does not run (its package is not there), 'torch' runs"
    layout = build()
    for call in (
        lambda: build(backend="numpy"),
        lambda: layout.pack(torch.zeros(1, 3), backend="numpy"),  # type: ignore[arg-type]
        lambda: layout.restore(torch.zeros(1, 4), backend="numpy"),  # type: ignore[arg-type]
        lambda: layout.pack_batch({"ids": torch.zeros(1, 3)}, backend="numpy"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match="backend") as caught:
            call()
        assert str(caught.value) == f"backend='numpy' {rest}"
    monkeypatch.setenv("ALIGNPACK_BACKEND", "numpy")
    with pytest.raises(ValueError, match="BACKEND") as caught:
        build()
    assert str(caught.value) == f"ALIGNPACK_BACKEND='numpy' {rest}"


def test_a_backend_is_given_by_name() -> None:
    with pytest.raises(TypeError) as caught:
        build(backend=["torch"])  # type: ignore[arg-type]
    assert str(caught.value) == "backend must be a name or None, got ['torch']"


def test_a_backend_that_cannot_run(absent: Backend) -> None:
    with pytest.raises(RuntimeError) as caught:
        build(backend="absent")
    assert str(caught.value) == (
        "backend='absent' does not run on cpu: its package is not there; on cpu: 'absent' does not run (its package is "
        "not there), 'torch' runs"
    )


def test_no_backend_at_all(absent: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_backends, "BACKENDS", (absent,))
    with pytest.raises(RuntimeError, match=r"^no backend runs on cpu: 'absent' does not run"):
        build()


def test_only_unavailability_falls_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> torch.Tensor:
        raise RuntimeError("a bug in a kernel")

    first = dataclasses.replace(torch_backend.BACKEND, name="broken", gather_slots=broken)
    monkeypatch.setattr(_backends, "BACKENDS", (first, *BACKENDS))
    with pytest.raises(RuntimeError, match="a bug in a kernel"):
        build().pack(torch.zeros(1, 3))


def test_gradients_use_the_backend_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, ...]] = []

    def spy(values: torch.Tensor, index: torch.Tensor, words: tuple[int, ...]) -> torch.Tensor:
        calls.append(tuple(values.shape))
        return torch_backend.gather_slots(values, index, words)

    spied = dataclasses.replace(torch_backend.BACKEND, name="spied", gather_slots=spy)
    monkeypatch.setattr(_backends, "BACKENDS", (spied, *BACKENDS))
    spied_name: Any = spied.name
    values = torch.zeros(1, 3, requires_grad=True)
    build().pack(values, backend=spied_name).sum().backward()
    assert calls == [(1, 3), (1, 4)]
    torch.func.jvp(lambda values: build().pack(values, backend=spied_name), (values,), (values,))
    assert calls[2:] == [(1, 3), (1, 3)]


@pytest.mark.slow
def test_warming_up_compiles_for_the_cpu() -> None:
    """Afterwards nothing is compiled: a worker that is forked then, or a first step, waits for nothing."""
    program = """
import torch, alignpack
alignpack.warmup("cpu")
from alignpack._backends.numba_cpu import kernels
kernels = {name: kernel for name, kernel in vars(kernels).items() if hasattr(kernel, "signatures")}
assert len(kernels) == 5, kernels
assert all(len(kernel.signatures) == 1 for kernel in kernels.values()), kernels
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
