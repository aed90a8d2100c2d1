"""Is a cost linear? The criterion, and the axes along which it is asked.

A cost is linear and has no cliff where, from any size to any larger one, the cost per unit of size rises at most by the
factor `TOLERANCE` more than the limit's does. A call's own cost makes it fall; a power of the size above 1 makes it rise in
the end, slowly or fast, and a step makes it rise where it is. What caches and page faults do to any program the limit
shows; as it moves other bytes than alignpack, its rise may come one size earlier or later.
"""

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.report import environment, table

TOLERANCE = 1.35


@dataclass(frozen=True)
class Point:
    """Median seconds at one size of alignpack, of its limit, and of what people write, where that was timed."""

    size: int
    seconds: float
    limit: float
    rival: float | None = None


@dataclass(frozen=True)
class Series:
    """One operation of one backend along one axis."""

    axis: str
    operation: str
    backend: str
    limit: str
    points: tuple[Point, ...]
    rival: str | None = None

    def worst(self) -> float:
        """The largest rise of the cost per unit, see `worst_rise`."""
        return worst_rise(self.points)

    @property
    def linear(self) -> bool:
        """Whether the criterion holds."""
        return self.worst() <= TOLERANCE


def worst_rise(points: Sequence[Point]) -> float:
    """The factor by which the cost per unit rises most, from one size to a larger one, beyond the limit's rise thereabouts."""
    own = [point.seconds / point.size for point in points]
    limits = [point.limit / point.size for point in points]
    return max(
        own[last] / own[first] / max(1.0, _rise(limits[max(0, first - 1) : last + 2]))
        for first, last in itertools.combinations(range(len(points)), 2)
    )


def _rise(costs: Sequence[float]) -> float:
    """The largest factor from one to a later one."""
    return max(later / earlier for earlier, later in itertools.combinations(costs, 2))


def markdown(axis: str, series: Iterable[Series]) -> str:
    """All series along one axis: milliseconds, and the limit's in brackets; the last row has the worst rise of the cost per unit."""
    own = [one for one in series if one.axis == axis]
    columns = (axis, *(f"{one.operation}, {one.backend} ({one.limit})" for one in own))
    rows = [
        (
            str(points[0].size),
            *(f"{1000 * point.seconds:.3g} ({1000 * point.limit:.3g})" for point in points),
        )
        for points in zip(*(one.points for one in own), strict=True)
    ]
    return table(columns, [*rows, ("worst rise of the cost per unit", *(f"{one.worst():.2f}" for one in own))])


def worst_rises(series: Iterable[Series]) -> str:
    """One row for each series: its axis, its operation, and the worst rise of the cost per unit."""
    cells = [
        (
            one.axis,
            f"{one.points[0].size} to {one.points[-1].size}",
            f"{one.operation}, {one.backend}",
            f"{one.worst():.2f}",
        )
        for one in series
    ]
    return table(("axis", "sizes", "operation", "worst rise of the cost per unit"), cells)


def write(series: Iterable[Series], path: Path) -> None:
    """Store the series as JSON."""
    path.parent.mkdir(exist_ok=True)
    content = {"environment": environment(), "series": [asdict(one) for one in series]}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read(path: Path) -> list[Series]:
    """The series that `write` stored."""
    stored = json.loads(path.read_text(encoding="utf-8"))["series"]
    return [Series(**one | {"points": tuple(Point(**point) for point in one["points"])}) for one in stored]
