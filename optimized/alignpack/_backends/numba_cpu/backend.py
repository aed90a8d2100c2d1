"""The `numba` backend on the CPU. Numba is imported when a call needs it."""

import functools
from types import ModuleType

import torch

from alignpack._backends import torch_backend
from alignpack._backends.forks import IMPORTING
from alignpack._backends.interface import Backend, GroupFields, LayoutFields, ShiftedMaps
from alignpack._backends.numba_cpu.threads import run_in_threads
from alignpack._inputs.tables import LengthTables
from alignpack._inputs.words import byte_strides, fill_pattern, slots_are_dense


@functools.cache
def unavailable(_device: torch.device) -> str | None:
    """Why Numba cannot compile in this process, or None."""
    try:
        with IMPORTING:
            from numba import config

            if config.DISABLE_JIT:  # type: ignore[attr-defined]  # set while Numba is imported
                return (
                    "Numba may not compile: its configuration has DISABLE_JIT (the environment, .numba_config.yaml or "
                    "code)"
                )
            _kernels()
    except ImportError as error:  # missing, or incompatible with what is installed
        return f"numba cannot be imported: {error}"
    return None


@functools.cache
def _kernels() -> ModuleType:
    with IMPORTING:
        from alignpack._backends.numba_cpu import kernels

    return kernels


def build_fields(tables: LengthTables, _device: torch.device) -> LayoutFields:
    """The four fields of a layout, in their order."""
    kernels = _kernels()
    batch, documents = tables.lengths.shape
    lengths = tables.lengths.data_ptr()
    spans = 0 if tables.spans is None else tables.spans.data_ptr()
    row, document, groups = kernels.scan_tables(
        lengths, spans, batch, documents, tables.original_sequence, tables.alignment
    )
    if row >= 0:
        raise tables.fault(row, document)
    padded_sequence = tables.padded_sequence(groups)
    # On the host like the tables, whatever the default device is.
    new_empty = tables.lengths.new_empty
    source_indices = new_empty(batch, padded_sequence)
    input_positions = new_empty(batch, tables.original_sequence)
    position_ids, sequence_ids = new_empty(batch, padded_sequence), new_empty(batch, padded_sequence)
    fields = LayoutFields(source_indices, input_positions, position_ids, sequence_ids)
    arguments = (
        lengths,
        spans,
        documents,
        tables.original_sequence,
        padded_sequence,
        tables.alignment,
        source_indices.data_ptr(),
        input_positions.data_ptr(),
        position_ids.data_ptr(),
        sequence_ids.data_ptr(),
    )
    run_in_threads(
        3 * source_indices.nbytes + input_positions.nbytes, batch, kernels.write_layout, arguments, (tables, fields)
    )
    return fields


def gather_slots(values: torch.Tensor, index: torch.Tensor, words: tuple[int, ...]) -> torch.Tensor:
    """`out[b, i] = values[b, index[b, i]]`, and the fill where `index` is -1.

    Raises:
        IndexError: an index that is neither -1 nor a slot of `values`.
    """
    batch, columns = index.shape
    if index.dtype is not torch.int64 or batch != values.shape[0] or not index.is_cpu:
        return torch_backend.gather_slots(values, index, words)  # a map built by hand: PyTorch raises the error
    if values.is_conj() or values.is_neg():
        values = values.resolve_conj().resolve_neg()
    shape = values.shape
    result = values.new_empty((batch, columns, *shape[2:]))
    total = result.nbytes
    if total == 0:
        return result
    size = total // (batch * columns)
    if values.is_contiguous():
        row_stride, slot_stride = shape[1] * size, size
    else:
        if not slots_are_dense(values):
            values = values.contiguous()
        row_stride, slot_stride = byte_strides(values)
    if not index.is_contiguous():
        index = index.contiguous()
    arguments = (
        values.data_ptr(),
        row_stride,
        slot_stride,
        shape[1],
        index.data_ptr(),
        columns,
        result.data_ptr(),
        size,
        *fill_pattern(words, values.itemsize),
    )
    memory = values, index, result
    for wrong in run_in_threads(total, batch * columns, _kernels().gather_slots, arguments, memory):
        if wrong >= 0:
            row, column = divmod(wrong, columns)
            raise IndexError(
                f"the layout's map holds {int(index[row, column])} at row {row}, column {column}; it must be -1 or "
                f"below {shape[1]}"
            )
    return result


def group_fields(sequence_ids: torch.Tensor, position_ids: torch.Tensor, offset: int, ratio: int) -> GroupFields:
    """The six tensors of `CompressionGroups`, in their order, from the ids and positions of all slots."""
    if not _alike(sequence_ids, position_ids) or sequence_ids.shape[1] % ratio:
        return torch_backend.group_fields(
            sequence_ids, position_ids, offset, ratio
        )  # built by hand: PyTorch raises the error
    sequence_ids, position_ids = sequence_ids.contiguous(), position_ids.contiguous()
    batch, slots = sequence_ids.shape
    shape = (batch, slots // ratio)
    fields = GroupFields(
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
        *torch_backend.reciprocal(ratio),
        offset,
        *(field.data_ptr() for field in fields),
    )
    memory = sequence_ids, position_ids, fields
    run_in_threads(sum(field.nbytes for field in fields), batch, _kernels().write_groups, arguments, memory)
    return fields


def shift_maps(
    source_indices: torch.Tensor, input_positions: torch.Tensor, sequence_ids: torch.Tensor, k: int
) -> ShiftedMaps:
    """`source_indices` and `input_positions` of the layout whose slots take the tokens `k` further."""
    batch, slots = source_indices.shape
    if not _alike(source_indices, sequence_ids) or input_positions.shape[0] != batch:
        return torch_backend.shift_maps(
            source_indices, input_positions, sequence_ids, k
        )  # built by hand: PyTorch raises the error
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
    run_in_threads(written, batch, _kernels().write_shifted_maps, arguments, memory)
    return ShiftedMaps(shifted_sources, shifted_positions)


def _alike(field: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the kernels may read the maps: the constructor checks nothing, and kernels see only addresses."""
    return (
        field.shape == other.shape
        and field.ndim == 2
        and field.dtype is other.dtype is torch.int64
        and field.is_cpu
        and other.is_cpu
    )


def warmup(device: torch.device) -> None:
    """Compile every kernel, or load it from disk."""
    one_token = LengthTables(torch.ones(1, 1, dtype=torch.int64, device="cpu"), None, 1, 1, 0, None)
    source_indices, input_positions, position_ids, sequence_ids = build_fields(one_token, device)
    gather_slots(position_ids, source_indices, (0,))
    group_fields(sequence_ids, position_ids, 0, 1)
    shift_maps(source_indices, input_positions, sequence_ids, 1)


BACKEND = Backend("numba", "cpu", unavailable, build_fields, gather_slots, group_fields, shift_maps, warmup)
