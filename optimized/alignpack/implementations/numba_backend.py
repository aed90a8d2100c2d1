"""The backend of compiled loops, on the CPU here, on GPUs in `numba_cuda`. Numba is imported when a call needs it."""

import functools
import os
from types import ModuleType

import torch

from alignpack.implementations import numba_cuda, torch_backend
from alignpack.implementations.host_threads import over_parts
from alignpack.tables import LengthTables
from alignpack_reference import errors

_CPU = torch.device("cpu")


def unavailable(device: torch.device) -> str | None:
    """Why it cannot run on the device; this is on the way of every call."""
    if device == _CPU or device.type == "cpu":  # the usual case is quick; "cpu:0" is another
        return _not_importable()
    return numba_cuda.unavailable(device) if device.type == "cuda" else "it runs on cpu and cuda only"


@functools.cache
def _not_importable() -> str | None:
    if os.environ.get("NUMBA_DISABLE_JIT", "0") != "0":
        return "NUMBA_DISABLE_JIT is set"
    try:
        _kernels()
    except ImportError as error:  # it is not there, or does not fit to what is
        return f"numba cannot be imported: {error}"
    return None


@functools.cache
def _kernels() -> ModuleType:
    from alignpack.implementations import host_kernels

    return host_kernels


def build_fields(
    tables: LengthTables, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The four fields of a layout, in their order.

    Raises:
        LayoutError: the first document, in row-major order, that the input row cannot hold.
        ValueError: packed rows would have too many slots.
    """
    if device.type == "cuda":
        return numba_cuda.build_fields(tables, device)
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
    # Like the table, whatever the default device is.
    new_empty = tables.lengths.new_empty
    source_indices = new_empty(batch, padded_sequence)
    input_positions = new_empty(batch, tables.original_sequence)
    position_ids, sequence_ids = new_empty(batch, padded_sequence), new_empty(batch, padded_sequence)
    fields = source_indices, input_positions, position_ids, sequence_ids
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
    over_parts(
        3 * source_indices.nbytes + input_positions.nbytes, batch, kernels.fill_fields, arguments, (tables, fields)
    )
    return fields


def gather_rows(values: torch.Tensor, index: torch.Tensor, words: tuple[int, ...]) -> torch.Tensor:
    """`out[b, i] = values[b, index[b, i]]`, and the fill where `index` is -1.

    Raises:
        IndexError: on the CPU, an index that is neither -1 nor a slot of `values`.
    """
    if values.is_cuda:
        return numba_cuda.gather_rows(values, index, words)
    batch, columns = index.shape
    if index.dtype is not torch.int64 or batch != values.shape[0] or not index.is_cpu:
        return torch_backend.gather_rows(values, index, words)  # no layout of ours: PyTorch says what is wrong
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
        if not _is_dense(values):
            values = values.contiguous()
        row_stride, slot_stride = (stride * values.itemsize for stride in values.stride()[:2])
    if not index.is_contiguous():
        index = index.contiguous()
    fill = second_fill = 0
    if words[0] or words[-1]:
        word_size = values.itemsize // len(words)
        fill, second_fill = _eight_bytes(words[0], word_size), _eight_bytes(words[-1], word_size)
    arguments = (
        values.data_ptr(),
        row_stride,
        slot_stride,
        shape[1],
        index.data_ptr(),
        columns,
        result.data_ptr(),
        size,
        fill,
        second_fill,
    )
    memory = values, index, result
    for wrong in over_parts(total, batch * columns, _kernels().move_rows, arguments, memory):
        if wrong >= 0:
            row, column = divmod(wrong, columns)
            raise errors.no_such_slot(row, column, int(index[row, column]), shape[1])
    return result


def _is_dense(values: torch.Tensor) -> bool:
    """Whether each slot is one block of memory, its axes in their order; where the slots are does not matter."""
    expected = 1
    for stride, size in zip(reversed(values.stride()[2:]), reversed(values.shape[2:]), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _eight_bytes(word: int, size: int) -> int:
    """A word of so many bytes, repeated over eight, as an integer; all platforms of Numba are little-endian."""
    return int.from_bytes(word.to_bytes(size, "little", signed=True) * (8 // size), "little", signed=True)
