"""`bench/gpu_check.py` without a GPU: every part runs through, and one that fails takes no other with it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from alignpack._backends.numba_cuda import backend as numba_cuda
from alignpack_fuzz.lookup import load_file
from tests.paths import ROOT

SCRIPT = ROOT / "bench" / "gpu_check.py"


gpu_check = load_file(SCRIPT)


@pytest.mark.parametrize("name", gpu_check.parts())
def test_a_part(name: str) -> None:
    from bench.gpu.machine import Rehearsal

    facts = gpu_check.parts()[name](Rehearsal())
    assert json.loads(json.dumps(facts)) == facts


@pytest.mark.parametrize(
    "name",
    ["side_streams", "graphs", "graphs_after_warmup", "no_waiting", "every_word", "large_offsets", "laws", "moves"],
)
def test_a_part_sees_wrong_results(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.gpu.machine import Rehearsal

    right = numba_cuda.gather_into

    def wrong(out: torch.Tensor, values: torch.Tensor, index: torch.Tensor, words: tuple[int, ...]) -> None:
        right(out, values, index, words)
        if out.numel() and out.dtype != torch.complex128:
            out.view(-1)[-1:].view(torch.uint8).add_(1)

    monkeypatch.setattr(numba_cuda, "gather_into", wrong)
    with pytest.raises(AssertionError):
        gpu_check.parts()[name](Rehearsal())


@pytest.mark.slow
def test_the_script(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(SCRIPT), "--rehearse", "--out", str(tmp_path), "--only", "versions,repeatable"],
        capture_output=True,
        text=True,
        check=True,
    )
    results = json.loads(Path(tmp_path, "gpu_check.json").read_text())
    assert list(results) == ["versions", "repeatable"]
    assert all(result["passed"] for result in results.values())
    assert results["versions"]["facts"]["backends"]["cpu"]["torch"] is None
    assert "repeatable       yes" in run.stdout


@pytest.mark.slow
def test_a_part_that_fails_takes_no_other_with_it(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--out", str(tmp_path), "--only", "versions,graphs"]
    no_gpu = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    run = subprocess.run(command, env=no_gpu, capture_output=True, text=True, check=False)
    results = json.loads(Path(tmp_path, "gpu_check.json").read_text())
    assert run.returncode == 1
    assert [result["passed"] for result in results.values()] == [False, False]
    assert "graphs           NO" in run.stdout


@pytest.mark.slow
def test_the_torch_part_needs_no_numba_for_cuda() -> None:
    program = (
        "import sys; sys.modules['numba.cuda'] = None; import gpu_check; gpu_check.parts(); import bench.gpu.machine"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(SCRIPT.parent)])}
    environment.pop("NUMBA_ENABLE_CUDASIM")
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=60)


@pytest.mark.slow
def test_an_unknown_part(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, str(SCRIPT), "--only", "speed"], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "no such part: speed" in run.stderr
