"""Every Python block of the documents runs: sessions as doctests, plain code as a program, in order, one namespace each."""

import doctest
import re
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_blocks_run(document: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = document.read_text()
    namespace: dict[str, Any] = {}
    for block in BLOCK.finditer(text):
        code, line = block[1], text.count("\n", 0, block.start()) + 1
        if ">>>" in code:
            parsed = doctest.DocTestParser().get_doctest(code, namespace, document.name, str(document), line)
            report: list[str] = []
            runner = doctest.DocTestRunner(verbose=False)
            runner.run(parsed, out=report.append, clear_globs=False)
            assert runner.summarize(verbose=False).failed == 0, "".join(report)
            namespace |= parsed.globs
        else:
            # The same number of lines in front, so that a traceback points into the document.
            exec(compile("\n" * line + code, str(document), "exec"), namespace)  # noqa: S102 - that is the test


def test_the_documents_show_code() -> None:
    shown = {document.name for document in DOCUMENTS if BLOCK.search(document.read_text())}
    assert {"README.md", "contract.md"} <= shown


def test_links_inside_the_repository_lead_somewhere() -> None:
    for document in [*DOCUMENTS, ROOT / "CONTRIBUTING.md", ROOT / "tests" / "conformance" / "README.md"]:
        for target in re.findall(r"\]\((?!https?://)([^)#]+)[^)]*\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
