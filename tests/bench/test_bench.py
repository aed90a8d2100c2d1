"""The benches' own code: measuring, judging, comparing, writing into documents. No speed is asserted here."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bench import pages, report
from bench.compare import Verdict, compare, failed, main
from bench.growth import Point, Series, worst_rise
from bench.measure import ENOUGH_ROUNDS, Timing, burst_times, peak_bytes
from bench.plot import draw
from bench.report import Line
from bench.workloads import Contest, Sizes

SPEED = Line("cpu", "pack", "torch", "composed", 2.0, "speed", 1.5)
TIME = Line("cpu", "pack", "torch", "clone", 1.2, "time", 1.25)


def test_a_rival_with_another_result_is_refused_by_name() -> None:
    ones = torch.ones(2)
    contest = Contest(lambda: (ones,), {"equal": lambda: (ones.clone(),), "wrong": lambda: (ones + 1e-6,)}, {})
    with pytest.raises(AssertionError, match="wrong"):
        contest.check()


def test_bits_of_every_rival_count_and_views_choose_what_is_compared() -> None:
    mine, theirs = torch.tensor([1, 2, 0]), torch.tensor([1, 2])
    contest = Contest(
        lambda: (mine,), {"short": lambda: (theirs,)}, {}, {"short": (lambda own: (own[0][:2],), lambda other: other)}
    )
    contest.check()
    theirs[0] = 3
    with pytest.raises(AssertionError, match="short"):
        contest.check()


def test_tables_fill_their_rows() -> None:
    lengths, spans = Sizes(3, 100, 7).tables()
    assert spans.sum(1).tolist() == [100] * 3
    assert bool(((lengths >= 1) & (lengths <= spans)).all())


def test_slow_candidates_stop_early_and_fast_ones_do_not() -> None:
    times = burst_times({"fast": lambda: None, "slow": lambda: time.sleep(0.1)}, rounds=6, seconds=0.001, budget=0.2)
    assert (len(times["fast"].rounds), len(times["slow"].rounds)) == (6, ENOUGH_ROUNDS)
    assert times["slow"].median >= 0.1 > times["fast"].median


def test_quartiles_are_of_ratios_within_rounds() -> None:
    mine, other = Timing((1.0, 2.0, 3.0, 4.0)), Timing((1.0, 1.0, 1.0, 1.0, 9.0))
    assert mine.quartiles_over(other) == (1.75, 3.25)


def test_peak_memory_counts_what_is_held_at_once() -> None:
    def two_at_once() -> torch.Tensor:
        return torch.ones(1000) + torch.ones(1000)

    assert peak_bytes(lambda: torch.ones(1000)) == 4000
    assert peak_bytes(two_at_once) == 3 * 4000


@pytest.mark.parametrize(
    ("line", "met"),
    [
        (SPEED, True),
        (replace(SPEED, measured=1.4), False),
        (TIME, True),
        (replace(TIME, measured=1.3), False),
        (replace(TIME, target=None), None),
    ],
)
def test_targets_are_a_least_speed_and_a_most_time(line: Line, met: bool | None) -> None:
    assert line.met is met
    assert line.cells()[-1] == {True: "yes", False: "**no**", None: ""}[met]


@pytest.mark.parametrize("line", [SPEED, TIME, replace(TIME, kind="memory")], ids=lambda line: line.kind)
@pytest.mark.parametrize(
    ("cost", "verdict"), [(0.8, "better"), (1.0, "same"), (1.14, "same"), (1.16, "worse")], ids=str
)
def test_more_than_fifteen_percent_fails(line: Line, cost: float, verdict: Verdict) -> None:
    now = replace(line, measured=line.measured / cost if line.kind == "speed" else line.measured * cost)
    (change,) = compare([line], [now])
    assert change.verdict == verdict
    assert change.worse_by == pytest.approx(cost - 1)
    assert failed([change]) is (verdict == "worse")


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ((1.1, 1.3), (1.45, 1.6), "worse"),
        ((1.1, 1.3), (1.25, 1.6), "unclear"),
        (None, (1.25, 1.6), "worse"),
    ],
)
def test_rounds_that_overlap_make_a_change_unclear(
    before: tuple[float, float] | None, after: tuple[float, float], verdict: Verdict
) -> None:
    stored, now = replace(TIME, quartiles=before), replace(TIME, measured=1.5, quartiles=after)
    assert compare([stored], [now])[0].verdict == verdict
    # The same for a speed, whose worse end is the lower one.
    invert = None if before is None else (1 / before[0], 1 / before[1])
    stored = replace(SPEED, measured=1 / 1.2, quartiles=invert)
    now = replace(SPEED, measured=1 / 1.5, quartiles=(1 / after[0], 1 / after[1]))
    assert compare([stored], [now])[0].verdict == verdict


def test_missing_figures_fail_new_ones_do_not_and_milliseconds_are_no_ratio() -> None:
    milliseconds = replace(TIME, case="import", kind="ms")
    changes = compare([SPEED, milliseconds], [TIME, replace(milliseconds, measured=99.0)])
    assert [(change.verdict, change.key) for change in changes] == [("missing", SPEED.key), ("new", TIME.key)]
    assert failed(changes)
    assert not failed(compare([TIME], [TIME, SPEED]))


@pytest.mark.slow
def test_two_result_files_are_compared_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report.write("before", [SPEED, TIME], tmp_path)
    report.write("after", [replace(SPEED, measured=1.0), TIME], tmp_path)
    assert report.read(tmp_path / "before.json")[1] == [SPEED, TIME]
    assert json.loads((tmp_path / "before.json").read_text())["lines"][0]["met"] is True
    assert main([str(tmp_path / "before.json"), str(tmp_path / "before.json")]) == 0
    assert main([str(tmp_path / "before.json"), str(tmp_path / "after.json")]) == 1
    assert "+100%" in capsys.readouterr().out


SIZES = tuple(2**power for power in range(14))


def _points(seconds: list[float], limits: list[float] | None = None) -> tuple[Point, ...]:
    limits = limits or [1.0] * len(SIZES)
    return tuple(Point(size, second, limit) for size, second, limit in zip(SIZES, seconds, limits, strict=True))


def test_lines_and_what_the_limit_does_too_are_linear() -> None:
    assert worst_rise(_points([0.3 * size for size in SIZES])) == pytest.approx(1)
    assert worst_rise(_points([50 + 0.3 * size for size in SIZES])) < 1
    # Beyond a cache everything costs twice as much: the limit shows it, if not at the same size, so the step is not ours.
    for size_of_the_cache in (50, 100, 200):
        limits = [size * (2.0 if size > 100 else 1.0) for size in SIZES]
        seconds = [size * (3.0 if size > size_of_the_cache else 1.5) for size in SIZES]
        assert worst_rise(_points(seconds, limits)) == pytest.approx(1)


@pytest.mark.parametrize(
    "cost",
    [
        lambda size: 100 + size**2,
        lambda size: size**1.5,
        lambda size: 10 + size**1.1,
        lambda size: 100 + size + 300 * (size > 16),
        lambda size: size * (1 + (size > 1000)),
    ],
    ids=["a square", "a power", "a slow power", "a step early", "a step late"],
)
def test_powers_and_cliffs_are_not_linear(cost: Callable[[int], float]) -> None:
    assert not Series("size", "pack", "torch", "clone", _points([float(cost(size)) for size in SIZES])).linear


def test_markers_are_filled_again_and_again() -> None:
    text = "a\n<!-- bench:one -->\nold\n<!-- /bench:one -->\nb\n"
    filled = pages.fill_markers(text, {"one": "| new |\n"})
    assert filled == "a\n<!-- bench:one -->\n\n| new |\n\n<!-- /bench:one -->\nb\n"
    assert pages.fill_markers(filled, {"one": "| new |\n"}) == filled
    with pytest.raises(KeyError, match="one"):
        pages.fill_markers(text, {})


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.name)
def test_the_documents_show_the_stored_results(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "<!-- bench:" in text
    assert pages.fill_markers(text, pages.contents()) == text, "run `make bench-pages`"


def test_the_plot_has_every_backend_and_the_limit(tmp_path: Path) -> None:
    series = [
        Series("slots", "pack", backend, "clone", (Point(1, 1.0, 0.5, 2.0), Point(10, 9.0, 5.0, 20.0)), "composed")
        for backend in ("numba", "torch")
    ]
    draw(series, tmp_path / "plot.svg")
    drawn = (tmp_path / "plot.svg").read_text()
    for word in ("numba", "torch", "limit (clone)", "by hand (composed)"):
        assert f"<!-- {word} -->" in drawn
