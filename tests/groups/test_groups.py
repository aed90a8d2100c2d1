"""Compression groups: worked out by hand, as part of shards and shifts, as objects, and what is refused."""

import copy
import dataclasses
import json
import pickle
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils._pytree as pytree

import alignpack
import alignpack_reference
from alignpack import CompressionGroups, PackedSequenceLayout, packed_layout
from alignpack._backends.torch_backend import reciprocal
from alignpack_fuzz.compare import GROUP_FIELDS, assert_same_groups
from alignpack_fuzz.targets import Target

both = pytest.mark.parametrize("module", [alignpack, alignpack_reference], ids=lambda module: module.__name__)


def shown(groups: Any) -> dict[str, Any]:
    return {name: getattr(groups, name).long().tolist() for name in GROUP_FIELDS}


def test_groups_of_two_and_of_four_by_hand(target: Target) -> None:
    # a a a . | b b b b | b b . . | . . . .     and, in the second row, an absent column before a document of one token
    lengths = torch.tensor([[3, 6], [0, 1]])
    layout = target.packed_layout(lengths, None, (2, 9), alignment=4, minimum_length=16)
    assert shown(layout.groups(4)) == {
        "sequence_ids": [[1, 2, 2, 0], [2, 0, 0, 0]],
        "position_ids": [[0, 0, 4, 0], [0, 0, 0, 0]],
        "complete": [[0, 1, 0, 0], [0, 0, 0, 0]],
        "first": [[1, 1, 0, 0], [1, 0, 0, 0]],
        "visible_start": [[0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0], [0] * 16],
        "visible_end": [[0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 0, 0, 0, 0, 0], [0] * 16],
    }
    assert shown(layout.groups(2)) == {
        "sequence_ids": [[1, 1, 2, 2, 2, 0, 0, 0], [2, 0, 0, 0, 0, 0, 0, 0]],
        "position_ids": [[0, 2, 0, 2, 4, 0, 0, 0], [0] * 8],
        "complete": [[1, 0, 1, 1, 1, 0, 0, 0], [0] * 8],
        "first": [[1, 0, 1, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0]],
        "visible_start": [[0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0], [0] * 16],
        "visible_end": [[0, 1, 1, 0, 2, 3, 3, 4, 4, 5, 0, 0, 0, 0, 0, 0], [0] * 16],
    }


def test_ratio_one_makes_every_token_a_group(target: Target) -> None:
    layout = target.packed_layout(torch.tensor([[2, 3]]), None, (1, 5), alignment=4)
    assert shown(layout.groups(1)) == {
        "sequence_ids": layout.sequence_ids.tolist(),
        "position_ids": layout.position_ids.tolist(),
        "complete": [[1, 1, 0, 0, 1, 1, 1, 0]],
        "first": [[1, 0, 0, 0, 1, 0, 0, 0]],
        "visible_start": [[0, 0, 0, 0, 4, 4, 4, 0]],
        "visible_end": [[1, 2, 0, 0, 5, 6, 7, 0]],
    }


def test_the_ratios_of_one_model_share_a_layout(target: Target) -> None:
    lengths = torch.tensor([[130, 256]])
    layout = target.packed_layout(lengths, None, (1, 386), alignpack.compression_alignment([0, 4, 128]))
    coarse, fine = layout.groups(128), layout.groups(4)
    assert coarse.sequence_ids.tolist() == [[1, 1, 2, 2]]
    assert coarse.position_ids.tolist() == [[0, 128, 0, 128]]
    assert coarse.complete.tolist() == [[True, False, True, True]]
    assert coarse.first.tolist() == [[True, False, True, False]]
    assert [coarse.visible_end[0, slot].item() for slot in (0, 126, 127, 129, 256, 383, 511)] == [0, 0, 1, 1, 2, 3, 4]
    assert fine.complete.sum().item() == 130 // 4 + 256 // 4
    assert fine.sequence_ids[0, [32, 33, 63, 64]].tolist() == [1, 0, 0, 2]
    # A document's last token sees all of its complete groups, and no other's.
    assert (fine.visible_start[0, 129].item(), fine.visible_end[0, 129].item()) == (0, 32)
    assert (fine.visible_start[0, 511].item(), fine.visible_end[0, 511].item()) == (64, 128)


def test_a_shard_has_its_columns_of_the_groups_of_the_whole(target: Target) -> None:
    layout = target.packed_layout(torch.tensor([[3, 12]]), None, (1, 15), alignment=4, minimum_length=32)
    # Rank 1 of 4 starts inside the second document, which starts in column 4 of rank 0; rank 3 holds only padding.
    assert shown(layout.shard(1, 4).groups(2)) == {
        "sequence_ids": [[2, 2, 2, 2]],
        "position_ids": [[4, 6, 8, 10]],
        "complete": [[1, 1, 1, 1]],
        "first": [[0, 0, 0, 0]],
        "visible_start": [[2] * 8],
        "visible_end": [[4, 5, 5, 6, 6, 7, 7, 8]],
    }
    assert shown(layout.shard(3, 4).groups(4)) == {
        name: [[0] * (8 if name.startswith("visible") else 2)] for name in GROUP_FIELDS
    }
    whole = layout.groups(4)
    for size in (1, 2, 4, 8):
        parts = [layout.shard(rank, size).groups(4) for rank in range(size)]
        for name in GROUP_FIELDS:
            assert torch.equal(torch.cat([getattr(part, name) for part in parts], dim=1), getattr(whole, name))
    full = target.packed_layout(torch.tensor([[3, 28]]), None, (1, 31), alignment=4)
    assert_same_groups(full.shard(1, 2).shard(1, 2).groups(4), full.shard(3, 4).groups(4))


def test_groups_of_a_shift_are_those_of_the_layout(target: Target) -> None:
    layout = target.packed_layout(torch.tensor([[3, 6], [4, 0]]), None, (2, 9), alignment=4)
    for k in (1, -2, 100):
        assert_same_groups(layout.shift(k).groups(2), layout.groups(2))


@pytest.mark.parametrize("ratio", [1, 2, 4])
def test_nothing_to_group(target: Target, ratio: int) -> None:
    empty = target.packed_layout(torch.zeros(0, 2, dtype=torch.int64), None, (0, 5), 4)
    groups = empty.groups(ratio)
    assert groups.sequence_ids.shape == groups.first.shape == (0, 4 // ratio)
    assert groups.visible_start.shape == (0, 4)
    padding = target.packed_layout(torch.tensor([[0], [-1000]]), None, (2, 3), 4, minimum_length=8).groups(ratio)
    assert not any(getattr(padding, name).any() for name in GROUP_FIELDS)
    assert padding.complete.shape == (2, 8 // ratio)


def test_groups_of_rows(target: Target) -> None:
    layout = target.packed_layout(torch.tensor([[3, 6], [9, 0], [1, 1]]), None, (3, 9), alignment=4)
    part = layout[1:].groups(2)
    for name in GROUP_FIELDS:
        assert torch.equal(getattr(part, name), getattr(layout.groups(2), name)[1:])


@pytest.mark.parametrize("divisor", [1, 2, 3, 4, 5, 7, 12, 128, 641, 2**16 + 1, 2**30 + 1, 2**31 - 1])
def test_division_by_multiplication_is_exact_up_to_the_widest_row(divisor: int) -> None:
    """The quotients of rows that are too wide for a test."""
    multiplier, shift = reciprocal(divisor)
    last = (2**31 - 1) // divisor * divisor
    for value in (0, 1, divisor - 1, divisor, last - divisor, last - 1, last, 2**31 - 1):
        assert value * multiplier < 2**63
        assert value * multiplier >> shift == value // divisor


def test_pooling_is_a_reshape(fast: Target) -> None:
    layout = fast.packed_layout(torch.tensor([[3, 6]]), None, (1, 9), alignment=4)
    values = torch.arange(1.0, 10.0).reshape(1, 9, 1).requires_grad_()
    pooled = layout.pack(values).unflatten(1, (-1, 4)).sum(2)
    assert pooled.flatten().tolist() == [1 + 2 + 3, 4 + 5 + 6 + 7, 8 + 9]
    (gradient,) = torch.autograd.grad(pooled[layout.groups(4).complete].sum(), values)
    assert gradient.flatten().tolist() == [0, 0, 0, 1, 1, 1, 1, 0, 0]


# --- the object ----------------------------------------------------------------------------------------------------------


def build(**options: Any) -> PackedSequenceLayout:
    return packed_layout(torch.tensor([[3, 2], [4, 0]]), None, (2, 5), 4, **options)


def test_the_fields_are_the_contract() -> None:
    names = ["ratio", *GROUP_FIELDS]
    for kind in (CompressionGroups, alignpack_reference.CompressionGroups):
        assert [field.name for field in dataclasses.fields(kind)] == names
    with pytest.raises(dataclasses.FrozenInstanceError):
        build().groups(2).ratio = 4  # type: ignore[misc]


def test_fields_own_their_memory_and_are_contiguous(fast: Target) -> None:
    layout = fast.packed_layout(torch.tensor([[3, 2], [4, 0]]), None, (2, 5), 4)
    before = copy.deepcopy(layout)
    for ratio in (1, 2, 4):
        groups = layout.groups(ratio)
        assert type(groups.ratio) is int
        for name in GROUP_FIELDS:
            field = getattr(groups, name)
            assert field.is_contiguous()
            assert field.dtype == (torch.bool if name in ("complete", "first") else torch.int64)
            field.zero_()
    assert layout.equal(before)


def test_repr_shows_shapes_and_the_ratio_but_no_data() -> None:
    assert repr(build().groups(2)) == (
        "CompressionGroups(sequence_ids=[2, 4], position_ids=[2, 4], complete=[2, 4], first=[2, 4], "
        "visible_start=[2, 8], visible_end=[2, 8], device=cpu, ratio=2)"
    )


def test_equality_is_identity_and_equal_compares_contents() -> None:
    groups, again = build().groups(2), build().groups(2)
    assert groups.equal(again)
    assert (groups == again, groups == groups, len({groups, again})) == (False, True, 2)  # noqa: PLR0124
    assert not groups.equal(build().groups(4))
    assert not groups.equal(groups.to("meta"))
    assert not groups.equal(build())
    assert not build().equal(groups)
    assert not groups.equal(2)
    assert not groups.equal(dataclasses.replace(groups, ratio=4))
    for name in GROUP_FIELDS:
        assert not groups.equal(dataclasses.replace(groups, **{name: ~getattr(groups, name)}))


def test_copies_pickles_and_moves() -> None:
    groups = build().groups(2)
    for duplicate in (pickle.loads(pickle.dumps(groups)), copy.deepcopy(groups), groups.to("cpu")):
        assert duplicate is not groups
        assert groups.equal(duplicate)
    moved = groups.to("meta", non_blocking=True)
    assert {getattr(moved, name).device.type for name in GROUP_FIELDS} == {"meta"}
    assert moved.ratio == 2


def test_pytree_has_tensors_as_leaves_and_the_ratio_as_context() -> None:
    groups = build().groups(2)
    leaves, spec = pytree.tree_flatten({"groups": groups})
    assert [id(leaf) for leaf in leaves] == [id(getattr(groups, name)) for name in GROUP_FIELDS]
    paths = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(groups)[0]]
    assert paths == [f".{name}" for name in GROUP_FIELDS]
    serialised = pytree.treespec_dumps(spec)
    assert "alignpack.CompressionGroups" in json.dumps(serialised)
    assert pytree.tree_unflatten(leaves, pytree.treespec_loads(serialised))["groups"].equal(groups)
    assert pytree.tree_map(lambda _: None, groups).ratio == 2


def test_nothing_is_read_from_the_device() -> None:
    """The meta device has no data, so nothing on the way of a device tensor makes the host wait."""
    groups = build().to("meta").groups(2)
    assert (groups.complete.shape, groups.complete.device.type) == ((2, 4), "meta")
    assert groups.visible_end.shape == (2, 8)


def test_groups_made_under_inference_mode_serve_training(fast: Target) -> None:
    layout = fast.packed_layout(torch.tensor([[4]]), None, (1, 4), 4)
    with torch.inference_mode():
        groups = layout.groups(2)
    assert not any(getattr(groups, name).is_inference() for name in GROUP_FIELDS)
    values = torch.ones(1, 4, requires_grad=True)
    values.gather(1, groups.visible_end).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [[1, 2, 1, 0]]


# --- what is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "error", "message"),
    [
        (3, ValueError, "ratio=3 does not divide the alignment, 4, so that a group could hold two documents; build the layout with alignment=12"),
        (8, ValueError, "ratio=8 does not divide the alignment, 4, so that a group could hold two documents; build the layout with alignment=8"),
        (0, ValueError, "ratio must be at least 1, got 0"),
        (-4, ValueError, "ratio must be at least 1, got -4"),
        (4.0, TypeError, "ratio must be an integer, got 4.0"),
        (True, TypeError, "ratio must be an integer, got True"),
        ("4", TypeError, "ratio must be an integer, got '4'"),
    ],
)  # fmt: skip
def test_wrong_ratios(target: Target, ratio: Any, error: type[Exception], message: str) -> None:
    layout = target.packed_layout(torch.tensor([[3, 2]]), None, (1, 5), 4)
    with pytest.raises(error) as caught:
        layout.groups(ratio)
    assert type(caught.value) is error
    assert str(caught.value) == message


def test_integers_of_numpy_are_ratios_and_tensors_are_not(target: Target) -> None:
    assert target.packed_layout(torch.tensor([[3]]), None, (1, 3), 4).groups(np.int64(2)).ratio == 2
    with pytest.raises(TypeError, match=r"^ratio must be an integer, got tensor\(2\)$"):
        build().groups(torch.tensor(2))  # type: ignore[arg-type]


def test_without_alignment_nothing_can_be_pooled(target: Target) -> None:
    layout = target.packed_layout(torch.tensor([[3, 5]]), None, (1, 8), alignment=1)
    assert layout.groups(1).complete.all()
    with pytest.raises(ValueError, match=r"build the layout with alignment=128$"):
        layout.groups(128)


@both
def test_compression_alignment(module: Any) -> None:
    compression_alignment = module.compression_alignment
    assert compression_alignment([4, 128]) == 128
    assert compression_alignment([0, 0, 4, 128, 4, 0]) == 128
    assert compression_alignment((2, 1)) == 2
    assert compression_alignment({4, 6}) == 12
    assert compression_alignment(ratio for ratio in (3, 5, 15)) == 15
    assert compression_alignment([]) == compression_alignment([0, 1]) == 1
    alignment = compression_alignment(np.array([2, 3]))
    assert (alignment, type(alignment)) == (6, int)


@both
@pytest.mark.parametrize(
    ("ratios", "error", "message"),
    [
        ([4, 0, -4], ValueError, "ratios[2] must be at least 0, got -4"),
        ([4, True], TypeError, "ratios[1] must be an integer, got True"),
        ([4.0], TypeError, "ratios[0] must be an integer, got 4.0"),
        ([4, None], TypeError, "ratios[1] must be an integer, got None"),
        ("4", TypeError, "ratios[0] must be an integer, got '4'"),
        (4, TypeError, "ratios must be an iterable of integers, got 4"),
        (None, TypeError, "ratios must be an iterable of integers, got None"),
    ],
)
def test_wrong_compression_ratios(module: Any, ratios: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        module.compression_alignment(ratios)
    assert type(caught.value) is error
    assert str(caught.value) == message


def test_ratios_are_not_read_from_tensors() -> None:
    with pytest.raises(TypeError, match=r"^ratios\[0\] must be an integer, got tensor\(4\)$"):
        alignpack.compression_alignment(torch.tensor([4, 128]))
