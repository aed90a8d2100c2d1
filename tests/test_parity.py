"""The laws of the layout and of moving values, on every implementation, on random tables and payloads."""

from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from alignpack_fuzz import strategies
from alignpack_fuzz.compare import assert_same_bits, bytes_of
from alignpack_fuzz.strategies import Tables
from alignpack_fuzz.targets import REFERENCE, Target

FIELDS = ("source_indices", "input_positions", "position_ids", "sequence_ids", "padding_mask")
NOTHING = Tables(torch.zeros(0, 0, dtype=torch.int64), None, (0, 0), 3)
NO_SLOTS = Tables(torch.tensor([[0, -1000], [-1000, 0]], dtype=torch.int32), None, (2, 0), 3, 4)


def assert_same_layout(actual: Any, expected: Any) -> None:
    for name in FIELDS:
        assert_same_bits(getattr(actual, name), getattr(expected, name))
        assert getattr(actual, name).is_contiguous()
    integers = "alignment", "offset", "row_length"
    assert [getattr(actual, name) for name in integers] == [getattr(expected, name) for name in integers]


@given(tables=strategies.tables())
@example(tables=NOTHING)
@example(tables=NO_SLOTS)
def test_fields_are_those_of_the_reference(fast: Target, tables: Tables) -> None:
    assert_same_layout(tables.build(fast), tables.build(REFERENCE))


@given(tables=strategies.tables())
@example(tables=NOTHING)
def test_what_a_layout_is(target: Target, tables: Tables) -> None:
    """The contract said once more, over whole rows: neither implementation computes it like this."""
    layout = tables.build(target)
    batch, original_sequence = tables.input_shape
    padded_sequence = layout.source_indices.shape[1]
    assert padded_sequence % tables.alignment == 0
    assert padded_sequence % (tables.length_multiple or 1) == 0
    assert padded_sequence >= max(tables.minimum_length, 1)
    for row in range(batch):
        source, ids = layout.source_indices[row].tolist(), layout.sequence_ids[row].tolist()
        real = [(column, slot) for column, slot in enumerate(source) if slot != -1]
        # The maps are inverse to each other, and order is kept.
        back = [-1] * original_sequence
        for column, slot in real:
            back[slot] = column
        assert layout.input_positions[row].tolist() == back
        assert [slot for _, slot in real] == sorted(slot for _, slot in real)
        # Documents have their lengths and their table columns, and no group holds two of them.
        lengths = tables.seq_lens.reshape(batch, -1)[row].tolist() if tables.seq_lens.numel() else []
        assert [ids.count(column + 1) for column in range(len(lengths))] == [max(length, 0) for length in lengths]
        groups = [set(ids[start : start + tables.alignment]) - {0} for start in range(0, len(ids), tables.alignment)]
        assert all(len(group) <= 1 for group in groups)
        # Nothing is wasted: documents follow each other at the next group.
        filled = [bool(group) for group in groups]
        assert filled == sorted(filled, reverse=True)
        for column, slot in real:
            starts = column - layout.position_ids[row, column].item()
            assert starts % tables.alignment == 0
            assert ids[starts] == ids[column]
            assert layout.source_indices[row, starts] == slot - (column - starts)
    assert torch.equal(layout.padding_mask, layout.source_indices == -1)
    assert not layout.position_ids[layout.padding_mask].any()


@st.composite
def moves(draw: st.DrawFn) -> tuple[Tables, torch.Tensor, torch.Tensor]:
    """A layout, values for `pack` and values for `restore`."""
    tables = draw(strategies.tables())
    packed_shape = tables.build(REFERENCE).source_indices.shape
    values = draw(strategies.payloads(tables.input_shape))
    return tables, values, draw(strategies.payloads(tuple(packed_shape), dtypes=(values.dtype,)))


@given(case=moves())
@example(case=(NO_SLOTS, torch.zeros(2, 0, 3), torch.zeros(2, 6, 3)))
@example(case=(NO_SLOTS, torch.zeros(2, 0, dtype=torch.complex128), torch.zeros(2, 6, dtype=torch.complex128)))
def test_values_are_moved_as_in_the_reference(fast: Target, case: tuple[Tables, torch.Tensor, torch.Tensor]) -> None:
    tables, values, packed = case
    layout, expected = tables.build(fast), tables.build(REFERENCE)
    before = [bytes_of(tensor).clone() for tensor in (values, packed)]
    results = layout.pack(values, 1), layout.restore(packed)
    assert_same_bits(results[0], expected.pack(values, 1))
    assert_same_bits(results[1], expected.restore(packed))
    for result, argument in zip(results, (values, packed), strict=True):
        assert result.is_contiguous()
        assert not result.numel() or result.untyped_storage().data_ptr() != argument.untyped_storage().data_ptr()
    assert all(torch.equal(bytes_of(tensor), old) for tensor, old in zip((values, packed), before, strict=True))


@given(case=moves())
def test_restore_undoes_pack(target: Target, case: tuple[Tables, torch.Tensor, torch.Tensor]) -> None:
    tables, values, _ = case
    layout = tables.build(target)
    restored = layout.restore(layout.pack(values))
    padding = layout.input_positions == -1
    assert_same_bits(restored[~padding], values[~padding])
    assert not bytes_of(restored[padding]).any()


@given(case=moves())
@example(case=(NOTHING, torch.zeros(0, 0, dtype=torch.complex128), torch.zeros(0, 3, 0, dtype=torch.complex128)))
def test_adjoints_are_those_of_the_reference(fast: Target, case: tuple[Tables, torch.Tensor, torch.Tensor]) -> None:
    """Any bits upstream (also NaN at padding) of any float dtype and strides."""
    tables, values, packed = case
    if not (values.dtype.is_floating_point or values.dtype.is_complex):
        values, packed = values.to(torch.float32), packed.to(torch.float32)
    layout, expected = tables.build(fast), tables.build(REFERENCE)
    assert_same_bits(fast.pack_gradient(layout, packed), REFERENCE.pack_gradient(expected, packed))
    assert_same_bits(fast.restore_gradient(layout, values), REFERENCE.restore_gradient(expected, values))


@given(tables=strategies.tables(), seed=st.integers(0, 100))
def test_adjoints_are_adjoint(target: Target, tables: Tables, seed: int) -> None:
    """<pack(x), y> = <x, adjoint(y)>, exact because all numbers are small integers."""
    layout = tables.build(target)
    generator = torch.Generator().manual_seed(seed)
    values, packed = (
        torch.randint(-8, 8, (*shape, 3), generator=generator).to(torch.float64)
        for shape in (layout.input_positions.shape, layout.source_indices.shape)
    )
    assert (layout.pack(values) * packed).sum() == (values * target.pack_gradient(layout, packed)).sum()
    assert (layout.restore(packed) * values).sum() == (packed * target.restore_gradient(layout, values)).sum()


@given(tables=strategies.tables(), size=st.integers(1, 4), data=st.data())
def test_shards_are_the_whole(target: Target, tables: Tables, size: int, data: st.DataObject) -> None:
    cut = Tables(
        tables.seq_lens,
        tables.seq_lens_padded,
        tables.input_shape,
        tables.alignment,
        tables.minimum_length,
        size * tables.alignment,
    )
    layout = cut.build(target)
    shards = [layout.shard(rank, size) for rank in range(size)]
    reference = cut.build(REFERENCE)
    for rank, shard in enumerate(shards):
        assert_same_layout(shard, reference.shard(rank, size))
    for name in ("source_indices", "position_ids", "sequence_ids", "padding_mask"):
        assert_same_bits(torch.cat([getattr(shard, name) for shard in shards], 1), getattr(layout, name))
    values = data.draw(strategies.payloads(cut.input_shape, dtypes=(torch.int64, torch.uint8)))
    packed = layout.pack(values, 7)
    assert_same_bits(torch.cat([shard.pack(values, 7) for shard in shards], 1), packed)
    pieces = packed.chunk(size, dim=1)
    restored = torch.stack([shard.restore(piece) for shard, piece in zip(shards, pieces, strict=True)])
    assert torch.equal(restored.sum(0).to(values.dtype), layout.restore(packed))


@given(tables=strategies.tables(), start=st.integers(-3, 3), stop=st.integers(-3, 3), step=st.integers(1, 2))
def test_row_slices(target: Target, tables: Tables, start: int, stop: int, step: int) -> None:
    layout = tables.build(target)
    rows = slice(start, stop, step)
    part = layout[rows]
    assert_same_layout(part, tables.build(REFERENCE)[rows])
    values = torch.arange(torch.Size(tables.input_shape).numel()).reshape(tables.input_shape)
    assert_same_bits(part.pack(values[rows]), layout.pack(values)[rows])
