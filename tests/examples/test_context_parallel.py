"""The example of context parallelism: as one process, and under torchrun."""

import os
import subprocess
import sys

import pytest

from tests.paths import ROOT

pytestmark = pytest.mark.slow

EXAMPLE = ROOT / "examples" / "context_parallel.py"


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command, str(EXAMPLE)],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=False,
    )


def test_one_process() -> None:
    done = run()
    assert (done.returncode, done.stdout) == (0, "one process, 1650 gradients; start it with torchrun\n"), done.stderr


def test_ranks_take_the_step_of_one_process() -> None:
    # A free port of its own, so that launches at the same time do not meet.
    done = run("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3")
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()[-1]  # an older gloo greets first
    assert said.startswith("3 ranks took the step of one process: gradients of up to ")
