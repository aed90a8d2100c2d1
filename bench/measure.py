"""Time by bursts, and peak memory.

Calls of one candidate follow each other in bursts of at least 10 ms, because a single call between other work measures
cold caches and a clock that is still ramping up. In every round each candidate has one burst, so that a change of the
machine's speed meets all of them; the median over rounds is reported. Only ratios of such medians from one run mean
anything.

`make bench` gives the whole process, and so every candidate, the same malloc settings,
`MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_MMAP_THRESHOLD_=33554432`: by default glibc gives freed memory back to the
system, and a fresh output pays its page faults again, or does not, at random. glibc takes no larger threshold, so
outputs of 32 MiB and more, those of `clone` included, are mapped afresh and pay them at every call. `docs/performance.md`
says what that means and why it is left so.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch.profiler import ProfilerActivity, profile

Candidate = Callable[[], object]

BURST = 0.010
"""Seconds that one candidate runs back to back, at least."""

ROUNDS = 15
ENOUGH_ROUNDS = 3
BUDGET = 3.0
"""Seconds after which a slow candidate has no more rounds than enough."""


@dataclass(frozen=True)
class Timing:
    """Seconds per call of one candidate in each round."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median over rounds."""
        return statistics.median(self.rounds)

    def quartiles_over(self, other: "Timing") -> tuple[float, float]:
        """First and third quartile of the ratios to another candidate, taken within each round that both had."""
        ratios = sorted(mine / theirs for mine, theirs in zip(self.rounds, other.rounds, strict=False))
        first, _, third = statistics.quantiles(ratios, n=4, method="inclusive")
        return first, third


def burst_times(
    candidates: Mapping[str, Candidate], rounds: int = ROUNDS, seconds: float = BURST, budget: float = BUDGET
) -> dict[str, Timing]:
    """The times of each candidate. A slow one stops when its budget is used up; round n is the same for all that had it."""
    batches = {name: calls_within(candidate, seconds / 10) for name, candidate in candidates.items()}
    times: dict[str, list[float]] = {name: [] for name in candidates}
    spent = dict.fromkeys(candidates, 0.0)
    for done in range(rounds):
        for name, candidate in candidates.items():
            if done >= ENOUGH_ROUNDS and spent[name] >= budget:
                continue
            start = time.perf_counter()
            times[name].append(_burst(candidate, batches[name], seconds))
            spent[name] += time.perf_counter() - start
    return {name: Timing(tuple(of_rounds)) for name, of_rounds in times.items()}


def peak_bytes(candidate: Candidate) -> int:
    """The most memory that PyTorch's allocators handed out at one time during the second call, in bytes."""
    candidate()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        candidate()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace.json")
        # The summary tables add up what each operator took; only the trace tells what was held at the same time.
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    held = peak = 0
    for event in sorted((event for event in events if event.get("name") == "[memory]"), key=lambda event: event["ts"]):
        held += event["args"]["Bytes"]
        peak = max(peak, held)
    return peak


def calls_within(candidate: Candidate, seconds: float) -> int:
    """How many calls take at least so long, a power of two; trying them is the warm-up, too."""
    calls = 1
    candidate()
    while _time(candidate, calls) < seconds:
        calls *= 2
    return calls


def _burst(candidate: Candidate, batch: int, seconds: float) -> float:
    """Seconds per call over batches of calls until `seconds` have passed.

    The first batch is not timed, unless one call is so long that it warms itself up.
    """
    first = _time(candidate, batch)
    if batch == 1 and first >= 10 * seconds:
        return first
    calls = 0
    elapsed = 0.0
    while elapsed < seconds:
        elapsed += _time(candidate, batch)
        calls += batch
    return elapsed / calls


def _time(candidate: Candidate, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        candidate()
    return time.perf_counter() - start
