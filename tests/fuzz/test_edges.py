"""The strategies really draw the edges that they are there for."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

from alignpack._backends import torch_backend
from alignpack_fuzz import edges, strategies
from alignpack_fuzz.cases import Grouping, Shifting, Tables
from alignpack_fuzz.checking import check
from alignpack_fuzz.laws import LAWS
from alignpack_fuzz.lookup import find_target

EXAMPLES = 1000
LEAST = 10  # of these, each edge is met in one percent at least


def count(cases: st.SearchStrategy[Any]) -> Counter[str]:
    """How many of the examples meet each edge."""
    counts: Counter[str] = Counter()

    @hypothesis.seed(0)
    @hypothesis.settings(
        max_examples=EXAMPLES,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=cases)
    def draw(case: Any) -> None:
        counts.update(edges.met(case))

    draw()
    return counts


def rare(counts: Counter[str], names: Iterable[str]) -> dict[str, int]:
    return {name: counts[name] for name in names if counts[name] < LEAST}


@pytest.mark.slow
def test_tables_meet_their_edges() -> None:
    counts = count(strategies.tables())
    assert rare(counts, set(edges.TABLE_EDGES) - set(edges.ONLY_CORRUPTED)) == {}
    assert {name: counts[name] for name in edges.ONLY_CORRUPTED if counts[name]} == {}


@pytest.mark.slow
def test_corrupted_tables_meet_theirs() -> None:
    assert rare(count(strategies.corrupted_tables()), edges.ONLY_CORRUPTED) == {}


@pytest.mark.slow
def test_payloads_meet_their_edges() -> None:
    assert rare(count(strategies.moves(strategies.DTYPES)), edges.PAYLOAD_EDGES) == {}


def test_groups_and_shifts_meet_theirs() -> None:
    counts: Counter[str] = Counter()

    @hypothesis.seed(0)
    @hypothesis.settings(max_examples=EXAMPLES // 5, database=None, phases=[hypothesis.Phase.generate])
    @hypothesis.given(grouping=strategies.groupings(), shifting=strategies.shiftings())
    def draw(grouping: Grouping, shifting: Shifting) -> None:
        alignment = grouping.tables.alignment
        whole = grouping.tables.reference
        starts = whole.position_ids[:, :: whole.position_ids.shape[1] // grouping.size]
        moved = shifting.tables.reference.shift(shifting.k).source_indices >= 0
        edges = {
            "ratio 1": grouping.ratio == 1 < alignment,
            "the alignment as ratio": grouping.ratio == alignment > 1,
            "a ratio between": 1 < grouping.ratio < alignment,
            "a shard that starts inside a document": bool((starts > 0).any()),
            "a shift that moves": bool(moved.any()) and shifting.k != 0,
            "a shift that moves nothing": moved.numel() > 0 and not moved.any(),
            "no shift": shifting.k == 0,
            "there and back": shifting.k * shifting.then < 0,
        }
        counts.update(name for name, holds in edges.items() if holds)

    draw()
    assert len(counts) == 8
    assert {name: count for name, count in counts.items() if count < LEAST // 5} == {}


def test_wide_and_narrow_values_reach_both_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: Counter[str] = Counter()
    for name in ("_gather_wide", "_gather_padded"):
        original = getattr(torch_backend, name)

        def spy(*arguments: Any, name: str = name, original: Any = original, **options: Any) -> Any:
            reached[name] += 1
            return original(*arguments, **options)

        monkeypatch.setattr(torch_backend, name, spy)
    check(LAWS["values_are_moved"], find_target("alignpack:backend=torch"), examples=200, seed=0)
    assert min(reached["_gather_wide"], reached["_gather_padded"]) > 50


def test_edges_are_recognised() -> None:
    tables = Tables(torch.tensor([[-1000, 1, 1, 0, 5, 0]]), torch.tensor([[0, 1, 7, 0, 5, 0]]), (1, 14), 4)
    assert edges.met(tables) == {
        "absent -1000 first",
        "absent 0 between",
        "absent 0 last",
        "different markers in the two tables",
        "a document of one token",
        "two documents of one token",
        "a length one above the alignment",
        "a span with slack",
        "slack wider than a group",
        "a row with a tail",
        "int64",
        "alignment 4",
    }
