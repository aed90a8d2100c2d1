"""Where the numba backend runs, and what is taken where it does not; Numba is loaded by the call that needs it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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
    reason = _reason(f"import sys; sys.modules[{missing!r}] = None")
    assert reason.startswith("numba cannot be imported: ")
    assert missing in reason


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["1", "", "false", "0"])
def test_numba_reads_its_environment_itself(setting: str) -> None:
    """What Numba reads as off is off."""
    assert _reason(NUMBA_DISABLE_JIT=setting).startswith("Numba may not compile: " if setting == "1" else "None")


@pytest.mark.slow
def test_where_numba_may_not_compile_another_backend_is_taken(tmp_path: Path) -> None:
    assert _reason("import numba; numba.config.DISABLE_JIT = 1").startswith("Numba may not compile: ")
    (tmp_path / ".numba_config.yaml").write_text("disable_jit: 1")
    assert _reason(folder=tmp_path).startswith("Numba may not compile: ")


def _reason(first: str = "", folder: Path | None = None, **environment: str) -> str:
    """Why `numba` does not run in a new process, which packs."""
    program = f"""{first}
import torch, alignpack
layout = alignpack.packed_layout(torch.tensor([[3]]), None, (1, 3), 4)
assert layout.pack(torch.ones(1, 3)).tolist() == [[1, 1, 1, 0]]
print(alignpack.backends()["cpu"]["numba"])
"""
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()[-1]


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
