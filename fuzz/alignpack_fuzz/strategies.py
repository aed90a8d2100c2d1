"""Random inputs for the contract. Each odd choice says which fault it provokes."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from alignpack_fuzz.targets import REFERENCE

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


@dataclass(frozen=True)
class Tables:
    """The arguments of one `packed_layout` call."""

    seq_lens: torch.Tensor
    seq_lens_padded: torch.Tensor | None
    input_shape: tuple[int, int]
    alignment: int
    minimum_length: int = 0
    length_multiple: int | None = None

    def __repr__(self) -> str:
        """A call that can be pasted into a test."""
        tables = ", ".join(
            "None" if table is None else f"torch.tensor({table.tolist()}, dtype={table.dtype})"
            for table in (self.seq_lens, self.seq_lens_padded)
        )
        return (
            f"Tables({tables}, {self.input_shape}, {self.alignment}, {self.minimum_length}, "
            f"length_multiple={self.length_multiple})"
        )

    def build(self, target: Any) -> Any:
        """Call the target's `packed_layout`."""
        # By keyword, so that keyword-only signatures work; what is not asked for need not exist.
        optional = {} if self.length_multiple is None else {"length_multiple": self.length_multiple}
        return target.packed_layout(
            seq_lens=self.seq_lens,
            seq_lens_padded=self.seq_lens_padded,
            input_shape=self.input_shape,
            alignment=self.alignment,
            minimum_length=self.minimum_length,
            **optional,
        )


@st.composite
def tables(draw: st.DrawFn) -> Tables:
    """Arguments that describe a layout."""
    alignment = draw(st.sampled_from(ALIGNMENTS))
    # One-token documents and lengths around a multiple of the alignment are where off-by-ones live.
    near_alignment = st.sampled_from(sorted({1, alignment, alignment + 1, max(alignment - 1, 1)}))
    length = near_alignment | st.integers(1, 9)
    # Absent documents of both kinds, the two tables with different markers: leading, between others, trailing.
    absent = st.tuples(st.sampled_from(ABSENT), st.sampled_from(ABSENT))
    slack = st.just(0) | st.integers(0, 5)  # the span's own padding, narrower and wider than a group
    present = st.tuples(length, slack).map(lambda pair: (pair[0], sum(pair)))
    with_spans = draw(st.booleans())
    # Ragged rows, filled up with -1000 as collators do: rows of unequal content, empty rows, empty tables, batch 0.
    rows = draw(st.lists(st.lists(absent | present, max_size=5), max_size=3))
    documents = max(map(len, rows), default=0)
    filled = [row + [(-1000, -1000)] * (documents - len(row)) for row in rows]
    lengths = [[length for length, _ in row] for row in filled]
    spans = [[span for _, span in row] for row in filled] if with_spans else lengths
    tail = draw(st.just(0) | st.integers(0, 5))  # 0: the last document ends exactly at the row's end
    original_sequence = max((sum(max(span, 0) for span in row) for row in spans), default=0) + tail
    flat = len(rows) == 1 and draw(st.booleans())  # a 1-D table stands for batch 1

    def table(entries: list[list[int]]) -> torch.Tensor:
        # The two tables may mix dtypes.
        tensor = torch.tensor(entries, dtype=draw(st.sampled_from(TABLE_DTYPES))).reshape(len(rows), documents)
        return tensor[0] if flat else tensor

    return Tables(
        table(lengths),
        table(spans) if with_spans else None,
        (len(rows), original_sequence),
        alignment,
        draw(st.just(0) | st.integers(0, 40)),
        draw(st.none() | st.integers(1, 12)),
    )


@st.composite
def corrupted_tables(draw: st.DrawFn) -> Tables:
    """Arguments of which one to three facts were changed; some still describe a layout."""
    whole = draw(tables())
    changed = [table.clone() for table in (whole.seq_lens, whole.seq_lens_padded) if table is not None]
    batch, original_sequence = whole.input_shape
    for _ in range(draw(st.integers(1, 3))):
        table = draw(st.sampled_from(changed))
        limit = torch.iinfo(table.dtype).max
        entry = st.sampled_from(
            [
                *(-1, -100, -999, -1001),  # negative, label ignore values, one off the marker
                *(0, -1000),  # a present document beside an absent span, and the other way round
                *(1, 5, original_sequence, original_sequence + 1),  # a short span, a span past the row
                *(limit, limit - 1, limit // 2 + 1, limit // 4 + 1, -limit - 1),  # sums that wrap, even to 0
            ]
        )
        if table.numel():
            table.view(-1)[draw(st.integers(0, table.numel() - 1))] = draw(entry)
    if draw(st.booleans()):
        original_sequence = draw(st.integers(0, original_sequence))  # the documents no longer fit
    seq_lens, *spans = changed
    return Tables(
        seq_lens,
        spans[0] if spans else None,
        (batch, original_sequence),
        whole.alignment,
        whole.minimum_length,
        whole.length_multiple,
    )


TRAILING_SHAPES = ((), (1,), (3,), (8,), (2, 3), (0,), (2, 0, 3))
"""One word and several, odd widths, and none at all: an empty payload must not divide by its width."""

STRIDES = ("contiguous", "transposed", "every second", "expanded", "one element", "offset")
"""What flattening, 16-byte loads and gradients of sums meet; "one element" has stride 0 everywhere."""


@st.composite
def payloads(
    draw: st.DrawFn,
    leading: tuple[int, int],
    dtypes: tuple[torch.dtype, ...] = DTYPES,
    trailing_shapes: tuple[tuple[int, ...], ...] = TRAILING_SHAPES,
) -> torch.Tensor:
    """`[*leading, ...]` of random bits (so NaN payloads and -0.0 occur), or of zeros (the fill), of odd strides."""
    dtype = draw(st.sampled_from(dtypes))
    shape = (*leading, *draw(st.sampled_from(trailing_shapes)))
    strides = draw(st.sampled_from(STRIDES))
    seed = draw(st.none() | st.integers(0, 2**16))
    if strides == "transposed":
        return random_bits((shape[1], shape[0], *shape[2:]), dtype, seed).transpose(0, 1)
    if strides == "every second":
        return random_bits((shape[0], 2 * shape[1], *shape[2:]), dtype, seed)[:, ::2]
    if strides == "expanded":
        return random_bits((1, *shape[1:]), dtype, seed).expand(shape)
    if strides == "one element":
        return random_bits((1,) * len(shape), dtype, seed).expand(shape)
    if strides == "offset":
        return random_bits((shape[0], shape[1] + 1, *shape[2:]), dtype, seed)[:, 1:]
    return random_bits(shape, dtype, seed)


def random_bits(shape: tuple[int, ...], dtype: torch.dtype, seed: int | None) -> torch.Tensor:
    """A contiguous tensor of `dtype` whose bits are random; bool holds 0 and 1. Without a seed, all bits are 0."""
    elements = torch.Size(shape).numel()
    if seed is None or elements == 0:
        return torch.zeros(shape, dtype=torch.uint8).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).to(torch.bool)
    noise = torch.randint(0, 256, (elements * dtype.itemsize,), generator=generator, dtype=torch.uint8)
    return noise.view(dtype).view(shape)


@dataclass(frozen=True)
class Move:
    """A layout's tables, values for its `pack`, and values of the same dtype for its `restore`."""

    tables: Tables
    values: torch.Tensor
    packed: torch.Tensor

    def __repr__(self) -> str:
        """Tables in full; of the values what distinguishes them."""
        values, packed = (
            f"{tensor.dtype} {list(tensor.shape)} of strides {list(tensor.stride())}"
            for tensor in (self.values, self.packed)
        )
        return f"Move({self.tables!r}, values: {values}, packed: {packed})"


@st.composite
def moves(draw: st.DrawFn, dtypes: tuple[torch.dtype, ...]) -> Move:
    """Values of one of the dtypes for both directions of a layout."""
    arguments = draw(tables())
    values = draw(payloads(arguments.input_shape, dtypes))
    packed_shape = (arguments.input_shape[0], padded_sequence(arguments))
    return Move(arguments, values, draw(payloads(packed_shape, (values.dtype,))))


@st.composite
def whole_numbers(draw: st.DrawFn) -> Move:
    """Small whole numbers in float64, whose sums and products are exact in any order."""
    arguments = draw(tables())
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    batch, original_sequence = arguments.input_shape
    values, packed = (
        torch.randint(-8, 9, (batch, slots, 2), generator=generator).to(torch.float64)
        for slots in (original_sequence, padded_sequence(arguments))
    )
    return Move(arguments, values, packed)


def padded_sequence(arguments: Tables) -> int:
    """Slots of a packed row, from the reference."""
    shape: torch.Size = arguments.build(REFERENCE).source_indices.shape
    return shape[1]


@dataclass(frozen=True)
class WrongArguments:
    """A call of which one argument is wrong, and what is wrong with it."""

    wrong: str
    tables: Tables


@st.composite
def wrong_arguments(draw: st.DrawFn) -> WrongArguments:
    """Dtypes, shapes and alignments that are refused whatever the tables hold."""
    good = draw(tables())
    batch, original_sequence = good.input_shape
    lengths = good.seq_lens.reshape(batch, -1 if batch else 0)
    one_more = torch.cat([lengths, torch.zeros(batch, 1, dtype=lengths.dtype)], dim=1)
    changes: dict[str, dict[str, Any]] = {
        "float lengths": {"seq_lens": good.seq_lens.to(torch.float32)},
        "int16 lengths": {"seq_lens": good.seq_lens.to(torch.int16)},
        "bool spans": {"seq_lens_padded": good.seq_lens.to(torch.bool)},
        "another batch": {"input_shape": (batch + 1, original_sequence)},
        "one row for two": {
            "seq_lens": one_more[:1] * 0,
            "seq_lens_padded": None,
            "input_shape": (2, original_sequence),
        },
        "three axes": {"seq_lens": lengths.unsqueeze(0), "seq_lens_padded": None},
        "one span more": {"seq_lens": lengths, "seq_lens_padded": one_more},
        "alignment 0": {"alignment": 0},
        "alignment -4": {"alignment": -4},
        "minimum_length -1": {"minimum_length": -1},
    }
    wrong = draw(st.sampled_from(list(changes)))
    return WrongArguments(wrong, replace(good, **changes[wrong]))


@dataclass(frozen=True)
class WrongValues:
    """Values that do not fit a layout, what is wrong with them, and the error that says so."""

    wrong: str
    tables: Tables
    values: torch.Tensor
    error: type[Exception]


@st.composite
def wrong_values(draw: st.DrawFn) -> WrongValues:
    """Leading shapes one off or only broadcastable, missing axes, another device, dtypes outside the contract."""
    arguments = draw(tables())
    batch, original_sequence = arguments.input_shape
    trailing = draw(st.sampled_from(TRAILING_SHAPES))
    choices: dict[str, tuple[Any, type[Exception]]] = {
        "a slot more": (torch.zeros(batch, original_sequence + 1, *trailing), ValueError),
        "a row more": (torch.zeros(batch + 1, original_sequence, *trailing), ValueError),
        "no slot axis": (torch.zeros(batch), ValueError),
        "no axis": (torch.zeros(()), ValueError),
        "another device": (torch.zeros(batch, original_sequence, *trailing, device="meta"), ValueError),
        "a dtype without zero": (
            torch.zeros(batch, original_sequence, *trailing, dtype=torch.uint8).view(torch.float8_e8m0fnu),
            TypeError,
        ),
        "a list": ([[0] * original_sequence] * batch, TypeError),
    }
    if batch > 1:
        choices["one row for all"] = torch.zeros(1, original_sequence, *trailing), ValueError
    if original_sequence > 1:
        choices["one slot for all"] = torch.zeros(batch, 1, *trailing), ValueError
    wrong = draw(st.sampled_from(list(choices)))
    return WrongValues(wrong, arguments, *choices[wrong])


@dataclass(frozen=True)
class Sharding:
    """A layout that divides into so many shards, and values for `pack`."""

    tables: Tables
    size: int
    values: torch.Tensor


@st.composite
def shardings(draw: st.DrawFn) -> Sharding:
    """1 to 4 ranks, some of which may own only padding; starts of shards inside documents."""
    size = draw(st.integers(1, 4))
    arguments = draw(tables())
    arguments = replace(arguments, length_multiple=size * arguments.alignment)
    return Sharding(arguments, size, draw(payloads(arguments.input_shape, (torch.int64, torch.int32))))


@dataclass(frozen=True)
class RowSlice:
    """A layout and a slice of its rows."""

    tables: Tables
    rows: slice


@st.composite
def row_slices(draw: st.DrawFn) -> RowSlice:
    """Slices with open, negative and empty ranges, and with steps."""
    bound = st.none() | st.integers(-3, 3)
    return RowSlice(draw(tables()), slice(draw(bound), draw(bound), draw(st.none() | st.integers(1, 2))))


@dataclass(frozen=True)
class FillCase:
    """A dtype that NumPy has, too, and a fill."""

    dtype: torch.dtype
    fill: Any


@st.composite
def fill_cases(draw: st.DrawFn) -> FillCase:
    """Fills at and beyond the edges of a dtype."""
    dtype = draw(st.sampled_from(NUMPY_DTYPES))
    return FillCase(dtype, draw(fills(dtype)))


def fills(dtype: torch.dtype) -> st.SearchStrategy[Any]:
    """Fills for a dtype, legal and illegal."""
    common: list[Any] = [0, -0.0, 0.0, 1, True, -1, -100, 0.5, 2.0**31, 2**63, 2**64 - 1, 2**64, float("nan")]
    common += [float("inf"), -float("inf"), 1e39, -1e39, 10**400, 1j, complex(-0.0, float("nan")), 2 + 0j]
    common += [np.float32(0.1), np.int64(-100), np.uint64(2**64 - 1), np.bool_(True), np.float16("nan")]
    common += [np.float64(2.0**63), np.float64(2.0**64), np.longdouble(1)]
    common += [1 + 2**-11 + 2**-40, 2**60 + 2**36 + 1]  # rounded twice or once, to different float16 and float32
    if dtype.is_floating_point or dtype.is_complex:
        largest = torch.finfo(dtype).max
        limits: list[Any] = [largest, -largest, largest * 1.0001, torch.finfo(dtype).tiny]
    else:
        info = torch.iinfo(dtype) if dtype != torch.bool else torch.iinfo(torch.uint8)
        limits = [info.max, info.min, info.max + 1, info.min - 1, float(info.max)]
    return st.sampled_from(common + limits) | st.integers() | st.floats()
