"""Every law of the fuzz harness, on the kernels."""

from pathlib import Path

import pytest

from alignpack_fuzz import __main__ as command
from alignpack_fuzz.checking import check
from alignpack_fuzz.laws import LAWS, Law
from alignpack_fuzz.simulator import simulated_target


@pytest.mark.parametrize("law", LAWS.values(), ids=lambda law: law.name)
def test_the_kernels_keep_every_law(law: Law) -> None:
    run = check(law, simulated_target(), examples=10, seed=0)
    if run.error is not None:
        raise run.error
    assert run.examples > 0


def test_the_command_takes_the_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--laws", "values_are_moved", "--examples", "3", "--database", str(tmp_path)]
    assert command.main(["--target", "alignpack:backend=numba-sim", *options]) == 0
    assert "alignpack:backend=numba-sim: 1 laws" in capsys.readouterr().out
