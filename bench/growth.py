"""Is a cost linear? The criterion, and the axes along which it is asked.

Along an axis the time of alignpack is fitted by a + b * size + c * limit with no coefficient below zero: a call's own cost, a cost
per unit of size, and the cost of the limit at the same size, which carries what caches and page faults do to any
program. The cost is linear and has no cliff where every measured time is within a factor `TOLERANCE` of the fit. A time that grows with
the square leaves it after a few doublings; so does a step to twice the cost.
"""

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

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
        """The largest factor between a measured time and the fit."""
        return worst_factor(self.points)

    @property
    def linear(self) -> bool:
        """Whether the criterion holds."""
        return self.worst() <= TOLERANCE


def worst_factor(points: Sequence[Point]) -> float:
    """The largest factor, 1 or more, by which a time lies above or below the best fit."""
    seconds = np.array([point.seconds for point in points])
    terms = np.array([[1.0, point.size, point.limit] for point in points])
    relative = terms / seconds[:, None]
    best, fitted = np.inf, None
    # Non-negative least squares of so few terms: the best of all subsets whose solution has no negative coefficient.
    for count in (1, 2, 3):
        for subset in itertools.combinations(range(3), count):
            chosen = relative[:, subset]
            scale = np.abs(chosen).max(axis=0)
            solution = np.linalg.lstsq(chosen / scale, np.ones(len(points)), rcond=None)[0]
            predicted = (chosen / scale) @ solution
            error = float(np.square(predicted - 1).sum())
            if (solution >= 0).all() and (predicted > 0).all() and error < best:
                best, fitted = error, predicted
    if fitted is None:
        return float("inf")
    return float(np.maximum(fitted, 1 / fitted).max())


def markdown(axis: str, series: Iterable[Series]) -> str:
    """All series along one axis: milliseconds, and the limit's in brackets; the last row has the worst factor to the fit."""
    own = [one for one in series if one.axis == axis]
    columns = (axis, *(f"{one.operation}, {one.backend} ({one.limit})" for one in own))
    rows = [
        (
            str(points[0].size),
            *(f"{1000 * point.seconds:.3g} ({1000 * point.limit:.3g})" for point in points),
        )
        for points in zip(*(one.points for one in own), strict=True)
    ]
    return table(columns, [*rows, ("worst factor to the fit", *(f"{one.worst():.2f}" for one in own))])


def write(series: Iterable[Series], path: Path) -> None:
    """Store the series as JSON."""
    path.parent.mkdir(exist_ok=True)
    content = {"environment": environment(), "series": [asdict(one) for one in series]}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read(path: Path) -> list[Series]:
    """The series that `write` stored."""
    stored = json.loads(path.read_text(encoding="utf-8"))["series"]
    return [Series(**one | {"points": tuple(Point(**point) for point in one["points"])}) for one in stored]
