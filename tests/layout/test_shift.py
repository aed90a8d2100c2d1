"""Shifts: labels and look-backs by hand, both maps, gradients, composition, shards; and token counts."""

from typing import Any

import numpy as np
import pytest
import torch

from alignpack import packed_layout
from alignpack_fuzz.compare import assert_same_layout
from alignpack_fuzz.targets import Target

# a a a . b b . .   from   a a a . b b . .   with slot 3 and the last two padding
LENGTHS, SPANS, SHAPE = torch.tensor([[3, 2]]), torch.tensor([[4, 4]]), (1, 8)
IDS = torch.tensor([[10, 11, 12, 99, 20, 21, 98, 97]])


def build(target: Target) -> Any:
    return target.packed_layout(LENGTHS, SPANS, SHAPE, 4)


@pytest.mark.parametrize(
    ("k", "packed", "source_indices", "input_positions"),
    [
        (1, [11, 12, -1, -1, 21, -1, -1, -1], [1, 2, -1, -1, 5, -1, -1, -1], [-1, 0, 1, -1, -1, 4, -1, -1]),
        (2, [12, -1, -1, -1, -1, -1, -1, -1], [2, -1, -1, -1, -1, -1, -1, -1], [-1, -1, 0, -1, -1, -1, -1, -1]),
        (-1, [-1, 10, 11, -1, -1, 20, -1, -1], [-1, 0, 1, -1, -1, 4, -1, -1], [1, 2, -1, -1, 5, -1, -1, -1]),
        # Four further stands a token of the next document, which is not the document's own.
        (4, [-1] * 8, [-1] * 8, [-1] * 8),
        (-4, [-1] * 8, [-1] * 8, [-1] * 8),
        (0, [10, 11, 12, -1, 20, 21, -1, -1], [0, 1, 2, -1, 4, 5, -1, -1], [0, 1, 2, -1, 4, 5, -1, -1]),
    ],
)
def test_shifts_by_hand(
    target: Target, k: int, packed: list[int], source_indices: list[int], input_positions: list[int]
) -> None:
    layout = build(target)
    shifted = layout.shift(k)
    assert shifted.pack(IDS, -1).tolist() == [packed]
    assert shifted.source_indices.tolist() == [source_indices]
    assert shifted.input_positions.tolist() == [input_positions]
    assert torch.equal(shifted.position_ids, layout.position_ids)
    assert torch.equal(shifted.sequence_ids, layout.sequence_ids)
    assert (shifted.alignment, shifted.offset, shifted.row_length) == (4, 0, None)


def test_no_shift_crosses_documents_without_padding_between_them(target: Target) -> None:
    layout = target.packed_layout(torch.tensor([[2, 1, 3]]), None, (1, 6), 1)
    ids = torch.tensor([[10, 11, 20, 30, 31, 32]])
    assert layout.shift(1).pack(ids, -1).tolist() == [[11, -1, -1, 31, 32, -1]]
    assert layout.shift(-2).pack(ids, -1).tolist() == [[-1, -1, -1, -1, -1, 30]]


@pytest.mark.parametrize("k", [8, -8, 2**31, -(2**63), 2**63, 2**64 - 1, -(2**200)])
def test_far_shifts_take_nothing_and_do_not_wrap(target: Target, k: int) -> None:
    layout = build(target)
    shifted = layout.shift(k)
    assert (shifted.source_indices == -1).all()
    assert (shifted.input_positions == -1).all()
    assert shifted.padding_mask.tolist() == layout.padding_mask.tolist()


def test_a_shift_of_nothing_moves_nothing() -> None:
    layout = packed_layout(LENGTHS, SPANS, SHAPE, 4)
    assert layout.shift(0) is layout


def test_restore_goes_back_to_the_tokens_that_were_taken(target: Target) -> None:
    shifted = build(target).shift(1)
    assert shifted.restore(torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8]])).tolist() == [[0, 1, 2, 0, 0, 5, 0, 0]]


def test_gradients_go_to_the_tokens_that_were_taken(target: Target) -> None:
    shifted = build(target).shift(1)
    upstream = torch.tensor([[1.0, 2, torch.nan, torch.nan, 5, torch.nan, torch.nan, torch.nan]])
    assert target.pack_gradient(shifted, upstream).tolist() == [[0, 1, 2, 0, 0, 5, 0, 0]]
    assert target.restore_gradient(shifted, torch.arange(1.0, 9.0).unsqueeze(0)).tolist() == [[2, 3, 0, 0, 6, 0, 0, 0]]


@pytest.mark.parametrize("k", [1, -1, 2])
def test_derivatives_of_shifts(fast: Target, k: int) -> None:
    shifted = build(fast).shift(k)
    values = torch.randn(1, 8, 2, dtype=torch.float64, requires_grad=True)
    for move in (shifted.pack, shifted.restore):
        assert torch.autograd.gradcheck(move, values)
        assert torch.autograd.gradgradcheck(lambda values, move=move: move(values).pow(3), values)


def test_the_next_token_of_every_token_is_its_label(target: Target) -> None:
    lengths = torch.tensor([[3, 0, 4], [7, -1000, 1]])
    layout = target.packed_layout(lengths, None, (2, 8), 4)
    ids = torch.arange(1, 17).reshape(2, 8)
    packed, labels = layout.pack(ids), layout.shift(1).pack(ids, -100)
    for row in range(2):
        for slot in range(packed.shape[1]):
            document = layout.sequence_ids[row, slot]
            last = slot + 1 == packed.shape[1] or layout.sequence_ids[row, slot + 1] != document
            wanted = -100 if document == 0 or last else packed[row, slot + 1]
            assert labels[row, slot] == wanted
    assert (labels != -100).sum() == layout.token_counts.sum() - (lengths > 0).sum()


# --- shifts of shifts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second"), [(1, 1), (1, 2), (-1, -2), (2, 1)])
def test_shifts_the_same_way_add_up(target: Target, first: int, second: int) -> None:
    layout = target.packed_layout(torch.tensor([[5, 2, 9]]), None, (1, 16), 4)
    assert_same_layout(layout.shift(first).shift(second), layout.shift(first + second))


def test_what_left_its_document_does_not_come_back(target: Target) -> None:
    layout = build(target)
    there_and_back = layout.shift(1).shift(-1)
    # Each slot takes what the slot before it took, which is its own token; but the first has no slot before it.
    assert there_and_back.pack(IDS, -1).tolist() == [[-1, 11, 12, -1, -1, 21, -1, -1]]
    assert there_and_back.input_positions.tolist() == [[-1, 1, 2, -1, -1, 5, -1, -1]]
    assert (layout.shift(8).shift(-8).source_indices == -1).all()


# --- shards and rows -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, -1, 5, -6])
def test_shards_of_a_shift_are_columns_of_it(target: Target, k: int) -> None:
    layout = target.packed_layout(torch.tensor([[3, 9]]), None, (1, 12), 4, length_multiple=8)
    ids = torch.arange(1, 13).unsqueeze(0)
    shards = [layout.shift(k).shard(rank, 2) for rank in range(2)]
    whole = layout.shift(k).pack(ids, -1)
    assert torch.equal(torch.cat([shard.pack(ids, -1) for shard in shards], dim=1), whole)
    restored = sum(shard.restore(part) for shard, part in zip(shards, whole.chunk(2, dim=1), strict=True))
    assert torch.equal(restored, layout.shift(k).restore(whole))


def test_a_label_may_come_from_the_next_rank(target: Target) -> None:
    layout = target.packed_layout(torch.tensor([[6]]), None, (1, 6), 4)
    ids = torch.tensor([[10, 11, 12, 13, 14, 15]])
    assert layout.shift(1).shard(0, 2).pack(ids, -1).tolist() == [[11, 12, 13, 14]]
    assert layout.shift(1).shard(1, 2).pack(ids, -1).tolist() == [[15, -1, -1, -1]]


def test_shifts_of_rows(target: Target) -> None:
    layout = target.packed_layout(torch.tensor([[3, 2], [5, 0], [1, 4]]), None, (3, 5), 4)
    assert_same_layout(layout[1:].shift(1), layout.shift(1)[1:])


def test_a_shard_is_not_shifted(target: Target) -> None:
    layout = target.packed_layout(torch.tensor([[3, 5]]), None, (1, 8), 4, 16)
    for shard, k, slots in ((layout.shard(1, 2), 1, "8 to 15"), (layout.shard(0, 1), -1, "0 to 15")):
        for cut in (shard, shard[:1]):
            with pytest.raises(ValueError, match="shard") as caught:
                cut.shift(k)
            assert str(caught.value) == (
                f"slots {slots} of a packed row of 16 are a shard, which cannot be shifted, because tokens would come "
                f"from other ranks; shift the whole layout, then cut it: layout.shift(k).shard(rank, size)"
            )
    with pytest.raises(ValueError, match="shard"):
        layout.shift(1).shard(0, 2).shift(0)


@pytest.mark.parametrize("k", [1.0, True, "1", None, np.array([1, 2])])
def test_only_integers_shift(target: Target, k: Any) -> None:
    with pytest.raises(TypeError) as caught:
        build(target).shift(k)
    assert str(caught.value) == f"k must be an integer, got {k!r}"


def test_integers_of_numpy_shift_and_tensors_do_not(target: Target) -> None:
    assert_same_layout(build(target).shift(np.int32(-1)), build(target).shift(-1))
    with pytest.raises(TypeError, match=r"^k must be an integer, got tensor\(1\)$"):
        packed_layout(LENGTHS, SPANS, SHAPE, 4).shift(torch.tensor(1))  # type: ignore[arg-type]


# --- nothing, devices, modes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, -3])
def test_nothing_to_shift(target: Target, k: int) -> None:
    for lengths, shape in ((torch.zeros(0, 2), (0, 5)), (torch.zeros(2, 0), (2, 3)), (torch.zeros(2, 1), (2, 0))):
        layout = target.packed_layout(lengths.long(), None, shape, 4)
        assert_same_layout(layout.shift(k), layout)


def test_a_shift_has_maps_of_its_own_and_the_ids_of_the_layout(fast: Target) -> None:
    layout = build(fast)
    shifted = layout.shift(1)
    assert shifted.position_ids is layout.position_ids
    assert shifted.sequence_ids is layout.sequence_ids
    shifted.source_indices.fill_(7)
    shifted.input_positions.fill_(7)
    assert layout.equal(build(fast))


def test_nothing_is_read_from_the_device() -> None:
    """The meta device has no data, so nothing on the way of a device tensor makes the host wait."""
    layout = packed_layout(LENGTHS, SPANS, SHAPE, 4).to("meta")
    assert layout.shift(-2).input_positions.shape == (1, 8)
    assert (layout.token_counts.shape, layout.token_counts.device.type) == ((1,), "meta")


def test_a_shift_made_under_inference_mode_serves_training(fast: Target) -> None:
    with torch.inference_mode():
        shifted = build(fast).shift(1)
    assert not any(tensor.is_inference() for tensor in shifted._tensors())
    values = torch.ones(1, 8, requires_grad=True)
    shifted.pack(values).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [[0, 1, 1, 0, 0, 1, 0, 0]]


# --- token counts --------------------------------------------------------------------------------------------------------


def test_token_counts(target: Target) -> None:
    lengths = torch.tensor([[3, 0, 2], [9, -1000, 0], [0, 0, 0]])
    layout = target.packed_layout(lengths, None, (3, 9), 4, length_multiple=8)
    counts = layout.token_counts
    assert (counts.dtype, counts.tolist()) == (torch.int64, [5, 9, 0])
    assert layout.shift(1).token_counts.tolist() == [5, 9, 0]
    assert layout[1:].token_counts.tolist() == [9, 0]
    assert [layout.shard(rank, 2).token_counts.tolist() for rank in range(2)] == [[5, 8, 0], [0, 1, 0]]
    assert target.packed_layout(torch.zeros(0, 1).long(), None, (0, 4), 4).token_counts.shape == (0,)
