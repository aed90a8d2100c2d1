"""The `numba` backend on GPUs: one launch for a move, one for a layout, and no wait for the device.

It works out the arguments of each kernel from addresses, strides and sizes alone, so all of it is tested without a GPU:
`launch.launching_with` puts Numba's simulator in the GPU's place, and host tensors take the place of CUDA tensors.
"""

import functools
from types import ModuleType

import numpy as np
import torch

from alignpack._backends import torch_backend
from alignpack._backends.forks import IMPORTING
from alignpack._backends.interface import Backend, LayoutFields
from alignpack._backends.numba_cuda import shapes, support
from alignpack._inputs.tables import LengthTables, place_documents
from alignpack._inputs.words import byte_strides, fill_pattern, slots_are_dense


def unavailable(device: torch.device) -> str | None:
    """Why the kernels do not run on a CUDA device, or None."""
    return support.missing(_with_index(device))


def warmup(device: torch.device) -> None:
    """Compile and load every kernel, which takes seconds; needed before a graph capture."""
    _modules()[1].load_all(_with_index(device))


@functools.cache
def _modules() -> tuple[ModuleType, ModuleType]:
    """The kernels and their launcher, which import Numba."""
    with IMPORTING:
        from alignpack._backends.numba_cuda import kernels, launch

    return kernels, launch


def build_fields(tables: LengthTables, device: torch.device) -> LayoutFields:
    """The four fields of a layout, in their order: one copy of the tables to the device, one launch."""
    kernels, launching = _modules()
    placed = place_documents(tables)
    device = _with_index(device)
    batch, documents = placed.lengths.shape
    columns, slots = placed.padded_sequence, placed.original_sequence
    packed = tuple(torch.empty(batch, columns, dtype=torch.int64, device=device) for _ in range(3))
    input_positions = torch.empty(batch, slots, dtype=torch.int64, device=device)
    source_indices, position_ids, sequence_ids = packed
    if batch:
        # Page-locked memory is copied while the host goes on, and PyTorch keeps it until the copy is done.
        pinned = device.type == "cuda"
        host = torch.empty(3, batch, documents, dtype=torch.int64, device="cpu", pin_memory=pinned)
        np.stack((placed.lengths, placed.input_starts, placed.packed_starts), out=host.numpy())
        sent = host.to(device, non_blocking=True)
        launching.launcher().launch(
            kernels.WRITE_LAYOUT,
            device,
            *shapes.layout_shape(batch, max(columns, slots)),
            sent.data_ptr(),
            source_indices.data_ptr(),
            input_positions.data_ptr(),
            position_ids.data_ptr(),
            sequence_ids.data_ptr(),
            batch,
            documents,
            columns,
            slots,
        )
    return LayoutFields(source_indices, input_positions, position_ids, sequence_ids)


def gather_slots(values: torch.Tensor, index: torch.Tensor, words: tuple[int, ...]) -> torch.Tensor:
    """`out[b, i] = values[b, index[b, i]]`, and the fill where `index` is outside `values`.

    Where a map built by hand points past its row, the slot gets the fill, because a kernel cannot raise.
    """
    if index.dtype is not torch.int64 or index.shape[0] != values.shape[0] or index.device != values.device:
        return torch_backend.gather_slots(values, index, words)  # a map built by hand: PyTorch raises the error
    out = values.new_empty(index.shape + values.shape[2:])
    gather_into(out, values, index, words)
    return out


def gather_into(out: torch.Tensor, values: torch.Tensor, index: torch.Tensor, words: tuple[int, ...]) -> None:
    """`gather_slots` into an existing tensor.

    Args:
        out: `[batch, columns, ...]`, contiguous, aligned to its elements.
        values: `[batch, slots, ...]` of the same dtype, any strides. Where the trailing axes are dense they are read in
            place, otherwise copied first.
        index: `[batch, columns]` int64.
        words: the fill's bits.
    """
    total = out.nbytes
    if total == 0:
        return
    batch, columns = index.shape
    slots = values.shape[1]
    row_bytes = total // (batch * columns)
    size = out.itemsize
    if not index.is_contiguous() or index.data_ptr() % 8:
        index = index.clone(memory_format=torch.contiguous_format)
    source = _readable(values)
    row_stride, slot_stride = byte_strides(source)
    start, to = source.data_ptr(), out.data_ptr()
    word = _widest_word(start | to | row_bytes | row_stride | slot_stride)
    width = row_bytes // word
    arguments = (
        start,
        index.data_ptr(),
        to,
        *fill_pattern(words, size),
        batch,
        columns,
        slots,
        row_stride // word,
        slot_stride // word,
    )
    kernels, launching = _modules()
    grid, block = shapes.gather_shape(batch, columns, width, word)
    launch = launching.launcher().launch
    if width == 1:
        launch(kernels.GATHER_NARROW[word], values.device, grid, block, *arguments)
    else:
        launch(kernels.GATHER_WIDE[word], values.device, grid, block, *arguments, width)


def _readable(values: torch.Tensor) -> torch.Tensor:
    """The values, or a copy where a kernel cannot read them in place."""
    if values.is_conj() or values.is_neg():
        return values.clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()
    # A word narrower than an element would hold only a part of the fill.
    aligned = values.data_ptr() % values.itemsize == 0
    if aligned and (values.is_contiguous() or slots_are_dense(values)):
        return values
    return values.clone(memory_format=torch.contiguous_format)


def _widest_word(bits: int) -> int:
    """The largest word that divides every address, stride and size whose bits are in `bits`."""
    return min(16, bits & -bits)


def _with_index(device: torch.device) -> torch.device:
    if device.type == "cuda" and device.index is None and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return device


BACKEND = Backend(
    "numba",
    "cuda",
    unavailable,
    build_fields,
    gather_slots,
    torch_backend.group_fields,
    torch_backend.shift_maps,
    warmup,
)
