"""What layouts give beside moves, by compiled loops on the CPU."""

import torch

from alignpack.implementations import numba_backend, torch_derived
from alignpack.implementations.host_threads import over_parts


def group_fields(
    sequence_ids: torch.Tensor, position_ids: torch.Tensor, offset: int, ratio: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The six tensors of `CompressionGroups`, in their order, from the ids and positions of all slots."""
    if not _alike(sequence_ids, position_ids) or sequence_ids.shape[1] % ratio:
        return torch_derived.group_fields(sequence_ids, position_ids, offset, ratio)  # PyTorch says what is wrong
    sequence_ids, position_ids = sequence_ids.contiguous(), position_ids.contiguous()
    batch, slots = sequence_ids.shape
    shape = (batch, slots // ratio)
    fields = (
        sequence_ids.new_empty(shape),
        sequence_ids.new_empty(shape),
        sequence_ids.new_empty(shape, dtype=torch.bool),
        sequence_ids.new_empty(shape, dtype=torch.bool),
        torch.empty_like(sequence_ids),
        torch.empty_like(sequence_ids),
    )
    arguments = (
        sequence_ids.data_ptr(),
        position_ids.data_ptr(),
        slots,
        ratio,
        *torch_derived.reciprocal(ratio),
        offset,
        *(field.data_ptr() for field in fields),
    )
    memory = sequence_ids, position_ids, fields
    over_parts(sum(field.nbytes for field in fields), batch, numba_backend._kernels().fill_groups, arguments, memory)
    return fields


def shift_maps(
    source_indices: torch.Tensor, input_positions: torch.Tensor, sequence_ids: torch.Tensor, k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """`source_indices` and `input_positions` of the layout whose slots take the tokens `k` further."""
    batch, slots = source_indices.shape
    if not _alike(source_indices, sequence_ids) or input_positions.shape[0] != batch:
        return torch_derived.shift_maps(source_indices, input_positions, sequence_ids, k)  # PyTorch says what is wrong
    source_indices, sequence_ids = source_indices.contiguous(), sequence_ids.contiguous()
    columns = input_positions.shape[1]
    shifted_sources = torch.empty_like(source_indices)
    shifted_positions = source_indices.new_empty((batch, columns))
    arguments = (
        source_indices.data_ptr(),
        sequence_ids.data_ptr(),
        slots,
        columns,
        max(-slots, min(k, slots)),
        shifted_sources.data_ptr(),
        shifted_positions.data_ptr(),
    )
    memory = source_indices, sequence_ids, shifted_sources, shifted_positions
    written = shifted_sources.nbytes + shifted_positions.nbytes
    over_parts(written, batch, numba_backend._kernels().shift_maps, arguments, memory)
    return shifted_sources, shifted_positions


def _alike(field: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the kernels can read both: constructors check nothing, and an address has no length."""
    return (
        field.shape == other.shape
        and field.ndim == 2
        and field.dtype is other.dtype is torch.int64
        and field.is_cpu
        and other.is_cpu
    )
