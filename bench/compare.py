"""This run against a stored one, by ratios: a time means nothing on another day, a ratio within one run does.

A figure has got worse when its ratio is more than 15 % worse and the quartiles over rounds of the two runs do not overlap:
a change smaller than the scatter within one run cannot be seen. Memory and other figures without quartiles are judged by the
15 % alone. Milliseconds are judged by their targets only: they differ from machine to machine.
"""

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.report import Line, read, table

TOLERANCE = 0.15

Verdict = Literal["worse", "missing", "unclear", "same", "better", "new"]
FAILING: tuple[Verdict, ...] = ("worse", "missing")


@dataclass(frozen=True)
class Change:
    """One figure in two runs; `worse_by` is 0.2 where alignpack takes 1.2 times as long, held against the same."""

    verdict: Verdict
    key: tuple[str, str, str]
    before: Line | None
    after: Line | None
    worse_by: float = 0.0

    def cells(self) -> tuple[str, ...]:
        """The change in a table."""
        figures = ("" if line is None else f"{line.measured:.3g}" for line in (self.before, self.after))
        return (*self.key, *figures, f"{self.worse_by:+.0%}" if self.before and self.after else "", self.verdict)


def compare(stored: Iterable[Line], current: Iterable[Line]) -> list[Change]:
    """What became of each figure, those that fail first."""
    before = {line.key: line for line in stored if line.kind != "ms"}
    after = {line.key: line for line in current if line.kind != "ms"}
    changes = [
        _change(before[key], after[key]) if key in after else Change("missing", key, before[key], None)
        for key in before
    ]
    changes += [Change("new", key, None, line) for key, line in after.items() if key not in before]
    return sorted(changes, key=lambda change: change.verdict not in FAILING)


def failed(changes: Iterable[Change]) -> bool:
    """Whether any figure got worse or was not measured."""
    return any(change.verdict in FAILING for change in changes)


def describe(changes: Iterable[Change]) -> str:
    """The changes as a Markdown table."""
    return table(
        ("case", "backend", "against", "before", "now", "worse by", "verdict"), (change.cells() for change in changes)
    )


def _change(before: Line, after: Line) -> Change:
    worse_by = _cost(after, after.measured) / _cost(before, before.measured) - 1
    verdict: Verdict = "same"
    if worse_by > TOLERANCE:
        verdict = "unclear" if _overlap(before, after) else "worse"
    elif worse_by < -TOLERANCE:
        verdict = "better"
    return Change(verdict, after.key, before, after, worse_by)


def _overlap(before: Line, after: Line) -> bool:
    if before.quartiles is None or after.quartiles is None:
        return False
    worst_before = _cost(before, before.quartiles[1])
    best_after = _cost(after, after.quartiles[0])
    return best_after <= worst_before


def _cost(line: Line, figure: float) -> float:
    """More is worse."""
    return 1 / figure if line.kind == "speed" else figure


def main(arguments: list[str] | None = None) -> int:
    """Compare two result files; 1 when a figure got worse."""
    parser = argparse.ArgumentParser(description="Compare two result files by their ratios.")
    parser.add_argument("stored", type=Path)
    parser.add_argument("current", type=Path)
    given = parser.parse_args(arguments)
    changes = compare(read(given.stored)[1], read(given.current)[1])
    print(describe(changes), end="")
    return int(failed(changes))


if __name__ == "__main__":
    sys.exit(main())
