"""Laws of shifted layouts."""

from typing import Any

import torch

from alignpack_fuzz import strategies
from alignpack_fuzz.cases import Shifting
from alignpack_fuzz.compare import (
    assert_same_bits,
    assert_same_layout,
    described,
    named,
    outcome,
)
from alignpack_fuzz.laws.registry import law
from alignpack_fuzz.targets import REFERENCE, Target


@law("strict", strategies.shiftings())
def shifts_are_right(target: Target, case: Shifting) -> None:
    """Shifted layouts, shifts of them, and what they move are the reference's; what is refused there is refused here.

    Catches wrong tokens, ids that move, integers that get lost, distances that wrap.
    """
    layout, reference = (which.shift(case.k) for which in (case.tables.build(target), case.tables.reference))
    assert_same_layout(layout, reference)
    assert_same_bits(layout.pack(case.values, -1), reference.pack(case.values, -1))
    assert_same_bits(layout.restore(case.packed), reference.restore(case.packed))
    with named("shifted again"):
        assert_same_layout(layout.shift(case.then), reference.shift(case.then))
    for k in (True, 1.0):
        refused, wanted = (outcome(which.shift, k) for which in (layout, reference))
        assert described(refused) == described(wanted), f"k {k!r}: {refused!r}"


@law("strict", strategies.shiftings())
def shifts_stay_in_their_document(target: Target, case: Shifting) -> None:
    """Each slot takes the token so much further in its document, or nothing: said without the reference.

    Catches what the reference and a target might get wrong together.
    """
    layout = case.tables.build(target)
    shifted = layout.shift(case.k)
    for row in range(len(layout.sequence_ids)):
        ids, places, source, moved = (
            which[row].tolist()
            for which in (layout.sequence_ids, layout.position_ids, layout.source_indices, shifted.source_indices)
        )
        tokens = {(ids[slot], places[slot]): source[slot] for slot in range(len(ids)) if ids[slot]}
        wanted = [
            tokens.get((document, place + case.k), -1) if document else -1
            for document, place in zip(ids, places, strict=True)
        ]
        assert moved == wanted, f"row {row} takes {moved}, should take {wanted}"
        back = [-1] * case.tables.input_shape[1]
        for slot, column in enumerate(moved):
            if column != -1:
                back[column] = slot
        assert shifted.input_positions[row].tolist() == back, "the maps are not inverse to each other"


@law("strict", strategies.shiftings())
def shifts_compose(target: Target, case: Shifting) -> None:
    """Two shifts move what they move as one shift by the sum; and all of it, when they go the same way."""
    layout = case.tables.build(target)
    twice, once = layout.shift(case.k).shift(case.then), layout.shift(case.k + case.then)
    for name in ("source_indices", "input_positions"):
        two, one = getattr(twice, name), getattr(once, name)
        same_way = case.k * case.then >= 0
        with named(name):
            assert_same_bits(two, one if same_way else torch.where(two == -1, -1, one))


@law("strict", strategies.shiftings())
def shifts_have_their_gradients(target: Target, case: Shifting) -> None:
    """Gradients and second derivatives of shifted moves are those of the matrix that the move is; in small numbers.

    Catches a gradient that goes through the map of the layout that was shifted, or of a shift the other way.
    """
    layout = case.tables.build(target).shift(case.k)
    moves = (
        (layout.pack, target.pack_gradient, case.values, case.packed),
        (layout.restore, target.restore_gradient, case.packed, case.values),
    )
    for move, gradient, values, upstream in moves:
        batch, slots = values.shape
        # The move of one 1 and else 0, for each slot: `[batch, moved, slots]`.
        matrix = move(torch.eye(slots, dtype=values.dtype).expand(batch, slots, slots))
        with named(move.__name__):
            assert_same_bits(gradient(layout, upstream), _transposed(matrix, upstream))
            if target is not REFERENCE:
                point = values.clone().requires_grad_()
                (first,) = torch.autograd.grad((move(point) ** 3 * upstream).sum(), point, create_graph=True)
                (second,) = torch.autograd.grad(first.sum(), point)
                assert_same_bits(second, 6 * values * _transposed(matrix, upstream))


def _transposed(matrix: torch.Tensor, upstream: torch.Tensor) -> torch.Tensor:
    return (matrix * upstream.unsqueeze(2)).sum(dim=1)


@law("strict", strategies.shiftings())
def shards_of_shifts_are_columns(target: Target, case: Shifting) -> None:
    """Shards of a shifted layout make the whole of it, and no shard is shifted: catches labels that end at a rank."""
    layout, reference = (which.shift(case.k) for which in (case.tables.build(target), case.tables.reference))
    shards = [layout.shard(rank, case.size) for rank in range(case.size)]
    for rank, shard in enumerate(shards):
        wanted = reference.shard(rank, case.size)
        assert_same_layout(shard, wanted)
        refused, expected = (outcome(which.shift, case.then) for which in (shard, wanted))
        assert described(refused) == described(expected), f"shift by {case.then} of a shard: {refused!r}"
    packed = reference.pack(case.values, -1)
    assert_same_bits(torch.cat([shard.pack(case.values, -1) for shard in shards], 1), packed)
    pieces = packed.chunk(case.size, dim=1)
    restored: Any = sum(shard.restore(piece) for shard, piece in zip(shards, pieces, strict=True))
    assert_same_bits(restored, reference.restore(packed))
    counts: Any = sum(shard.token_counts for shard in shards)
    assert_same_bits(counts, reference.token_counts)
