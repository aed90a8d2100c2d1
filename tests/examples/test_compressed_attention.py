"""The example of compressed attention: packed documents give and get what each gives and gets alone, and why."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from alignpack import CompressionGroups, PackedSequenceLayout, packed_layout
from tests.context_parallel.ranks.compressed_attention import (
    LONG_ROW,
    MOSTLY_PADDING,
    ROWS,
    alone,
    assert_far,
    assert_nothing_else_changes,
    assert_parity,
    example,
    packed,
    recomputing,
    seeded,
    values_of,
)

Build = Callable[[], Any]

# The example's models, and each kind of layer with the smallest alignment that it can have.
MODELS: dict[str, Build] = {
    **example.MODELS,
    **{
        f"only {ratio}{' with overlap' * overlap}": partial(
            lambda *layer: example.Model([example.CompressedAttention(*layer)]), ratio, overlap, top
        )
        for ratio, overlap, top in ((4, True, 6), (128, False, None), (2, False, 6), (1, False, 6))
    },
}

each_model = pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
each_example = pytest.mark.parametrize("build", example.MODELS.values(), ids=example.MODELS)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Matrices are small: threads would cost more than they give."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@each_model
def test_packed_documents_are_as_if_alone(build: Build) -> None:
    model, values = seeded(build), values_of(ROWS)
    assert_parity(packed(model, ROWS, values), alone(model, ROWS, values))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["V4.1: 2, 1", "only 4 with overlap"])
def test_rows_of_any_documents(name: str, seed: int) -> None:
    lengths = random.Random(seed)
    rows = [[lengths.choice((0, 1, 2, 3, 4, 5, 7, 8, 12, 31, 64)) for _ in range(6)] for _ in range(2)]
    model, values = seeded(MODELS[name]), values_of(rows)
    assert_parity(packed(model, rows, values), alone(model, rows, values))


@each_example
def test_rows_of_mostly_padding(build: Build) -> None:
    model, values = seeded(build), values_of(MOSTLY_PADDING)
    found = packed(model, MOSTLY_PADDING, values, minimum_length=LONG_ROW)
    assert_parity(found, alone(model, MOSTLY_PADDING, values))


@each_example
def test_a_change_of_one_document_changes_no_bit_of_another(build: Build) -> None:
    assert_nothing_else_changes(partial(packed, seeded(build), ROWS))


@pytest.mark.parametrize("use_reentrant", [True, False])
@each_example
def test_recomputation(build: Build, use_reentrant: bool) -> None:
    model, values = recomputing(build, use_reentrant), values_of(ROWS)
    assert_parity(packed(model, ROWS, values), alone(seeded(build), ROWS, values))


@each_model
def test_equal_scores_do_not_depend_on_the_width(build: Build) -> None:
    """Queries of zeros find all entries equally good: which are the best must not depend on how many there are."""
    model, values = seeded(build), values_of(ROWS)
    for layer in model.layers:
        for parameter in layer.query.parameters():
            torch.nn.init.zeros_(parameter)
    assert_parity(packed(model, ROWS, values, minimum_length=LONG_ROW), alone(model, ROWS, values))


@pytest.mark.parametrize("name", example.MODELS)
def test_the_best_entries_are_fewer_than_all(name: str) -> None:
    """Selection does something: without it the outputs are others."""
    model, values = seeded(MODELS[name]), values_of(ROWS)
    selected = packed(model, ROWS, values)
    for layer in model.layers:
        layer.top = None
    assert_far(packed(model, ROWS, values), selected)


# --- what it takes ---------------------------------------------------------------------------------------------------

ALIGNED = [name for name in MODELS if name != "only 1"]  # what pools nothing needs no alignment


@pytest.mark.parametrize("name", ALIGNED)
def test_groups_of_documents_that_are_not_aligned_are_refused(name: str) -> None:
    model, values = seeded(MODELS[name]), values_of(ROWS)
    layout = packed_layout(torch.tensor(ROWS), None, (2, 501), alignment=1, length_multiple=model.alignment)
    with pytest.raises(
        ValueError, match=r"^ratio=\d+ does not divide the alignment, 1, so that a group could hold two"
    ):
        example.step(model, layout, values)


def unaligned(layout: PackedSequenceLayout) -> PackedSequenceLayout:
    """Documents directly one after the other, in a layout that says that they are aligned."""
    tables = torch.tensor(ROWS), None, (2, 501), 1
    return replace(packed_layout(*tables, length_multiple=layout.alignment), alignment=layout.alignment)


@pytest.mark.parametrize("name", ALIGNED)
def test_without_alignment_documents_meet(name: str) -> None:
    model, values = seeded(MODELS[name]), values_of(ROWS)
    assert_far(packed(model, ROWS, values, change=unaligned), alone(model, ROWS, values))


@pytest.mark.parametrize("name", ["V4: 4 with overlap, 128", "only 4 with overlap"])
def test_without_first_documents_meet(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = PackedSequenceLayout.groups

    def never_first(layout: PackedSequenceLayout, ratio: int) -> CompressionGroups:
        groups = right(layout, ratio)
        return replace(groups, first=torch.zeros_like(groups.first))

    model, values = seeded(MODELS[name]), values_of(ROWS)
    expected = alone(model, ROWS, values)
    monkeypatch.setattr(PackedSequenceLayout, "groups", never_first)
    assert_far(packed(model, ROWS, values), expected)


def test_the_script_prints_a_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    example.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in lines if line[0] != " "] == ["V4", "V4.1"]
    compared = [line.split() for line in lines if line[0] == " "]
    assert [" ".join(words[:-6]) for words in compared] == ["outputs", "input gradients", "parameter gradients"] * 2
    assert all(float(words[-4]) <= 1e-10 for words in compared)
