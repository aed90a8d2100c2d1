"""Puts the stored results into the documents, between markers; no figure there is written by hand.

`python -m bench.pages` does it from `bench/results/`; `make bench` does it after measuring.
"""

import re
from pathlib import Path

from bench import growth, plot, report
from bench.report import Line

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"
PAGES = (ROOT / "README.md", ROOT / "docs" / "performance.md")
DRAWN = "slots"

Row = tuple[str, str]
"""Case, and what alignpack is held against."""

SUMMARY: tuple[Row, ...] = (
    ("layout, 8 x 8192, 64 documents a row", "loop"),
    ("pack, [4, 8192, 1024] bfloat16", "clone"),
    ("pack + backward, [4, 8192, 1024] bfloat16", "composed"),
    ("pack, [1, 64, 8] float32", "add"),
)
COPY: tuple[Row, ...] = (
    ("pack, [4, 8192, 1024] bfloat16", "clone"),
    ("restore, [4, 8192, 1024] bfloat16", "clone"),
    ("pack + backward, [4, 8192, 1024] bfloat16", "two clones"),
    ("restore + backward, [4, 8192, 1024] bfloat16", "two clones"),
    ("pack, [8, 8192] int64", "copy"),
    ("pack, [1, 512, 64] float32", "clone"),
    ("pack, [1, 64, 8] float32", "add"),
)
RIVALS: tuple[Row, ...] = (
    ("layout, 8 x 8192, 64 documents a row", "loop"),
    ("layout, 8 x 8192, 512 documents a row", "loop"),
    ("pack, [4, 8192, 1024] bfloat16", "composed"),
    ("pack, [4, 8192, 1024] bfloat16", "compiled"),
    ("pack + backward, [4, 8192, 1024] bfloat16", "composed"),
    ("pack, [8, 8192] int64", "composed"),
    ("pack_batch, 3 of [8, 8192]", "composed"),
    ("pack, [1, 64, 8] float32", "composed"),
    ("groups of 4, 8 x 8192", "composed"),
    ("shift, 8 x 8192", "composed"),
)


def fill_markers(text: str, contents: dict[str, str]) -> str:
    """Replace what stands between `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`.

    Raises:
        KeyError: a marker names nothing that there is.
    """
    return re.sub(
        r"(<!-- bench:(\S+) -->\n).*?(<!-- /bench:\2 -->)",
        lambda found: f"{found[1]}\n{contents[found[2]]}\n{found[3]}",
        text,
        flags=re.DOTALL,
    )


def contents(results: Path = RESULTS) -> dict[str, str]:
    """What each marker stands for."""
    facts, lines = report.read(results / "cpu.json")
    series = growth.read(results / "growth.json")
    return {
        "summary": _chosen(SUMMARY, lines),
        "copy": _chosen(COPY, lines),
        "rivals": _chosen(RIVALS, lines),
        "missed": report.markdown(line for line in lines if line.met is False),
        "growth": growth.worst_rises(series),
        "start": report.markdown(report.read(results / "start.json")[1]),
        "environment": "".join(f"- {name}: {fact}\n" for name, fact in facts.items()),
    }


def refresh() -> None:
    """Write the plot, the tables of growth, and the generated parts of the documents."""
    made = contents()
    series = growth.read(RESULTS / "growth.json")
    tables = [growth.markdown(axis, series) for axis in dict.fromkeys(one.axis for one in series)]
    (RESULTS / "growth.md").write_text("\n".join(tables), encoding="utf-8")
    plot.draw([one for one in series if one.axis == DRAWN], RESULTS / "cpu.svg")
    for page in PAGES:
        page.write_text(fill_markers(page.read_text(encoding="utf-8"), made), encoding="utf-8")


def _chosen(rows: tuple[Row, ...], lines: list[Line]) -> str:
    by_key = {line.key: line for line in lines}
    backends = list(dict.fromkeys(line.backend for line in lines if line.backend != "any"))
    cells = []
    for case, against in rows:
        own = [by_key.get((case, backend, against)) for backend in backends]
        cells.append((case, against, *("" if line is None else _in_words(line) for line in own)))
    return report.table(("", "against", *backends), cells)


def _in_words(line: Line) -> str:
    return f"{line.measured:.3g} times {'as fast' if line.kind == 'speed' else 'its time'}"


if __name__ == "__main__":
    refresh()
