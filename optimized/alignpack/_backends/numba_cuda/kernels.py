"""The CUDA kernels: one source for the compiler and for Numba's simulator.

Plain functions whose loops stride by block and grid, so any launch is right. They call only `words`, and threads never
cooperate. `blockIdx.y` walks rows and `blockIdx.x` columns, which avoids division; offsets have 64 bits. A loop with an
`opaque` step is not unrolled: counting its turns would need a 64-bit division, and it mostly runs once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numba import cuda
from numba.types import int64

from alignpack._backends.numba_cuda.words import INT64, POINTERS, load, opaque, store, word


@dataclass(frozen=True)
class Kernel:
    """One kernel for one width of word.

    Attributes:
        function: its source.
        parameters: Numba types; pointers and int64 only, so that every argument is a Python int of 8 bytes.
    """

    name: str
    function: Callable[..., None]
    parameters: tuple[Any, ...]


def gather_wide(
    source: Any,
    index: Any,
    out: Any,
    low: int,
    high: int,
    batch: int,
    columns: int,
    slots: int,
    row_stride: int,
    slot_stride: int,
    width: int,
) -> None:
    """`out[b, p, :] = source[b, index[b, p], :]`, and the fill where the index is -1 or outside the row.

    Written out for `shapes.IN_FLIGHT` words a thread.

    Args:
        source: words; row b starts at `b * row_stride`, its slot s at `s * slot_stride` from there, dense.
        index: `[batch, columns]` int64.
        out: `[batch, columns, width]` words.
        low: the first 8 bytes of the fill.
        high: the other 8 bytes.
        batch: rows.
        columns: slots of a row of `out`.
        slots: slots of a row of `source`.
        row_stride: words.
        slot_stride: words.
        width: words of a slot. Threads of one `threadIdx.y` share a slot.
    """
    padding = word(out, low, high)
    step = int64(cuda.blockDim.x)
    b = int64(cuda.blockIdx.y)
    while b < batch:
        p = int64(cuda.blockIdx.x) * int64(cuda.blockDim.y) + int64(cuda.threadIdx.y)
        while p < columns:
            slot = load(index, b * columns + p)
            to = (b * columns + p) * width
            c = int64(cuda.threadIdx.x)
            if slot >= 0 and slot < slots:
                at = b * row_stride + slot * slot_stride
                while c < width:
                    c1 = c + step
                    c2 = c1 + step
                    c3 = c2 + step
                    v0 = load(source, at + c)
                    v1 = v0
                    v2 = v0
                    v3 = v0
                    if c1 < width:
                        v1 = load(source, at + c1)
                    if c2 < width:
                        v2 = load(source, at + c2)
                    if c3 < width:
                        v3 = load(source, at + c3)
                    store(out, to + c, v0)
                    if c1 < width:
                        store(out, to + c1, v1)
                    if c2 < width:
                        store(out, to + c2, v2)
                    if c3 < width:
                        store(out, to + c3, v3)
                    c = c3 + step
            else:
                while c < width:
                    store(out, to + c, padding)
                    c += step
            p += int64(cuda.gridDim.x) * int64(cuda.blockDim.y)
        b += int64(cuda.gridDim.y)


def gather_narrow(
    source: Any,
    index: Any,
    out: Any,
    low: int,
    high: int,
    batch: int,
    columns: int,
    slots: int,
    row_stride: int,
    slot_stride: int,
) -> None:
    """`gather_wide` for slots of one word: each thread has several slots in flight."""
    padding = word(out, low, high)
    step = int64(cuda.blockDim.x)
    stride = int64(cuda.gridDim.x) * step * 4
    b = int64(cuda.blockIdx.y)
    while b < batch:
        at = b * row_stride
        to = b * columns
        p = int64(cuda.blockIdx.x) * step * 4 + int64(cuda.threadIdx.x)
        while p < columns:
            p1 = p + step
            p2 = p1 + step
            p3 = p2 + step
            s0 = load(index, to + p)
            s1 = int64(-1)
            s2 = int64(-1)
            s3 = int64(-1)
            if p1 < columns:
                s1 = load(index, to + p1)
            if p2 < columns:
                s2 = load(index, to + p2)
            if p3 < columns:
                s3 = load(index, to + p3)
            v0 = padding
            v1 = padding
            v2 = padding
            v3 = padding
            if s0 >= 0 and s0 < slots:
                v0 = load(source, at + s0 * slot_stride)
            if s1 >= 0 and s1 < slots:
                v1 = load(source, at + s1 * slot_stride)
            if s2 >= 0 and s2 < slots:
                v2 = load(source, at + s2 * slot_stride)
            if s3 >= 0 and s3 < slots:
                v3 = load(source, at + s3 * slot_stride)
            store(out, to + p, v0)
            if p1 < columns:
                store(out, to + p1, v1)
            if p2 < columns:
                store(out, to + p2, v2)
            if p3 < columns:
                store(out, to + p3, v3)
            p += opaque(stride)
        b += int64(cuda.gridDim.y)


def write_layout(
    tables: Any,
    source_indices: Any,
    input_positions: Any,
    position_ids: Any,
    sequence_ids: Any,
    batch: int,
    documents: int,
    columns: int,
    slots: int,
) -> None:
    """The four fields of a layout from checked tables.

    Every slot finds its document, the last that starts at or before it, by bisection. A thread per document would not
    search, but a long document would keep one thread busy and short ones would write in pieces. The threads of a warp
    take the same turns, and the tables stay in the cache.

    Args:
        tables: `[3, batch, documents]` int64: lengths, starts in the input row, starts in the packed row. Starts never
            fall; a document that is absent has length 0 and starts where the next one does.
        source_indices: `[batch, columns]` int64, written.
        input_positions: `[batch, slots]` int64, written.
        position_ids: `[batch, columns]` int64, written.
        sequence_ids: `[batch, columns]` int64, written.
        batch: rows.
        documents: columns of the tables.
        columns: slots of a packed row.
        slots: slots of an input row.
    """
    step = int64(cuda.gridDim.x) * int64(cuda.blockDim.x)
    first = int64(cuda.blockIdx.x) * int64(cuda.blockDim.x) + int64(cuda.threadIdx.x)
    b = int64(cuda.blockIdx.y)
    while b < batch:
        lengths = b * documents
        input_starts = lengths + batch * documents
        packed_starts = input_starts + batch * documents

        p = first
        while p < columns:
            begin = int64(0)
            end = documents
            while begin < end:
                middle = (begin + end) >> 1
                if load(tables, packed_starts + middle) <= p:
                    begin = middle + 1
                else:
                    end = middle
            source = int64(-1)
            position = int64(0)
            sequence = int64(0)
            if begin > 0:
                inside = p - load(tables, packed_starts + begin - 1)
                if inside < load(tables, lengths + begin - 1):
                    source = load(tables, input_starts + begin - 1) + inside
                    position = inside
                    sequence = begin
            store(source_indices, b * columns + p, source)
            store(position_ids, b * columns + p, position)
            store(sequence_ids, b * columns + p, sequence)
            p += opaque(step)

        s = first
        while s < slots:
            begin = int64(0)
            end = documents
            while begin < end:
                middle = (begin + end) >> 1
                if load(tables, input_starts + middle) <= s:
                    begin = middle + 1
                else:
                    end = middle
            column = int64(-1)
            if begin > 0:
                inside = s - load(tables, input_starts + begin - 1)
                if inside < load(tables, lengths + begin - 1):
                    column = load(tables, packed_starts + begin - 1) + inside
            store(input_positions, b * slots + s, column)
            s += opaque(step)
        b += int64(cuda.gridDim.y)


def _gather(name: str, function: Callable[..., None], word_bytes: int, integers: int) -> Kernel:
    pointer = POINTERS[word_bytes]
    return Kernel(f"{name}_{word_bytes}", function, (pointer, INT64, pointer, *[int64] * integers))


GATHER_WIDE = {word_bytes: _gather("gather_wide", gather_wide, word_bytes, 8) for word_bytes in POINTERS}
GATHER_NARROW = {word_bytes: _gather("gather_narrow", gather_narrow, word_bytes, 7) for word_bytes in POINTERS}
WRITE_LAYOUT = Kernel("write_layout", write_layout, (*[INT64] * 5, *[int64] * 4))

KERNELS = (*GATHER_WIDE.values(), *GATHER_NARROW.values(), WRITE_LAYOUT)
