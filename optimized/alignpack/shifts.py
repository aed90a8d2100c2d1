"""Shifting a layout along its documents, for labels and for predicting several tokens ahead."""

from dataclasses import replace
from typing import TYPE_CHECKING

from alignpack.implementations import select_backend_for
from alignpack.tables import read_integer
from alignpack.watchers import fit_for_training
from alignpack_reference import errors

if TYPE_CHECKING:
    from alignpack.layout import PackedSequenceLayout


def shift_layout(layout: "PackedSequenceLayout", k: int) -> "PackedSequenceLayout":
    """The layout whose slots take the tokens `k` further; see `PackedSequenceLayout.shift`."""
    k = read_integer("k", k)
    padded_sequence = layout.source_indices.shape[1]
    # A shard of one rank is a shard, too, or code would run on one rank and fail on two.
    if layout.row_length is not None:
        raise errors.shifted_shard(layout.offset, padded_sequence, layout.row_length)
    if k == 0:
        return layout
    with fit_for_training():
        backend = select_backend_for(layout.source_indices, layout.input_positions, layout.sequence_ids)
        source_indices, input_positions = backend.shift_maps(
            layout.source_indices, layout.input_positions, layout.sequence_ids, k
        )
    # What the slots are stays, so ids and positions are the same tensors: nothing may change a layout.
    return replace(layout, source_indices=source_indices, input_positions=input_positions)
