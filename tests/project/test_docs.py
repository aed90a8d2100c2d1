"""Every Python block of the documents runs, and links lead somewhere."""

import re
from pathlib import Path

import pytest

from tests.documents import BLOCK, DOCUMENTS, FRAMEWORKS, run_blocks
from tests.paths import ROOT


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_blocks_run(document: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    run_blocks(document)


def test_the_documents_show_code() -> None:
    shown = {document.name for document in DOCUMENTS if BLOCK.search(document.read_text())}
    assert {"README.md", "contract.md"} <= shown


def test_links_inside_the_repository_lead_somewhere() -> None:
    others = [ROOT / "CONTRIBUTING.md", ROOT / "tests" / "conformance" / "README.md"]
    for document in [*DOCUMENTS, *(ROOT / "docs" / name for name in FRAMEWORKS), *others]:
        for target in re.findall(r"\]\((?!https?://)([^)#]+)[^)]*\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
