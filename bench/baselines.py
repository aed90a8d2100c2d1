"""What people write without alignpack: the forms that the benches hold it against.

Plain and decent, not slow on purpose: no work that the result does not need, and indices prepared where they can be.
"""

from dataclasses import dataclass

import torch

Fields = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def loop_layout(
    seq_lens: torch.Tensor, seq_lens_padded: torch.Tensor, input_shape: tuple[int, int], alignment: int
) -> Fields:
    """The four fields of a layout, document by document; nothing is checked.

    Args:
        seq_lens: `[batch, documents]` int64 on the host, the tokens of each document; 0 where there is none.
        seq_lens_padded: `[batch, documents]` int64 on the host, the slots that each document occupies.
        input_shape: `(batch, original_sequence)`.
        alignment: documents start at multiples of it, in slots.

    Returns:
        `source_indices`, `input_positions`, `position_ids`, `sequence_ids`, as in `alignpack.PackedSequenceLayout`.
    """
    batch, original_sequence = input_shape
    all_lengths, all_spans = seq_lens.tolist(), seq_lens_padded.tolist()
    padded_sequence = max(sum(_aligned(length, alignment) for length in lengths) for lengths in all_lengths)
    source_indices = torch.full((batch, padded_sequence), -1)
    input_positions = torch.full((batch, original_sequence), -1)
    position_ids = torch.zeros(batch, padded_sequence, dtype=torch.int64)
    sequence_ids = torch.zeros(batch, padded_sequence, dtype=torch.int64)
    # Slices of one ready-made range are quicker than a range per document.
    columns = torch.arange(max(padded_sequence, original_sequence))
    for row, (lengths, spans) in enumerate(zip(all_lengths, all_spans, strict=True)):
        start = packed_start = 0
        for document, (length, span) in enumerate(zip(lengths, spans, strict=True)):
            if length:
                end, packed_end = start + length, packed_start + length
                source_indices[row, packed_start:packed_end] = columns[start:end]
                input_positions[row, start:end] = columns[packed_start:packed_end]
                position_ids[row, packed_start:packed_end] = columns[:length]
                sequence_ids[row, packed_start:packed_end] = document + 1
            start += span
            packed_start += _aligned(length, alignment)
    return source_indices, input_positions, position_ids, sequence_ids


@dataclass(frozen=True)
class ComposedIndices:
    """A map of a layout in the form in which `composed_pack` takes them, so that no pack pays for the conversion.

    Attributes:
        rows: `[batch, 1]` int64.
        columns: `[batch, padded_sequence]` int64; 0 at padding.
        padding: `[batch, padded_sequence]` bool.
    """

    rows: torch.Tensor
    columns: torch.Tensor
    padding: torch.Tensor

    @classmethod
    def of(cls, index: torch.Tensor) -> "ComposedIndices":
        """A map of a layout: `source_indices` to pack, `input_positions` to restore."""
        rows = torch.arange(index.shape[0], device=index.device).unsqueeze(1)
        return cls(rows, index.clamp_min(0), index < 0)


def composed_pack(values: torch.Tensor, indices: ComposedIndices, fill: float = 0) -> torch.Tensor:
    """`[batch, original_sequence, ...]` -> `[batch, padded_sequence, ...]` in two public operations."""
    moved = values[indices.rows, indices.columns]
    padding = indices.padding.reshape(indices.padding.shape + (1,) * (values.ndim - 2))
    return moved.masked_fill(padding, fill)


def composed_groups(
    sequence_ids: torch.Tensor, position_ids: torch.Tensor, ratio: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The six tensors of `alignpack.CompressionGroups` of a whole row, in their order, from `[batch, slots]` int64."""
    ids, positions = sequence_ids[:, ::ratio].contiguous(), position_ids[:, ::ratio].contiguous()
    real = sequence_ids != 0
    complete = real.unflatten(1, (-1, ratio)).all(dim=2)
    columns = torch.arange(sequence_ids.shape[1], device=sequence_ids.device)
    starts = (columns - position_ids) // ratio
    ends = starts + (position_ids + 1) // ratio
    zero = starts.new_zeros(())
    return ids, positions, complete, (ids != 0) & (positions == 0), starts.where(real, zero), ends.where(real, zero)


def composed_shift(
    source_indices: torch.Tensor, sequence_ids: torch.Tensor, original_sequence: int, k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both maps of a layout `[batch, padded_sequence]` whose slots take the tokens `k` further, `k` above 0."""
    sources = torch.full_like(source_indices, -1)
    same = sequence_ids[:, k:] == sequence_ids[:, :-k]
    sources[:, :-k] = torch.where(same, source_indices[:, k:], -1)
    # What is taken from nowhere is written behind the row, and cut off.
    positions = torch.full((sources.shape[0], original_sequence + 1), -1, device=sources.device)
    columns = torch.arange(sources.shape[1], device=sources.device).expand_as(sources)
    positions.scatter_(1, sources.where(sources >= 0, sources.new_tensor(original_sequence)), columns)
    return sources, positions[:, :-1].contiguous()


def _aligned(length: int, alignment: int) -> int:
    return -(-length // alignment) * alignment
