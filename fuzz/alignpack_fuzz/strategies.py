"""Random inputs for the contract. Each odd choice says which fault it provokes.

The cases that are drawn are those of `alignpack_fuzz.cases`. `alignpack_fuzz.edges` names what must occur among them.
"""

from dataclasses import replace
from functools import cache
from typing import Any, get_args

import numpy as np
import torch
from hypothesis import strategies as st

from alignpack_fuzz.cases import (
    FillCase,
    Grouping,
    Move,
    RowSlice,
    Sharding,
    Shifting,
    Tables,
    WholeNumbers,
    WrongArgument,
    WrongArguments,
    WrongValue,
    WrongValues,
)
from alignpack_fuzz.payloads import Payload, Shape, Strides

ABSENT = (0, -1000)

DTYPES = (
    torch.bool,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
)
"""Every dtype of the contract."""

NUMPY_DTYPES = tuple(dtype for dtype in DTYPES if dtype != torch.bfloat16 and "float8" not in str(dtype))
"""Those that NumPy has, too."""

CORE_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

CORE_DTYPES = (torch.bool, torch.uint8, torch.int32, torch.int64, *CORE_FLOATS)
"""Those that any implementation should move."""

TABLE_DTYPES = (torch.int64, torch.int32)

ALIGNMENTS = (1, 2, 3, 4, 7, 8, 128)
"""Powers of two and others, one slot, and one that is wider than most drawn rows."""

ABSENT_ENTRIES = tuple((length, span) for length in ABSENT for span in ABSENT)
"""Both markers, and a different one in each table: what filtering the tables separately confuses."""

SLACK = (0, 0, 0, 1, 2, 5, 9)
"""The span's own padding, narrower and wider than a group."""


@cache
def _rows(alignment: int) -> st.SearchStrategy[list[list[tuple[tuple[int, int], int]]]]:
    """Rows of documents, each a length and span without slack, and the slack."""
    # One token, and lengths around a multiple of the alignment, are where off-by-ones live; one token comes first,
    # because that is where cases shrink to.
    lengths = dict.fromkeys((1, alignment, alignment + 1, max(alignment - 1, 1), 2, 3, 2 * alignment, 6, 9))
    if alignment > 9:
        del lengths[2 * alignment]  # longer rows are slower, not odder
    # Absent documents of both kinds: leading, between others, trailing.
    entries = [*((length, length) for length in lengths), *ABSENT_ENTRIES]
    document = st.tuples(st.sampled_from(entries), st.sampled_from(SLACK))
    # Most batches have several rows with documents: that is where one row's numbers end up in another. Some rows are
    # empty, some tables have no columns, some batches no rows.
    row = st.lists(document, min_size=2, max_size=5) | st.lists(document, max_size=3)
    some, several = st.lists(row, min_size=1, max_size=3), st.lists(row, min_size=2, max_size=3)
    return st.one_of(some, several, some, several, some, several, st.just([]))


_ALIGNMENT = st.sampled_from(ALIGNMENTS)
_WITH_SPANS_AND_FLAT = st.sampled_from([(spans, flat) for flat in (False, False, True) for spans in (False, True)])
_DTYPES_OF_TABLES = st.sampled_from([(lengths, spans) for lengths in TABLE_DTYPES for spans in TABLE_DTYPES])
_TAIL = st.sampled_from((0, 0, 1, 5))  # 0: the last document ends exactly at the row's end
_MINIMUM_LENGTH = st.sampled_from((0, 0, 0, 1, 8, 9, 40))
_LENGTH_MULTIPLE = st.sampled_from((None, None, None, 1, 2, 3, 8, 12))


@st.composite
def tables(draw: st.DrawFn) -> Tables:
    """Arguments that describe a layout."""
    alignment = draw(_ALIGNMENT)
    with_spans, flat = draw(_WITH_SPANS_AND_FLAT)
    rows = draw(_rows(alignment))
    documents = max(map(len, rows), default=0)
    # Ragged rows are filled up with -1000, as collators do.
    filled = [row + [((-1000, -1000), 0)] * (documents - len(row)) for row in rows]
    lengths = [[length for (length, _), _ in row] for row in filled]
    spans = [[span + slack if length > 0 else span for (length, span), slack in row] for row in filled]
    occupied = [sum(max(slots, 0) for slots in row) for row in (spans if with_spans else lengths)]
    dtypes = draw(_DTYPES_OF_TABLES)
    shape = (documents,) if flat and len(rows) == 1 else (len(rows), documents)  # a 1-D table stands for batch 1
    return Tables(
        torch.tensor(lengths, dtype=dtypes[0]).reshape(shape),
        torch.tensor(spans, dtype=dtypes[1]).reshape(shape) if with_spans else None,
        (len(rows), max(occupied, default=0) + draw(_TAIL)),
        alignment,
        draw(_MINIMUM_LENGTH),
        draw(_LENGTH_MULTIPLE),
    )


_CORRUPTIONS = st.sampled_from(
    ("any", "any", "short span", "span past the row", "absent span", "ignored", "two rows", "wrap", "wrap")
)


@st.composite
def corrupted_tables(draw: st.DrawFn) -> Tables:
    """Arguments of which one to three facts were changed; some still describe a layout."""
    whole = draw(tables())
    changed = [table.clone() for table in (whole.seq_lens, whole.seq_lens_padded) if table is not None]
    batch, original_sequence = whole.input_shape
    documents = whole.lengths.shape[1]
    lengths, spans = (table.view(batch, documents) for table in (changed[0], changed[-1]))
    with_spans = len(changed) == 2
    present, long, absent = lengths > 0, lengths > 1, lengths <= 0
    # One fault and nothing else, where chance alone would seldom leave the rest in order.
    corruption = draw(_CORRUPTIONS)
    match corruption:
        case "short span" if with_spans and long.any():
            row, document = draw(st.sampled_from(long.nonzero().tolist()))
            spans[row, document] = draw(st.sampled_from((1, int(lengths[row, document]) - 1)))
        case "span past the row" if with_spans and present.any():
            # The last span of a row ends behind it, although its tokens do not.
            row, _ = draw(st.sampled_from(present.nonzero().tolist()))
            document = int(present[row].nonzero()[-1])
            spans[row, document] += original_sequence + 1 - int(spans[row].clamp_min(0).sum())
        case "absent span" if with_spans and absent.any():
            row, document = draw(st.sampled_from(absent.nonzero().tolist()))
            spans[row, document] = draw(st.sampled_from((1, 2, -1)))
        case "ignored" if documents > 0 and batch > 0:
            # Negative numbers that mean something elsewhere: a document that is neither present nor absent.
            row, document = draw(st.integers(0, batch - 1)), draw(st.integers(0, documents - 1))
            spans[row, document] = draw(st.sampled_from(ABSENT))
            lengths[row, document] = draw(st.sampled_from((-1, -100, -999, -1001, -1001)))
        case "two rows" if batch > 1 and documents > 1:
            # The first fault by row is not the first by column, nor the first that looking at lengths alone finds.
            spans[0, documents - 1] = draw(st.sampled_from((-1, -5)))
            lengths[1, 0] = -1
        case "wrap" if batch > 0:
            # Twice the limit wraps to -2, and 2 more to 0: three more documents, and the total seems to be what it was.
            row, limit = draw(st.integers(0, batch - 1)), torch.iinfo(spans.dtype).max
            entries = draw(st.permutations((limit, limit, 2)))
            more = [torch.zeros(batch, 3, dtype=table.dtype) for table in changed]
            more[0][row] = 1
            more[-1][row] = torch.tensor(entries)
            changed = [
                torch.cat([table, columns.view(*table.shape[:-1], 3)], dim=-1)
                for table, columns in zip(changed, more, strict=True)
            ]
        case _:
            for _ in range(draw(st.integers(1, 3))):
                table = draw(st.sampled_from(changed))
                limit = torch.iinfo(table.dtype).max
                entry = st.sampled_from(
                    [
                        *(-1, -100, -999, -1001),  # negative, label ignore values, one off the marker
                        *(0, -1000),  # a present document beside an absent span, and the other way round
                        *(1, 5, original_sequence, original_sequence + 1),  # a short span, a span past the row
                        *(limit, limit - 1, limit // 2 + 1, limit // 4 + 1, -limit - 1),  # sums that wrap
                    ]
                )
                if table.numel():
                    table.view(-1)[draw(st.integers(0, table.numel() - 1))] = draw(entry)
            if draw(st.booleans()):
                original_sequence = draw(st.integers(0, original_sequence))  # the documents no longer fit
    seq_lens, *padded = changed
    return Tables(
        seq_lens,
        padded[0] if padded else None,
        (batch, original_sequence),
        whole.alignment,
        whole.minimum_length,
        whole.length_multiple,
    )


TRAILING_SHAPES: tuple[Shape, ...] = ((), (1,), (3,), (8,), (2, 3), (16,), (5, 4), (0,), (2, 0, 3))
"""One word and several, odd widths, and none at all: an empty payload must not divide by its width."""

STRIDES: tuple[Strides, ...] = get_args(Strides)
"""What flattening, 16-byte loads and gradients of sums meet."""

_SEEDS = st.integers(0, 2**16) | st.integers(0, 2**16) | st.integers(0, 2**16) | st.none()


@cache
def _payload_kinds(dtypes: tuple[torch.dtype, ...]) -> st.SearchStrategy[tuple[torch.dtype, Shape, Strides]]:
    return st.tuples(st.sampled_from(dtypes), st.sampled_from(TRAILING_SHAPES), st.sampled_from(STRIDES))


@st.composite
def payloads(draw: st.DrawFn, leading: tuple[int, int], dtypes: tuple[torch.dtype, ...] = DTYPES) -> Payload:
    """`[*leading, ...]` of any strides."""
    dtype, trailing, strides = draw(_payload_kinds(dtypes))
    return Payload(strides, (*leading, *trailing), dtype, draw(_SEEDS))


@st.composite
def moves(draw: st.DrawFn, dtypes: tuple[torch.dtype, ...]) -> Move:
    """Values of one of the dtypes for both directions of a layout."""
    arguments = draw(tables())
    values = draw(payloads(arguments.input_shape, dtypes))
    return Move(arguments, values, draw(payloads(arguments.packed_shape, (values.dtype,))))


def whole_numbers() -> st.SearchStrategy[WholeNumbers]:
    """Layouts and small whole numbers."""
    return st.builds(WholeNumbers, tables(), st.integers(0, 2**16))


def wrong_arguments() -> st.SearchStrategy[WrongArguments]:
    """Dtypes, shapes and alignments that are refused whatever the tables hold."""
    return st.builds(WrongArguments, tables(), st.sampled_from(get_args(WrongArgument)))


def wrong_values() -> st.SearchStrategy[WrongValues]:
    """Leading shapes one off or only broadcastable, missing axes, another device, dtypes outside the contract."""
    return st.builds(WrongValues, tables(), st.sampled_from(TRAILING_SHAPES), st.sampled_from(get_args(WrongValue)))


@st.composite
def shardings(draw: st.DrawFn) -> Sharding:
    """1 to 4 ranks, some of which may own only padding; starts of shards inside documents."""
    size = draw(st.integers(1, 4))
    arguments = draw(tables())
    arguments = replace(arguments, length_multiple=size * arguments.alignment)
    return Sharding(arguments, size, draw(payloads(arguments.input_shape, (torch.int64, torch.int32))))


@st.composite
def groupings(draw: st.DrawFn) -> Grouping:
    """Every ratio that divides the alignment, from 1 to the alignment itself, in whole layouts, shards and shifts."""
    tables_of_shards, size = draw(_divisible())
    alignment = tables_of_shards.alignment
    ratio = draw(st.sampled_from([ratio for ratio in range(1, alignment + 1) if alignment % ratio == 0]))
    return Grouping(tables_of_shards, ratio, size, draw(_distances(alignment)))


@st.composite
def shiftings(draw: st.DrawFn) -> Shifting:
    """Shifts to the next token and to the one before, around the alignment, beyond all documents and all integers."""
    tables_of_shards, size = draw(_divisible())
    distance = _distances(tables_of_shards.alignment)
    return Shifting(tables_of_shards, draw(distance), draw(distance), size, draw(st.integers(0, 2**16)))


@st.composite
def _divisible(draw: st.DrawFn) -> tuple[Tables, int]:
    """Arguments of a layout that divides into 1 to 4 shards, and into how many."""
    size = draw(st.integers(1, 4))
    if draw(st.integers(0, 4)) == 4:
        # A document that fills its row: there alone does going round in the row not meet padding or another document.
        alignment = draw(_ALIGNMENT)
        slots = size * alignment
        arguments = Tables(torch.tensor([[slots], [1]]), None, (2, slots), alignment)
    else:
        arguments = draw(tables())
    return replace(arguments, length_multiple=size * arguments.alignment), size


def _distances(alignment: int) -> st.SearchStrategy[int]:
    # The next document stands an alignment further, or right behind the document; far numbers wrap in 64 bits.
    near = st.sampled_from((1, -1, 2, -2, 3, -3))
    far = st.sampled_from((0, alignment, -alignment, alignment + 1, -2 * alignment, 2**63, -(2**64) + 1))
    return near | near | far


def row_slices() -> st.SearchStrategy[RowSlice]:
    """Slices with open, negative and empty ranges, and with steps."""
    bound = st.none() | st.integers(-3, 3)
    return st.builds(RowSlice, tables(), st.builds(slice, bound, bound, st.none() | st.integers(1, 2)))


@st.composite
def fill_cases(draw: st.DrawFn) -> FillCase:
    """Fills at and beyond the edges of a dtype that NumPy has, too."""
    dtype = draw(st.sampled_from(NUMPY_DTYPES))
    # All edges at once, as each pair of a dtype and a fill would be rare.
    return FillCase(dtype, (*edges_of_fills(dtype), draw(st.integers()), draw(st.floats())))


def edges_of_fills(dtype: torch.dtype) -> list[Any]:
    """Fills for a dtype, legal and illegal."""
    common: list[Any] = [0, -0.0, 0.0, 1, True, -1, -100, 0.5, 2.0**31, 2**63, 2**64 - 1, 2**64, float("nan")]
    common += [float("inf"), -float("inf"), 1e39, -1e39, 10**400, 1j, complex(-0.0, float("nan")), 2 + 0j]
    common += [np.float32(0.1), np.int64(-100), np.uint64(2**64 - 1), np.bool_(True), np.float16("nan")]
    common += [torch.tensor(1), None, "1"]  # no numbers, though each might be read as one
    common += [np.float64(2.0**63), np.float64(2.0**64), np.longdouble(1)]
    # Rounded twice or once, they become different float16 and float32.
    common += [1 + 2**-11 + 2**-40, 2**60 + 2**36 + 1, -(2**60 + 2**36 + 1)]
    if dtype.is_floating_point or dtype.is_complex:
        largest = torch.finfo(dtype).max
        limits: list[Any] = [largest, -largest, largest * 1.0001, torch.finfo(dtype).tiny]
    else:
        info = torch.iinfo(dtype) if dtype != torch.bool else torch.iinfo(torch.uint8)
        limits = [info.max, info.min, info.max + 1, info.min - 1, float(info.max), np.float64(info.max + 1)]
    return common + limits
