"""The seeded faults: enough of them, for every law, and a run that says when one is missed (`make faults` runs all)."""

from dataclasses import replace

import pytest

from alignpack_fuzz.laws import LAWS
from tests.faults import FAULTS
from tests.faults import __main__ as command

QUICK = ("one_token_documents_merged", "fractions_are_cut", "backward_is_detached", "padding_added_to_slot_zero")


def test_every_law_has_a_fault_that_it_must_find() -> None:
    assert len(FAULTS) >= 50
    assert {name for fault in FAULTS.values() for name in fault.found_by} == set(LAWS)
    assert all(fault.sentence and fault.name == name for name, fault in FAULTS.items())


def test_core_faults_are_found_by_core_laws() -> None:
    groups = {(fault.group, LAWS[name].group) for fault in FAULTS.values() for name in fault.found_by}
    assert ("core", "strict") not in groups


def test_a_run_says_what_found_each(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "FAULTS", {name: FAULTS[name] for name in QUICK})
    assert command.main(["--seed", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4 faults, seed 1"
    assert [line.split()[:2] for line in lines[2:6]] == [[name, FAULTS[name].found_by[0]] for name in QUICK]
    assert lines[6].startswith("4 of 4 faults found in ")


def test_a_fault_that_is_missed_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    no_fault = replace(FAULTS[QUICK[0]], name="nothing_wrong", wrap=lambda target: target)
    monkeypatch.setattr(command, "FAULTS", {"nothing_wrong": no_fault})
    assert command.main(["--seed", "1", "--examples", "3"]) == 1
    assert "nothing_wrong  NOT FOUND: " in capsys.readouterr().out
