"""Running the Python blocks of a document: sessions as doctests, plain code as a program, in order, in one namespace."""

import doctest
import re
from pathlib import Path
from typing import Any

from tests.paths import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)

FRAMEWORKS = {"nemo.md"}
"""Documents about other frameworks, which `make interop` runs in environments of their own."""

DOCUMENTS = [
    ROOT / "README.md",
    *sorted(path for path in (ROOT / "docs").glob("*.md") if path.name not in FRAMEWORKS),
]


def run_blocks(document: Path) -> dict[str, Any]:
    """Run all blocks, and return what they defined."""
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
    return namespace
