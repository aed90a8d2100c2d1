"""The register of conformance cases, and the rule that none is skipped."""

from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A case that was not run has shown nothing: report it as a failure."""
    report = yield
    if report.skipped:
        report.outcome = "failed"
        report.longrepr = f"a conformance case may not be skipped: {report.longrepr}"
    return report


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker under which a test registers its cases."""
    config.addinivalue_line("markers", "case(*ids): the conformance cases that this test shows")
