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

HIGHLIGHTS = (
    ("layout, 8 x 8192, 64 documents a row", "loop"),
    ("layout, 8 x 8192, 512 documents a row", "loop"),
    ("pack, [4, 8192, 1024] bfloat16", "composed"),
    ("pack, [4, 8192, 1024] bfloat16", "clone"),
    ("pack + backward, [4, 8192, 1024] bfloat16", "composed"),
    ("pack, [8, 8192] int64", "composed"),
    ("pack, [1, 64, 8] float32", "add"),
)
"""Case and what alignpack is held against: the lines that the README shows."""


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
    made = {
        "summary": _summary(lines),
        "cpu": report.markdown(lines),
        "start": report.markdown(report.read(results / "start.json")[1]),
        "environment": "".join(f"- {name}: {fact}\n" for name, fact in facts.items()),
    }
    for axis in dict.fromkeys(one.axis for one in series):
        made[f"growth-{axis.replace(' ', '-')}"] = growth.markdown(axis, series)
    return made


def refresh() -> None:
    """Write the plot and the generated parts of the documents."""
    made = contents()
    plot.draw([one for one in growth.read(RESULTS / "growth.json") if one.axis == DRAWN], RESULTS / "cpu.svg")
    for page in PAGES:
        page.write_text(fill_markers(page.read_text(encoding="utf-8"), made), encoding="utf-8")


def _summary(lines: list[Line]) -> str:
    by_key = {line.key: line for line in lines}
    backends = list(dict.fromkeys(line.backend for line in lines if line.backend != "any"))
    cells = []
    for case, against in HIGHLIGHTS:
        own = [by_key.get((case, backend, against)) for backend in backends]
        cells.append((case, against, *("" if line is None else _in_words(line) for line in own)))
    return report.table(("", "against", *backends), cells)


def _in_words(line: Line) -> str:
    return f"{line.measured:.3g} times {'as fast' if line.kind == 'speed' else 'its time'}"


if __name__ == "__main__":
    refresh()
