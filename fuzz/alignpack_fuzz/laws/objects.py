"""Laws of what is made from a layout: shards, slices, batches, copies."""

import copy
import dataclasses
import math
import pickle
from typing import Any

import torch
import torch.utils._pytree as pytree
from hypothesis import strategies as st

from alignpack_fuzz import strategies
from alignpack_fuzz.cases import (
    Move,
    RowSlice,
    Sharding,
    Tables,
)
from alignpack_fuzz.compare import (
    FIELDS,
    assert_same_bits,
    assert_same_layout,
    described,
    outcome,
)
from alignpack_fuzz.laws.registry import law
from alignpack_fuzz.targets import Target


@law("strict", strategies.shardings())
def shards_make_the_whole(target: Target, case: Sharding) -> None:
    """Shards concatenate to the layout and to pack, their restores sum to restore, their fields are the reference's.

    Catches positions that are numbered again, tokens that two ranks own, maps that stay global.
    """
    layout, reference = case.tables.build(target), case.tables.reference
    shards = [layout.shard(rank, case.size) for rank in range(case.size)]
    for rank, shard in enumerate(shards):
        assert_same_layout(shard, reference.shard(rank, case.size))
        # Shards are cut again, into single groups; cuts through groups are refused.
        wanted, groups = reference.shard(rank, case.size), shard.source_indices.shape[1] // shard.alignment
        assert_same_layout(shard.shard(groups - 1, groups), wanted.shard(groups - 1, groups))
        refused, expected = (outcome(which.shard, 0, 2 * groups) for which in (shard, wanted))
        assert described(refused) == described(expected), f"cut into {2 * groups}: {refused!r}"
    for name in ("source_indices", "position_ids", "sequence_ids"):
        assert_same_bits(torch.cat([getattr(shard, name) for shard in shards], 1), getattr(reference, name))
    packed = reference.pack(case.values, 7)
    assert_same_bits(torch.cat([shard.pack(case.values, 7) for shard in shards], 1), packed)
    pieces = packed.chunk(case.size, dim=1)
    restored = sum(shard.restore(piece) for shard, piece in zip(shards, pieces, strict=True))
    assert_same_bits(restored, reference.restore(packed))


@law("strict", strategies.row_slices())
def row_slices_are_those_rows(target: Target, case: RowSlice) -> None:
    """`layout[i:j]` is the reference's, and packs those rows as the whole does: catches offsets of the wrong row."""
    layout, reference = case.tables.build(target), case.tables.reference
    values = torch.arange(math.prod(case.tables.input_shape)).reshape(case.tables.input_shape)
    # Every second row always, too: the one slice of the fields that is not contiguous.
    for rows in (case.rows, slice(None, None, 2)):
        part = layout[rows]
        assert_same_layout(part, reference[rows])
        assert_same_bits(part.pack(values[rows]), reference.pack(values)[rows])


@law("strict", st.tuples(strategies.moves((torch.int64,)), st.sampled_from((0, 1, -100))))
def batches_are_separate_packs(target: Target, case: tuple[Move, int]) -> None:
    """`pack_batch` gives what one `pack` per tensor gives, with each tensor's fill: catches fills that are mixed up."""
    move, fill = case
    layout = move.tables.build(target)
    # In no order that sorting would keep.
    batch = {"weights": move.values.double(), "ids": move.values, "mask": move.values > 0}
    unknown = outcome(layout.pack_batch, batch, {"idz": fill})
    assert isinstance(unknown, ValueError), f"a fill for an unknown name is not refused but gives {unknown!r}"
    assert "idz" in str(unknown), f"the unknown name is not in: {unknown}"
    for fills in ({"ids": fill}, 1):
        packed = layout.pack_batch(batch, fills)
        assert list(packed) == list(batch), "names or their order changed"
        for name, values in batch.items():
            wanted = fills.get(name, 0) if isinstance(fills, dict) else fills
            assert_same_bits(packed[name], layout.pack(values, wanted))


@law("strict", strategies.tables())
def copies_are_equal(target: Target, tables: Tables) -> None:
    """Pickles, copies, rebuilt and flattened layouts are equal and move alike: catches fields that get lost."""
    layout = tables.build(target)
    by_fields = {field.name: getattr(layout, field.name) for field in dataclasses.fields(layout)}
    leaves, spec = pytree.tree_flatten(layout)
    values = torch.arange(math.prod(tables.input_shape)).reshape(tables.input_shape)
    for duplicate in (
        pickle.loads(pickle.dumps(layout)),
        copy.deepcopy(layout),
        dataclasses.replace(layout),
        type(layout)(**by_fields),
        pytree.tree_unflatten(leaves, spec),
        layout.to("cpu"),
    ):
        assert layout.equal(duplicate)
        assert duplicate.equal(layout)
        assert_same_bits(duplicate.pack(values, -1), layout.pack(values, -1))
    # Equality must look at everything: each field and integer changed by itself makes another layout.
    changes: dict[str, Any] = {name: getattr(layout, name) + 1 for name in FIELDS if getattr(layout, name).numel()}
    changes |= {"alignment": layout.alignment + 1, "offset": layout.offset + 1, "row_length": 2**20}
    for name, changed in changes.items():
        other = dataclasses.replace(layout, **{name: changed})
        assert not layout.equal(other), f"equal although {name} differs"
        assert not other.equal(layout), f"equal although {name} differs"
