"""`alignpack-fuzz` as a user runs it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from alignpack.context_parallel import gather_sequence
from alignpack_fuzz import __main__ as command
from alignpack_fuzz.lookup import find_target
from alignpack_fuzz.targets import BACKENDS, REFERENCE, ModuleTarget

FAULTY = """
import torch
from alignpack import packed_layout as right

class Layout:
    def __init__(self, layout):
        self._layout = layout
    def __getattr__(self, name):
        return getattr(self._layout, name)
    def pack(self, values, fill=0):
        packed = self._layout.pack(values, fill)
        return packed if len(packed) < 2 else packed[:1].expand(packed.shape).clone()

def packed_layout(*, seq_lens, seq_lens_padded, input_shape, alignment, minimum_length=0, length_multiple=None):
    return Layout(right(seq_lens, seq_lens_padded, input_shape, alignment, minimum_length, length_multiple=length_multiple))
"""


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    """A file as a framework's author has it, with a fault that needs two rows."""
    path = tmp_path / "framework.py"
    path.write_text(FAULTY)
    return path


def run(tmp_path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    report = tmp_path / "report.json"
    options = ["--report", str(report), "--database", str(tmp_path / "database")]
    return command.main([*options, *arguments]), json.loads(report.read_text())


def test_a_clean_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, report = run(tmp_path, "--laws", "fields_are_right,copies_are_equal", "--examples", "20", "--seed", "1")
    assert status == 0
    assert "2 laws hold, 0 are broken; 40 examples" in capsys.readouterr().out
    assert report["seed"] == 1
    assert set(report["versions"]) == {"alignpack", "torch", "numpy", "hypothesis", "python"}
    first, second = report["laws"]
    assert (first["law"], first["examples"], first["finding"]) == ("fields_are_right", 20, None)
    assert second["group"] == "strict"
    assert first["examples_per_second"] > 0
    assert first["edges"]["int64"] > 0


def test_a_finding_says_everything(tmp_path: Path, faulty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, report = run(tmp_path, "--target", str(faulty), "--laws", "values_are_moved", "--seed", "1")
    assert status == 1
    text = capsys.readouterr().out
    assert "breaks the law values_are_moved, found at example" in text
    assert "row 1 input " in text
    assert "AssertionError: pack: first difference at [1, 0" in text
    assert f"Again: alignpack-fuzz --target {faulty} --laws values_are_moved --seed 1" in text
    finding = report["laws"][0]["finding"]
    assert finding["conformance"]["expect"]["source_indices"]
    # The snippet is a test that fails where the law is broken.
    snippet = text.split("As a test:\n")[1].split("Again:")[0]
    snippet = "\n".join(line.removeprefix("    ") for line in snippet.splitlines())
    namespace: dict[str, Any] = {}
    exec(snippet, namespace)  # noqa: S102 - that is what it is for
    with pytest.raises(AssertionError, match="first difference"):
        namespace["test_values_are_moved"]()


def test_what_was_found_is_tried_first(tmp_path: Path, faulty: Path) -> None:
    arguments = ["--target", str(faulty), "--laws", "values_are_moved"]
    run(tmp_path, *arguments, "--seed", "1")
    _, report = run(tmp_path, *arguments, "--seed", "2")
    assert report["laws"][0]["finding"]["found_after"] == 1


def test_the_same_seed_finds_at_the_same_example(tmp_path: Path, faulty: Path) -> None:
    arguments = ["--target", str(faulty), "--laws", "values_are_moved", "--seed", "3"]
    folders = [tmp_path / "first", tmp_path / "second"]  # of separate databases
    for folder in folders:
        folder.mkdir()
    (_, first), (_, second) = (run(folder, *arguments) for folder in folders)
    assert first["laws"][0]["finding"] == second["laws"][0]["finding"]


def test_a_time_goes_round_until_it_is_up(tmp_path: Path) -> None:
    status, report = run(tmp_path, "--laws", "fields_are_right", "--examples", "5", "--minutes", "0.02")
    assert status == 0
    assert report["laws"][0]["examples"] > 5


def test_a_law_that_no_example_reached_does_not_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--laws", "fields_are_right,layouts_are_packed", "--minutes", "0.0000001"]
    status, report = run(tmp_path, *arguments)
    assert status == 0
    assert {law["examples"] for law in report["laws"]} == {0}
    assert "0 laws hold, 0 are broken, 2 were not reached; 0 examples" in capsys.readouterr().out


def test_an_interrupt_ends_with_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("alignpack_fuzz.checking.check", interrupted)
    status, report = run(tmp_path, "--laws", "core")
    assert status == 0
    assert {law["examples"] for law in report["laws"]} == {0}
    assert f"0 laws hold, 0 are broken, {len(report['laws'])} were not reached" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--laws", "corre"], "'corre' is neither a law nor a group; there are core, strict, fields_are_right"),
        (["--target", "no_such_module"], "there is no module no_such_module"),
        (["--target", "no_such_file.py"], "there is no file no_such_file.py"),
        (["--target", "json"], "json has no function packed_layout"),
        (["--target", "."], "'.' is not the name of a module, nor of a file that ends in .py"),
        (["--target", "../yours"], "'../yours' is not the name of a module, nor of a file that ends in .py"),
        (["--report", "no_such_folder/report.json"], "there is no folder no_such_folder for the report"),
        (["--report", "."], "alignpack-fuzz: . is a folder; name a file for the report"),
        (
            ["--target", "alignpack:backend=nothing"],
            "alignpack:backend=nothing is not one of alignpack:backend=numba, alignpack:backend=torch",
        ),
    ],
)
def test_wrong_usage(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(arguments) == 2
    assert message in capsys.readouterr().err


def test_wrong_options_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["--examples", "0"], "0 is less than 1"),
        (["--examples", "many"], "'many' is not a whole number"),
        (["--minutes", "0"], "0 is not a time: it must be above 0 and finite"),
        (["--minutes", "nan"], "nan is not a time: it must be above 0 and finite"),
        (["--minutes", "inf"], "inf is not a time: it must be above 0 and finite"),
        (["--minutes", "long"], "'long' is not a number"),
        (["--nothing"], "unrecognized arguments: --nothing"),
    ):
        with pytest.raises(SystemExit) as caught:
            command.main(arguments)
        assert caught.value.code == 2
        assert message in capsys.readouterr().err


def test_without_hypothesis_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert command.main([]) == 2
    assert "pip install 'alignpack[fuzz]'" in capsys.readouterr().err


@pytest.mark.slow
def test_it_runs_as_a_module(tmp_path: Path) -> None:
    command_line = [sys.executable, "-m", "alignpack_fuzz", "--laws", "fields_are_right", "--examples", "5"]
    done = subprocess.run(command_line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "1 laws hold" in done.stdout


def test_targets_are_found() -> None:
    assert find_target("reference") is REFERENCE
    for target in BACKENDS:
        assert find_target(target.name) is target
    anything = find_target("alignpack")
    assert isinstance(anything, ModuleTarget)
    # The law of gathers is skipped for a target without them.
    assert all(target.gather_sequence is gather_sequence for target in (anything, *BACKENDS))


def test_a_module_with_a_broken_import_is_no_missing_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_there.py").write_text("import nothing_that_exists")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="nothing_that_exists"):
        find_target("half_there")
