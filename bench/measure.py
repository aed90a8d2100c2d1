"""Time by bursts, and peak memory.

Calls of one candidate follow each other in bursts of at least 10 ms, because a single call between other work measures
cold caches and a clock that is still ramping up. In every round each candidate has one burst, so that a change of the
machine's speed meets all of them; the median over rounds is reported. Only ratios of such medians from one run mean
anything.

`make bench` gives the whole process, and so every candidate, the same malloc settings,
`MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_MMAP_THRESHOLD_=33554432`: by default glibc gives freed memory back to the
system, and a fresh output pays its page faults again, or does not, at random. glibc takes no larger threshold, so
outputs of 32 MiB and more, those of `clone` included, still pay them unless `MALLOC_MMAP_MAX_=0` is set, too.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from torch.profiler import ProfilerActivity, profile

Candidate = Callable[[], object]

BURST = 0.010
"""Seconds that one candidate runs back to back, at least."""

ROUNDS = 15


def burst_medians(
    candidates: Mapping[str, Candidate], rounds: int = ROUNDS, seconds: float = BURST
) -> dict[str, float]:
    """Seconds per call of each candidate."""
    batches = {name: calls_within(candidate, seconds / 10) for name, candidate in candidates.items()}
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, candidate in candidates.items():
            times[name].append(_burst(candidate, batches[name], seconds))
    return {name: statistics.median(of_rounds) for name, of_rounds in times.items()}


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
    """Seconds per call over batches of calls until so many seconds have passed; the first batch is not timed."""
    _time(candidate, batch)
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
