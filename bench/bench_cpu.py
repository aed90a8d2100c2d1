"""Speed on the CPU, as ratios within one run: alignpack against what people write, and against what memory allows.

`make bench` runs it. Without `--benchmark-enable`, as in CI (`make bench-quick`), small sizes show that the candidates agree; nothing
is timed. `bench/measure.py` says how times are taken.
"""

import gc

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from alignpack._backends import ENVIRONMENT_VARIABLE, BackendName
from bench.cases import CASES, RUNNING, Case
from bench.measure import BURST, burst_times, calls_within, peak_bytes
from bench.report import Line, markdown
from bench.workloads import Contest

SUITE = "cpu"

# PyTorch's own, when Inductor is first used.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")


@pytest.mark.parametrize("backend", RUNNING)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cpu(
    case: Case, backend: BackendName, benchmark: BenchmarkFixture, lines: list[Line], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, backend)  # what a layout derives takes no backend by name
    contest = case.prepare(case.sizes if benchmark.enabled else case.sizes.small(), backend)
    contest.check()
    # The plugin's own table shows how alignpack's time varies; the ratios come from the bursts below.
    iterations = calls_within(contest.alignpack, BURST) if benchmark.enabled else 1
    benchmark.pedantic(contest.alignpack, rounds=5, iterations=iterations)  # type: ignore[no-untyped-call]
    if not benchmark.enabled:
        return
    own = [*_times(case, backend, contest), _memory(case, backend, contest)]
    lines.extend(own)
    benchmark.extra_info["ratios"] = {line.against: line.measured for line in own}
    del contest
    gc.collect()  # gigabytes, which the next case needs
    if missed := [line for line in own if line.met is False]:
        pytest.fail(f"missed targets:\n{markdown(missed)}", pytrace=False)


def _times(case: Case, backend: BackendName, contest: Contest) -> list[Line]:
    candidates = contest.candidates()
    timed = {name: candidates[name] for name in ("alignpack", *case.against) if name in candidates}
    times = burst_times(timed)
    mine = times.pop("alignpack")
    targets = case.targets.get(backend, {})
    own = []
    for name, other in times.items():
        first, third = mine.quartiles_over(other)
        ratio = mine.median / other.median
        rival = name in contest.rivals
        own.append(
            Line(
                SUITE,
                case.name,
                backend,
                name,
                1 / ratio if rival else ratio,
                "speed" if rival else "time",
                targets.get(name),
                (mine.median, other.median),
                (1 / first, 1 / third) if rival else (first, third),
            )
        )
    return own


def _memory(case: Case, backend: BackendName, contest: Contest) -> Line:
    """Peak of the memory that a call takes, as a multiple of what it gives back."""
    peak = peak_bytes(contest.alignpack) / sum(result.nbytes for result in contest.alignpack())
    return Line(SUITE, case.name, backend, "memory of the results", peak, "memory", case.memory)
