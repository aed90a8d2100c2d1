"""Where the numba backend runs, and what is taken where it does not; Numba is loaded by the call that needs it."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from alignpack import packed_layout
from alignpack._backends.numba_cpu import backend as numba_cpu


@pytest.fixture
def asked_again() -> Iterator[None]:
    numba_cpu.unavailable.cache_clear()
    yield
    numba_cpu.unavailable.cache_clear()


def test_a_cpu_with_a_number_is_the_cpu() -> None:
    layout = packed_layout(torch.tensor([[3]]), None, (1, 3), 4, device="cpu:0", backend="numba")
    assert layout.equal(packed_layout(torch.tensor([[3]]), None, (1, 3), 4))


@pytest.mark.usefixtures("asked_again")
def test_where_numba_cannot_be_imported_another_backend_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ImportError("Numba needs NumPy 1.0 or less")

    monkeypatch.setattr(numba_cpu, "_kernels", broken)
    assert packed_layout(torch.tensor([[3]]), None, (1, 3), 4).source_indices.tolist() == [[0, 1, 2, -1]]
    with pytest.raises(RuntimeError) as caught:
        packed_layout(torch.tensor([[3]]), None, (1, 3), 4, backend="numba")
    reason = "numba cannot be imported: Numba needs NumPy 1.0 or less"
    assert str(caught.value) == (
        f"backend='numba' does not run on cpu: {reason}; on cpu: 'numba' does not run ({reason}), 'torch' runs"
    )


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["numba", "llvmlite"])
def test_without_a_package_another_backend_is_taken(missing: str) -> None:
    program = f"""
import sys
sys.modules[{missing!r}] = None
import torch, alignpack
layout = alignpack.packed_layout(torch.tensor([[3]]), None, (1, 3), 4)
assert layout.pack(torch.ones(1, 3)).tolist() == [[1, 1, 1, 0]]
print(alignpack.backends()["cpu"]["numba"])
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert run.stdout.startswith("numba cannot be imported: "), run.stderr
    assert missing in run.stdout


@pytest.mark.usefixtures("asked_again")
def test_where_numba_may_not_compile_another_backend_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "true")
    assert numba_cpu.unavailable(torch.device("cpu")) == "NUMBA_DISABLE_JIT is set"


def test_elsewhere_than_on_the_cpu_another_backend_is_taken() -> None:
    layout = packed_layout(torch.tensor([[3]]), None, (1, 3), 4, device="meta")
    assert layout.source_indices.shape == (1, 4)
    with pytest.raises(RuntimeError, match="'numba' does not run on meta: it runs on cpu and cuda only"):
        layout.pack(torch.zeros(1, 3, device="meta"), backend="numba")


@pytest.mark.slow
def test_the_first_call_loads_numba_and_no_earlier_one() -> None:
    program = """
import sys, torch, alignpack
layout = alignpack.packed_layout(torch.tensor([[3]]), None, (1, 3), 4, backend="torch")
layout.pack(torch.zeros(1, 3), backend="torch")
torch.compile(layout.pack, backend="eager", fullgraph=True)(torch.zeros(1, 3))
assert "numba" not in sys.modules
alignpack.packed_layout(torch.tensor([[3]]), None, (1, 3), 4)
assert "numba" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
