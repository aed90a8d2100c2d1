"""Collects what the benches measure; prints, writes and compares it when the run ends."""

from pathlib import Path

import pytest

from bench import growth, pages, report
from bench.compare import compare, describe, failed
from bench.growth import Series
from bench.peers import without_compiler
from bench.report import Line

LINES = pytest.StashKey[list[Line]]()
SERIES = pytest.StashKey[list[Series]]()
STORED = pytest.StashKey[list[Line]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--compare",
        type=Path,
        metavar="FILE",
        help="fail when a ratio is more than 15 %% worse than in this result file",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LINES] = []
    config.stash[SERIES] = []
    # Read now: the file may be the one that this run replaces.
    if stored := config.getoption("--compare", default=None):
        config.stash[STORED] = report.read(stored)[1]


@pytest.fixture
def lines(pytestconfig: pytest.Config) -> list[Line]:
    """The figures of this run so far; a bench appends its own."""
    return pytestconfig.stash[LINES]


@pytest.fixture
def series(pytestconfig: pytest.Config) -> list[Series]:
    """The growth of this run so far; a bench appends its own."""
    return pytestconfig.stash[SERIES]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    stored, lines = session.config.stash.get(STORED, None), session.config.stash[LINES]
    if stored is not None and failed(compare(stored, lines)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if reason := without_compiler():
        terminalreporter.write_line(reason)
    lines, series = config.stash[LINES], config.stash[SERIES]
    if not lines and not series:
        return
    terminalreporter.section("alignpack benches")
    if lines:
        terminalreporter.write(report.markdown(lines) + "\n")
    for axis in dict.fromkeys(one.axis for one in series):
        terminalreporter.write(growth.markdown(axis, series) + "\n")
    if (stored := config.stash.get(STORED, None)) is not None:
        terminalreporter.section("against the stored run")
        terminalreporter.write(describe(compare(stored, lines)))
    # A part of the suite must not replace the record of all of it.
    if config.option.keyword or any("::" in argument for argument in config.args):
        return
    for suite in dict.fromkeys(line.suite for line in lines):
        report.write(suite, [line for line in lines if line.suite == suite], pages.RESULTS)
    if series:
        growth.write(series, pages.RESULTS / "growth.json")
    pages.refresh()
    terminalreporter.write_line(f"written to {pages.RESULTS} and into the documents")
