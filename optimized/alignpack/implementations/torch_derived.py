"""What layouts give beside moves, on any torch device: whole-tensor operations, for which the host never waits."""

import torch


def group_fields(
    sequence_ids: torch.Tensor, position_ids: torch.Tensor, offset: int, ratio: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The six tensors of `CompressionGroups`, in their order, from the ids and positions of all slots.

    A document starts where a group starts, and its tokens follow each other. So the first slot of a group says
    whose it is, and the last one whether it is whole.
    """
    batch, slots = sequence_ids.shape
    ids, positions = (tensor.view(batch, slots // ratio, ratio) for tensor in (sequence_ids, position_ids))
    group_ids, group_positions = (
        tensor[:, :, 0].clone(memory_format=torch.contiguous_format) for tensor in (ids, positions)
    )
    complete = ids[:, :, -1] != 0
    first = group_positions < group_ids.clamp(0, 1)

    # What a shard cannot see of its document, the positions tell: where the document starts follows from them alone.
    multiplier, shift = reciprocal(ratio)
    columns = torch.arange(offset // ratio, (offset + slots) // ratio, device=sequence_ids.device)
    document_starts = torch.sub(columns, group_positions.mul(multiplier).bitwise_right_shift_(shift))
    # With `start + position = offset + slot`, and starts that are multiples of the ratio, `visible_end` is the same for
    # a column of all rows.
    ends = torch.arange(offset + 1, offset + slots + 1, device=sequence_ids.device)
    ends.mul_(multiplier).bitwise_right_shift_(shift)
    # On a CPU integers of 64 bits are masked in half the time in which they are multiplied or chosen.
    real = sequence_ids.clamp(0, 1).neg_()  # all bits set at tokens, none at padding
    visible_start = document_starts.repeat_interleave(ratio, dim=1, output_size=slots).bitwise_and_(real)
    return group_ids, group_positions, complete, first, visible_start, real.bitwise_and_(ends)


def reciprocal(divisor: int) -> tuple[int, int]:
    """`(multiplier, shift)` such that `x // divisor` is `x * multiplier >> shift` for 0 <= x < 2**31.

    A processor takes many times as long to divide as to multiply, and does not divide several integers at once.
    """
    # A multiplier that is too large by less than one makes the product too large by less than x / 2**shift, and that is
    # less than 1 / divisor, the least by which a quotient misses the next integer. The product has 63 bits.
    shift = 31 + (divisor - 1).bit_length()
    return (1 << shift) // divisor + 1, shift


def shift_maps(
    source_indices: torch.Tensor, input_positions: torch.Tensor, sequence_ids: torch.Tensor, k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """`source_indices` and `input_positions` of the layout whose slots take the tokens `k` further."""
    sources = _shifted_sources(source_indices, sequence_ids, k)
    return sources, _shifted_positions(input_positions, sources, k)


def _shifted_sources(source_indices: torch.Tensor, sequence_ids: torch.Tensor, k: int) -> torch.Tensor:
    """`[batch, padded_sequence]`: the source of the slot `k` further where that is of the same document, else -1."""
    padded_sequence = source_indices.shape[1]
    distance = min(abs(k), padded_sequence)
    near, far = slice(0, padded_sequence - distance), slice(distance, None)
    takes, gives, beyond = (near, far, (0, distance)) if k > 0 else (far, near, (distance, 0))
    shifted = torch.nn.functional.pad(source_indices[:, gives], beyond, value=-1)
    # At padding the source is -1 already, so that equal ids of padding do no harm.
    shifted[:, takes].masked_fill_(sequence_ids[:, takes] != sequence_ids[:, gives], -1)
    return shifted


def _shifted_positions(input_positions: torch.Tensor, shifted_sources: torch.Tensor, k: int) -> torch.Tensor:
    """`[batch, original_sequence]`: the slot that takes each input slot after the shift, or -1.

    Only the slot `k` before the one that took it can take it now; whether it does, its source says. A slot that is
    beyond the row, or that of input padding, is cut to some slot of the row, and no such slot names this input slot.
    """
    padded_sequence = shifted_sources.shape[1]
    k = max(-padded_sequence, min(k, padded_sequence))
    slots = (input_positions - k).clamp_(0, padded_sequence - 1)
    columns = torch.arange(input_positions.shape[1], device=input_positions.device)
    return slots.masked_fill_(shifted_sources.gather(1, slots) != columns, -1)
