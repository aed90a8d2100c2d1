"""Checking one law on one target: how many examples, how long, which edges, and the smallest case that breaks it."""

import math
import re
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import torch
from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase

from alignpack_fuzz import edges
from alignpack_fuzz.laws import Law
from alignpack_fuzz.targets import Target

ANY = tuple(hypothesis.HealthCheck)


@dataclass
class Run:
    """What happened when a law was checked.

    Attributes:
        seconds: in the law and in drawing cases for it.
        edges: how many examples met each edge.
        case: the smallest case that breaks the law, or None.
        error: what the law raised on it.
        found_after: the number of the first example that broke it.
    """

    law: Law
    target: Target
    examples: int = 0
    seconds: float = 0.0
    edges: Counter[str] = field(default_factory=Counter)
    case: Any = None
    error: BaseException | None = None
    found_after: int | None = None

    def add(self, later: "Run") -> None:
        """Add the result of a later run of the same law."""
        if self.found_after is None and later.found_after is not None:
            self.found_after = self.examples + later.found_after
        self.examples += later.examples
        self.seconds += later.seconds
        self.edges += later.edges
        self.case, self.error = later.case, later.error


class TimeIsUp(BaseException):
    """The time of a run is over."""


def check(
    law: Law,
    target: Target,
    *,
    examples: int,
    seed: int,
    database: Path | None = None,
    shrink: bool = True,
    until: float = math.inf,
) -> Run:
    """Check a law on a number of cases, or until `time.monotonic()` reaches `until`, and shrink the first that breaks it.

    Args:
        law: the law.
        target: the implementation.
        examples: the number of cases, at most.
        seed: of the cases; the same seed gives the same cases with the same version of Hypothesis.
        database: the folder where cases that break a law are kept, to be tried first next time.
        shrink: whether to look for the smallest such case.
        until: when to stop.
    """
    run = Run(law, target)

    def holds(case: Any) -> None:
        if run.error is None:
            if time.monotonic() >= until:
                raise TimeIsUp
            run.examples += 1
            run.edges.update(edges.met(case))
        try:
            law.check(target, case)
        except Exception as error:  # any unexpected exception is a find
            run.case, run.error = case, error
            run.found_after = run.found_after or run.examples
            raise

    # Hypothesis tells tests apart by their source, which is the same for all laws, so each gets its own folder.
    folder = re.sub(r"\W+", "_", f"{law.name} {target.name}")
    kept: ExampleDatabase | None = None if database is None else DirectoryBasedExampleDatabase(database / folder)
    phases = set(hypothesis.Phase) - {hypothesis.Phase.explain}
    if not shrink:
        phases -= {hypothesis.Phase.shrink}
    settings = hypothesis.settings(
        max_examples=examples,
        database=kept,
        derandomize=False,
        deadline=None,
        phases=phases,
        suppress_health_check=ANY,
        report_multiple_bugs=False,
    )
    # The settings last: `seed` takes the database out of those that it finds.
    test = settings(hypothesis.seed(seed)(hypothesis.given(case=law.cases)(holds)))
    start = time.monotonic()
    try:
        with target.active(), poisoned():
            test()
    except TimeIsUp:
        pass
    except Exception as error:
        if run.error is None:  # not the law's, so the harness's own
            raise
        if isinstance(error, hypothesis.errors.Flaky):
            run.error = AssertionError(f"the same case does not always break it: {run.error}")
    finally:
        run.seconds = time.monotonic() - start
    return run


@contextmanager
def poisoned() -> Iterator[None]:
    """Fill fresh memory of PyTorch with NaN, or the largest integer, so that a slot that was never written shows."""
    deterministic: Any = torch.utils.deterministic  # its one switch is not typed
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    filled = deterministic.fill_uninitialized_memory
    # This mode is what fills memory; a target may use operations that it warns about.
    torch.use_deterministic_algorithms(True, warn_only=True)
    deterministic.fill_uninitialized_memory = True
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*does not have a deterministic implementation.*")
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        deterministic.fill_uninitialized_memory = filled
