"""Shifting a layout along its documents, for labels and for predicting several tokens ahead."""

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from alignpack.tables import read_integer
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
    # A layout that is shifted under inference mode must still serve training afterwards.
    with torch.inference_mode(False):
        source_indices = shifted_sources(layout.source_indices, layout.sequence_ids, k)
        input_positions = shifted_positions(layout.input_positions, source_indices, k)
    # What the slots are stays, so ids and positions are the same tensors: nothing may change a layout.
    return replace(layout, source_indices=source_indices, input_positions=input_positions)


def shifted_sources(source_indices: torch.Tensor, sequence_ids: torch.Tensor, k: int) -> torch.Tensor:
    """`[batch, padded_sequence]`: the source of the slot `k` further where that is of the same document, else -1."""
    padded_sequence = source_indices.shape[1]
    distance = min(abs(k), padded_sequence)
    near, far = slice(0, padded_sequence - distance), slice(distance, None)
    takes, gives, beyond = (near, far, (0, distance)) if k > 0 else (far, near, (distance, 0))
    shifted = torch.nn.functional.pad(source_indices[:, gives], beyond, value=-1)
    # At padding the source is -1 already, so that equal ids of padding do no harm.
    shifted[:, takes].masked_fill_(sequence_ids[:, takes] != sequence_ids[:, gives], -1)
    return shifted


def shifted_positions(input_positions: torch.Tensor, shifted_sources: torch.Tensor, k: int) -> torch.Tensor:
    """`[batch, original_sequence]`: the slot that takes each input slot after the shift, or -1.

    Only the slot `k` before the one that took it can take it now; whether it does, its source says. A slot that is
    beyond the row, or that of input padding, is cut to some slot of the row, and no such slot names this input slot.
    """
    padded_sequence = shifted_sources.shape[1]
    k = max(-padded_sequence, min(k, padded_sequence))
    slots = (input_positions - k).clamp_(0, padded_sequence - 1)
    columns = torch.arange(input_positions.shape[1], device=input_positions.device)
    return slots.masked_fill_(shifted_sources.gather(1, slots) != columns, -1)
