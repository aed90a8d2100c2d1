"""Collects the ratios that the benches measure; prints and writes them when the run ends."""

from pathlib import Path

import pytest

from bench.report import Line, markdown, write

RESULTS = Path(__file__).parent / "results"
LINES = pytest.StashKey[list[Line]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LINES] = []


@pytest.fixture
def lines(pytestconfig: pytest.Config) -> list[Line]:
    """The lines of this run so far; a bench appends its own."""
    return pytestconfig.stash[LINES]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not (lines := config.stash[LINES]):
        return
    terminalreporter.section("alignpack benches")
    terminalreporter.write(markdown(lines))
    # A part of the suite must not replace the record of all of it.
    if config.option.keyword or config.option.markexpr or any("::" in argument for argument in config.args):
        return
    write(lines, RESULTS)
    terminalreporter.write_line(f"written to {RESULTS}")
