"""No conformance case is forgotten: each has a test or stands in the list of what is pending."""

import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent

# Not yet shown, and why. A case leaves this list when its test arrives.
PENDING = {
    "G1": "needs a GPU",
    "H3": "needs a GPU",
    "H9": "needs memory behind an output: tests/backends/numba_cuda/simulator shows it of the kernels for GPUs",
}


def test_every_case_is_tested_or_pending() -> None:
    listed = re.findall(r"^\| ([A-Z]\d+) \|", (FOLDER / "README.md").read_text(), flags=re.MULTILINE)
    sources = "".join(path.read_text() for path in FOLDER.glob("test_*.py"))
    marks = re.findall(r"@pytest\.mark\.case\((.*?)\)", sources)
    tested = re.findall(r'"(\w+)"', " ".join(marks))
    assert len(listed) >= 34
    assert len(listed) == len(set(listed))
    assert sorted([*set(tested), *PENDING]) == sorted(listed)


def test_layout_corpus_is_complete() -> None:
    cases = json.loads((FOLDER / "layouts.json").read_text())
    ids = [case["id"] for case in cases]
    assert len(ids) >= 36
    assert len(set(ids)) == len(ids)
    assert all(("expect" in case) != ("error" in case) for case in cases)


@pytest.mark.slow
def test_a_skipped_case_fails(pytester: pytest.Pytester) -> None:
    pytester.makeconftest((FOLDER / "conftest.py").read_text())
    pytester.makepyfile("import pytest\n\ndef test_case():\n    pytest.skip('no reason')")
    pytester.runpytest("-p", "no:cacheprovider").assert_outcomes(failed=1)
