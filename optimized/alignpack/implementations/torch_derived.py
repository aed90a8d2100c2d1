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
    padded_sequence = source_indices.shape[1]
    distance = min(abs(k), padded_sequence)
    near, far = slice(0, padded_sequence - distance), slice(distance, None)
    takes, gives, before, behind = (near, far, 0, distance) if k > 0 else (far, near, distance, 0)
    # All bits set, which is -1, where the two slots are of different documents. At padding the source is -1 already, so
    # that equal ids of padding do no harm.
    other = (sequence_ids[:, takes] ^ sequence_ids[:, gives]).neg_().bitwise_right_shift_(63)
    sources = torch.nn.functional.pad(source_indices[:, gives] | other, (before, behind), value=-1)
    # The slot that takes what each slot took before; in front of them stands what input padding, -1, finds.
    slots = torch.arange(padded_sequence, device=source_indices.device)
    takers = torch.nn.functional.pad(other.bitwise_or_(slots[takes]), (1 + behind, before), value=-1)
    return sources, takers.gather(1, input_positions + 1)
