"""The result of a run: one line per figure, as a table and as JSON."""

import datetime
import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

Kind = Literal["speed", "time", "memory", "ms"]
"""How many times as fast as the other; how many times its time; its memory; milliseconds."""

UNITS: Mapping[Kind, str] = {"speed": "x speed", "time": "x time", "memory": "x", "ms": " ms"}


@dataclass(frozen=True)
class Line:
    """One figure.

    Attributes:
        suite: the bench file that measured it; it names the files of the result.
        against: what alignpack is held against.
        measured: the figure, of the kind that `kind` says.
        target: the least that is good for "speed", the most for the others; None where it is reported, not judged.
        seconds: medians per call of alignpack and of `against`; None where nothing was timed.
        quartiles: first and third quartile over rounds of what `measured` is the middle of, the worse end last.
    """

    suite: str
    case: str
    backend: str
    against: str
    measured: float
    kind: Kind
    target: float | None = None
    seconds: tuple[float, float] | None = None
    quartiles: tuple[float, float] | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """What a line of another run must share to be about the same."""
        return self.case, self.backend, self.against

    @property
    def met(self) -> bool | None:
        """Whether the target was met; None without one."""
        if self.target is None:
            return None
        return self.measured >= self.target if self.kind == "speed" else self.measured <= self.target

    def cells(self) -> tuple[str, ...]:
        """The line in a table with the columns of `COLUMNS`."""
        mine, theirs = (f"{1000 * seconds:.3g}" for seconds in self.seconds) if self.seconds else ("", "")
        unit = UNITS[self.kind]
        target = "" if self.target is None else f"{'>=' if self.kind == 'speed' else '<='} {self.target:g}{unit}"
        met = {None: "", True: "yes", False: "**no**"}[self.met]
        return self.case, self.backend, mine, self.against, theirs, f"{self.measured:.3g}{unit}", target, met


COLUMNS = ("case", "backend", "ms", "against", "its ms", "measured", "target", "met")


def markdown(lines: Iterable[Line]) -> str:
    """The lines as a Markdown table."""
    return table(COLUMNS, (line.cells() for line in lines))


def table(columns: tuple[str, ...], cells: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table."""
    rows = [columns, *cells]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, tuple("-" * width for width in widths))
    return "".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |\n" for row in rows
    )


def environment() -> dict[str, str]:
    """What the figures depend on."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cpu": _cpu_model(),
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "malloc": " ".join(
            f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("MALLOC_")
        ),
    }


def write(suite: str, lines: Iterable[Line], folder: Path) -> None:
    """Write `<suite>.md` and `<suite>.json` into the folder."""
    folder.mkdir(exist_ok=True)
    own, facts = list(lines), environment()
    listed = "\n".join(f"- {name}: {fact}" for name, fact in facts.items())
    Path(folder, f"{suite}.md").write_text(f"{markdown(own)}\n{listed}\n", encoding="utf-8")
    content = {"environment": facts, "lines": [{**asdict(line), "met": line.met} for line in own]}
    Path(folder, f"{suite}.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read(path: Path) -> tuple[dict[str, str], list[Line]]:
    """The environment and the lines of a stored run."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return content["environment"], [_line(stored) for stored in content["lines"]]


def _line(stored: dict[str, Any]) -> Line:
    del stored["met"]  # follows from the others
    for name in ("seconds", "quartiles"):
        stored[name] = None if stored[name] is None else tuple(stored[name])
    return Line(**stored)


def _cpu_model() -> str:
    try:
        described = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        described = []
    names = (line.partition(":")[2].strip() for line in described if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
