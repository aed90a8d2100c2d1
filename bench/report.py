"""The result of a run: one line per ratio, as a table and as JSON."""

import datetime
import json
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Line:
    """One ratio.

    Attributes:
        suite: the bench file that measured it; it names the files of the result.
        against: what alignpack is held against.
        measured: how many times as fast as `against` alignpack is, or how many times its time or memory it takes.
        faster: whether it is the former.
        target: the least `measured` that is good if `faster`, else the most; None where it is reported, not judged.
        seconds: medians per call of alignpack and of `against`; None for ratios of memory.
    """

    suite: str
    case: str
    backend: str
    against: str
    measured: float
    faster: bool
    target: float | None = None
    seconds: tuple[float, float] | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target was met; None without one."""
        if self.target is None:
            return None
        return self.measured >= self.target if self.faster else self.measured <= self.target

    def cells(self) -> tuple[str, ...]:
        """The line in a table with the columns of `COLUMNS`."""
        mine, theirs = (f"{1000 * seconds:.3g}" for seconds in self.seconds) if self.seconds else ("", "")
        unit = "x speed" if self.faster else "x time" if self.seconds else "x"
        target = "" if self.target is None else f"{'>=' if self.faster else '<='} {self.target:g}{unit}"
        met = {None: "", True: "yes", False: "**no**"}[self.met]
        return self.case, self.backend, mine, self.against, theirs, f"{self.measured:.3g}{unit}", target, met


COLUMNS = ("case", "backend", "ms", "against", "its ms", "measured", "target", "met")


def markdown(lines: Iterable[Line]) -> str:
    """The lines as a Markdown table."""
    rows = [COLUMNS, *(line.cells() for line in lines)]
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


def write(lines: Iterable[Line], folder: Path) -> None:
    """Write `<suite>.md` and `<suite>.json` into the folder for each suite that has lines."""
    folder.mkdir(exist_ok=True)
    by_suite: dict[str, list[Line]] = {}
    for line in lines:
        by_suite.setdefault(line.suite, []).append(line)
    facts = environment()
    for suite, own in by_suite.items():
        listed = "\n".join(f"- {name}: {fact}" for name, fact in facts.items())
        Path(folder, f"{suite}.md").write_text(f"{markdown(own)}\n{listed}\n", encoding="utf-8")
        content = {"environment": facts, "lines": [{**asdict(line), "met": line.met} for line in own]}
        Path(folder, f"{suite}.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _cpu_model() -> str:
    try:
        described = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        described = []
    names = (line.partition(":")[2].strip() for line in described if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
