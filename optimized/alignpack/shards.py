"""Cutting a layout into the parts that ranks hold under contiguous context parallelism."""

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from alignpack.tables import integer_at_least
from alignpack.watchers import fit_for_training
from alignpack_reference import errors

if TYPE_CHECKING:
    from alignpack.layout import PackedSequenceLayout


def shard_layout(layout: "PackedSequenceLayout", rank: int, size: int) -> "PackedSequenceLayout":
    """The columns that one rank holds; see `PackedSequenceLayout.shard`."""
    size = integer_at_least("size", size, 1)
    rank = integer_at_least("rank", rank, 0)
    if rank >= size:
        raise errors.bad_shard(rank, size)
    padded_sequence = layout.source_indices.shape[1]
    row_length = padded_sequence if layout.row_length is None else layout.row_length
    if padded_sequence % (size * layout.alignment):
        shards_of_row = row_length // padded_sequence * size
        raise errors.uneven_shards(padded_sequence, size, layout.alignment, shards_of_row * layout.alignment)
    width = padded_sequence // size
    start = rank * width
    with fit_for_training():
        local = layout.input_positions - start
        local.masked_fill_((local < 0) | (local >= width), -1)
        source_indices, position_ids, sequence_ids = (
            field[:, start : start + width].clone(memory_format=torch.contiguous_format)
            for field in (layout.source_indices, layout.position_ids, layout.sequence_ids)
        )
    return replace(
        layout,
        source_indices=source_indices,
        input_positions=local,
        position_ids=position_ids,
        sequence_ids=sequence_ids,
        offset=layout.offset + start,
        row_length=row_length,
    )
