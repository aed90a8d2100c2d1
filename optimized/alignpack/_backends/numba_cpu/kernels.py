"""The loops of the numba backend on the CPU.

Arrays are passed as addresses, because subscripts check for negative indices, which prevents vectorisation. All arguments
are int64, so each kernel is compiled once. Kernels call nothing in other files: an edit there would not invalidate the cache.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.cgutils import memcpy as emit_memcpy
from numba.extending import intrinsic as _typed_intrinsic
from numba.extending import register_jitable

from alignpack._backends.numba_cpu.compiler import host_kernel

# Type checkers see the Python function, which has one parameter more than kernels pass.
intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = _typed_intrinsic

_WORD = 8
_BLOCK = 8
_LONG_BLOCK = 64


def _memory_access(bits: int) -> tuple[Any, Any]:
    """`load(address, i)` and `store(address, i, value)` of the i-th integer of `bits` bits, aligned or not."""
    word = types.Integer.from_bitwidth(bits, signed=True)
    memory = ir.IntType(bits)

    def place(builder: Any, address: Any, i: Any) -> Any:
        return builder.gep(builder.inttoptr(address, memory.as_pointer()), [i])

    @intrinsic
    def load(typing: Any, address: Any, i: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.load(place(builder, *arguments), align=1)

        return word(types.int64, types.int64), emit

    @intrinsic
    def store(typing: Any, address: Any, i: Any, value: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            builder.store(arguments[2], place(builder, *arguments[:2]), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, word), emit

    return load, store


_load, _store = _memory_access(64)
_load_byte, _store_byte = _memory_access(8)


@intrinsic
def _copy(typing: Any, to: Any, start: Any, size: Any) -> Any:
    """Copy bytes."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        emit_memcpy(builder, builder.inttoptr(arguments[0], byte), builder.inttoptr(arguments[1], byte), arguments[2])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), emit


@host_kernel
def scan_tables(
    lengths: int, spans: int, batch: int, documents: int, original_sequence: int, alignment: int
) -> tuple[int, int, int]:  # pragma: no cover - compiled
    """Check the tables: `[batch, documents]` int64 at two addresses, `spans` 0 where documents follow each other.

    Returns:
        The row and the document of the first fault, or -1 and -1; the groups of the longest packed row.
    """
    longest = 0
    for row in range(batch):
        start = 0  # never more than original_sequence, so nothing below can wrap
        groups = 0
        for document in range(documents):
            i = row * documents + document
            length = _load(lengths, i)
            span = length
            if spans != 0:
                span = _load(spans, i)
            if length == 0 or length == -1000:
                if spans != 0 and span != 0 and span != -1000:
                    return row, document, 0
                continue
            if length < 0 or span < length or span > original_sequence - start:
                return row, document, 0
            start += span
            # Both have at most 31 bits, so the cheaper 32-bit division serves.
            groups += types.int64(types.uint32(length - 1) // types.uint32(alignment)) + 1
        longest = max(longest, groups)
    return -1, -1, longest


@host_kernel
def write_layout(
    lengths: int,
    spans: int,
    documents: int,
    original_sequence: int,
    padded_sequence: int,
    alignment: int,
    source_indices: int,
    input_positions: int,
    position_ids: int,
    sequence_ids: int,
    first: int,
    last: int,
) -> None:  # pragma: no cover - compiled
    """Write rows `first` to `last` of the four fields, from tables that `scan_tables` accepted."""
    for row in range(first, last):
        source = source_indices + row * padded_sequence * _WORD
        positions = input_positions + row * original_sequence * _WORD
        ids = position_ids + row * padded_sequence * _WORD
        sequences = sequence_ids + row * padded_sequence * _WORD
        start = 0
        packed_start = 0
        for document in range(documents):
            length = _load(lengths, row * documents + document)
            if length <= 0:
                continue
            span = length
            if spans != 0:
                span = _load(spans, row * documents + document)
            groups = types.int64(types.uint32(length - 1) // types.uint32(alignment)) + 1
            for i in range(length):
                _store(source, packed_start + i, start + i)
                _store(ids, packed_start + i, i)
                _store(sequences, packed_start + i, document + 1)
            for i in range(packed_start + length, packed_start + groups * alignment):
                _store(source, i, -1)
                _store(ids, i, 0)
                _store(sequences, i, 0)
            for i in range(length):
                _store(positions, start + i, packed_start + i)
            for i in range(start + length, start + span):
                _store(positions, i, -1)
            start += span
            packed_start += groups * alignment
        for i in range(packed_start, padded_sequence):
            _store(source, i, -1)
            _store(ids, i, 0)
            _store(sequences, i, 0)
        for i in range(start, original_sequence):
            _store(positions, i, -1)


def _block_check(count: int) -> Callable[[int, int, int], bool]:
    """`differ(index, at, start)`: whether the integers from the `at`-th on differ from `start`, `start + 1`, ..."""

    @register_jitable
    def differ(index: int, at: int, start: int) -> bool:  # pragma: no cover - compiled
        differences = 0
        for i in range(count):  # without a branch, so that it is vectorised
            differences |= _load(index, at + i) ^ (start + i)
        return differences != 0

    checked: Callable[[int, int, int], bool] = differ
    return checked


_block_differs, _long_block_differs = _block_check(_BLOCK), _block_check(_LONG_BLOCK)


@register_jitable
def _run_of(index: int, at: int, limit: int) -> int:  # pragma: no cover - compiled
    """How many integers from the `at`-th on increase by one each, that one included; at most `limit`."""
    start = _load(index, at)
    run = 1
    # Long blocks read memory at full speed but cost more when the run ends in the first block, so short ones go first.
    short = min(limit, 4 * _BLOCK + 1)
    while run + _BLOCK <= short and not _block_differs(index, at + run, start + run):
        run += _BLOCK
    if run + _BLOCK > short:
        while run + _LONG_BLOCK <= limit and not _long_block_differs(index, at + run, start + run):
            run += _LONG_BLOCK
        while run + _BLOCK <= limit and not _block_differs(index, at + run, start + run):
            run += _BLOCK
    while run < limit and _load(index, at + run) == start + run:
        run += 1
    return run


@host_kernel
def gather_slots(
    values: int,
    row_stride: int,
    slot_stride: int,
    slots: int,
    index: int,
    columns: int,
    result: int,
    size: int,
    fill: int,
    second_fill: int,
    first: int,
    last: int,
) -> int:  # pragma: no cover - compiled
    """`result[b, i] = values[b, index[b, i]]`, and the fill where `index` is -1.

    Args:
        values: address of `[batch, slots]` elements of `size` bytes.
        row_stride: bytes from one row of `values` to the next.
        slot_stride: bytes from one slot of `values` to the next.
        slots: slots of a row of `values`.
        index: address of `[batch, columns]` int64.
        columns: slots of a row of `result`.
        result: address of `[batch, columns]` elements, contiguous.
        size: bytes of an element.
        fill: the first eight bytes of the 16-byte pattern at padding.
        second_fill: the next eight bytes.
        first: the first slot of `result` to write, counted over all rows.
        last: one past the last slot to write.

    Returns:
        The first slot whose index is neither -1 nor a slot of `values`, or -1; from it on nothing is written.
    """
    at = first
    while at < last:
        row = at // columns
        end = min(last, (row + 1) * columns)
        while at < end:
            slot = _load(index, at)
            if slot < -1 or slot >= slots:
                return at
            target = result + at * size
            if slot < 0:
                for i in range(size // _WORD):
                    _store(target, i, second_fill if i & 1 else fill)
                for i in range(size // _WORD * _WORD, size):
                    _store_byte(target, i, types.int8((fill >> (8 * (i % _WORD))) & 255))
                at += 1
                continue
            start = values + row * row_stride + slot * slot_stride
            if slot_stride == size:
                # Documents are runs of slots: one copy for each.
                run = _run_of(index, at, min(end - at, slots - slot))
                _copy(target, start, run * size)
                at += run
            elif size > 64:
                _copy(target, start, size)
                at += 1
            else:
                for i in range(size // _WORD):
                    _store(target, i, _load(start, i))
                for i in range(size // _WORD * _WORD, size):
                    _store_byte(target, i, _load_byte(start, i))
                at += 1
    return -1


@host_kernel
def write_groups(
    sequence_ids: int,
    position_ids: int,
    slots: int,
    ratio: int,
    multiplier: int,
    shift: int,
    offset: int,
    group_ids: int,
    group_positions: int,
    complete: int,
    leading: int,
    visible_start: int,
    visible_end: int,
    first: int,
    last: int,
) -> None:  # pragma: no cover - compiled
    """Write rows `first` to `last` of the six fields of groups of `ratio` slots, where `ratio` divides `slots`.

    All are addresses of `[batch, slots]` or `[batch, slots // ratio]` int64, except that `complete` and `leading` (the
    first groups of documents) are bytes. `x // ratio` is `x * multiplier >> shift`; `offset` is the column of the first
    slot in the whole row.
    """
    groups = slots // ratio
    # All have at most 32 bits, so the cheaper multiplication serves.
    factor, bits = types.uint64(types.uint32(multiplier)), types.uint64(shift)
    for row in range(first, last):
        ids = sequence_ids + row * slots * _WORD
        positions = position_ids + row * slots * _WORD
        starts = visible_start + row * slots * _WORD
        ends = visible_end + row * slots * _WORD
        # Plain loops, without branches and divisions, so that they are vectorised.
        for i in range(slots):
            real = -types.int64(_load(ids, i) != 0)  # all bits set, or all clear
            column = offset + i
            _store(starts, i, types.int64(types.uint32(column - _load(positions, i)) * factor >> bits) & real)
            _store(ends, i, types.int64(types.uint32(column + 1) * factor >> bits) & real)
        of_row = row * groups
        for group in range(groups):
            _store(group_ids, of_row + group, _load(ids, group * ratio))
        for group in range(groups):
            _store(group_positions, of_row + group, _load(positions, group * ratio))
        for group in range(groups):
            _store_byte(complete, of_row + group, types.int8(_load(ids, group * ratio + ratio - 1) != 0))
        for group in range(groups):
            real = _load(group_ids, of_row + group) != 0
            _store_byte(leading, of_row + group, types.int8(real & (_load(group_positions, of_row + group) == 0)))


@host_kernel
def write_shifted_maps(
    source_indices: int,
    sequence_ids: int,
    slots: int,
    columns: int,
    k: int,
    shifted_sources: int,
    shifted_positions: int,
    first: int,
    last: int,
) -> None:  # pragma: no cover - compiled
    """Write rows `first` to `last` of the maps of a shifted layout, where `abs(k) <= slots`.

    Addresses of `[batch, slots]` int64, except the last, which is `[batch, columns]`.
    """
    start, end = max(0, -k), min(slots, slots - k)
    for row in range(first, last):
        source = source_indices + row * slots * _WORD
        ids = sequence_ids + row * slots * _WORD
        sources = shifted_sources + row * slots * _WORD
        positions = shifted_positions + row * columns * _WORD
        for i in range(start):
            _store(sources, i, -1)
        for i in range(start, end):
            other = types.int64(_load(ids, i) != _load(ids, i + k))
            _store(sources, i, _load(source, i + k) | -other)  # without a branch: all bits set are -1
        for i in range(end, slots):
            _store(sources, i, -1)
        # `input_positions` is the inverse of the new map, whatever the layout's own inverse is.
        for i in range(columns):
            _store(positions, i, -1)
        at = start
        while at < end:
            column = _load(sources, at)
            if column < 0 or column >= columns:  # a map built by hand may point past its row
                at += 1
                continue
            # Documents are runs of slots.
            run = _run_of(sources, at, min(end - at, columns - column))
            for i in range(run):
                _store(positions, column + i, at + i)
            at += run
