"""The edges that random cases must meet, by name, so that it can be counted how often they do."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import torch

from alignpack_fuzz.cases import Tables
from alignpack_fuzz.payloads import Payload
from alignpack_fuzz.strategies import ABSENT, ALIGNMENTS, DTYPES, STRIDES

Rows = list[list[int]]
Part = TypeVar("Part")


def met(case: Any) -> set[str]:
    """The names of all edges that a case meets.

    Example:
        >>> import torch
        >>> sorted(met(Tables(torch.tensor([[3, 0]]), None, (1, 3), 4)))[:3]
        ['a full row', 'a length one below the alignment', 'absent 0 last']
    """
    names = {name for tables in parts(case, Tables) for name, holds in TABLE_EDGES.items() if holds(tables)}
    return names | {name for payload in parts(case, Payload) for name, holds in PAYLOAD_EDGES.items() if holds(payload)}


def parts(case: Any, kind: type[Part]) -> Iterator[Part]:
    """Everything of a kind that a case is made of."""
    if isinstance(case, kind):
        yield case
    elif isinstance(case, tuple):
        for item in case:
            yield from parts(item, kind)
    elif is_dataclass(case):
        for field in fields(case):
            yield from parts(getattr(case, field.name), kind)


def _lengths(tables: Tables) -> Rows:
    rows: Rows = torch.atleast_2d(tables.seq_lens).tolist()
    return rows


def _spans(tables: Tables) -> Rows:
    if tables.seq_lens_padded is None:
        return _lengths(tables)
    rows: Rows = torch.atleast_2d(tables.seq_lens_padded).tolist()
    return rows


def _entries(tables: Tables) -> list[tuple[int, int]]:
    """Length and span of every document."""
    rows = zip(_lengths(tables), _spans(tables), strict=False)
    return [entry for lengths, spans in rows for entry in zip(lengths, spans, strict=False)]


def _absent(marker: int, place: str) -> Callable[[Tables], bool]:
    def holds(tables: Tables) -> bool:
        for row in _lengths(tables):
            present = [column for column, length in enumerate(row) if length not in ABSENT]
            for column, length in enumerate(row):
                before, behind = any(p < column for p in present), any(p > column for p in present)
                found = {"first": behind and not before, "between": before and behind, "last": before and not behind}
                if length == marker and found[place]:
                    return True
        return False

    return holds


def _off_alignment(difference: int) -> Callable[[Tables], bool]:
    return lambda tables: any(
        length > 1 and (length - difference) % tables.alignment == 0 and tables.alignment > 2
        for length, _ in _entries(tables)
    )


def _occupied(tables: Tables) -> list[int]:
    return [sum(span for span in row if span > 0) for row in _spans(tables)]


TABLE_EDGES: dict[str, Callable[[Tables], bool]] = {
    **{
        f"absent {marker} {place}": _absent(marker, place)
        for marker in ABSENT
        for place in ("first", "between", "last")
    },
    "different markers in the two tables": lambda t: any({0, -1000} == set(entry) for entry in _entries(t)),
    "a document of one token": lambda t: any(length == 1 for length, _ in _entries(t)),
    "two documents of one token": lambda t: any(a == b == 1 for r in _lengths(t) for a, b in itertools.pairwise(r)),
    "a length one below the alignment": _off_alignment(-1),
    "a length of the alignment": _off_alignment(0),
    "a length one above the alignment": _off_alignment(1),
    "a span with slack": lambda t: any(span > length > 0 for length, span in _entries(t)),
    "slack wider than a group": lambda t: any(span - length > t.alignment > 1 and length > 0 for length, span in _entries(t)),
    "rows of unequal content": lambda t: len({tuple(row) for row in _lengths(t)}) > 1,
    "a full row": lambda t: 0 < t.input_shape[1] in _occupied(t),
    "a row with a tail": lambda t: any(0 < slots < t.input_shape[1] for slots in _occupied(t)),
    "a row without documents": lambda t: t.input_shape[1] > 0 and any(not any(n > 0 for n in r) for r in _lengths(t)),
    "a row without slots": lambda t: t.input_shape[0] > 0 and t.input_shape[1] == 0,
    "a table without columns": lambda t: t.input_shape[0] > 0 and t.seq_lens.shape[-1] == 0,
    "batch 0": lambda t: t.input_shape[0] == 0,
    "a 1-D table": lambda t: t.seq_lens.ndim == 1,
    "int32": lambda t: t.seq_lens.dtype == torch.int32,
    "int64": lambda t: t.seq_lens.dtype == torch.int64,
    "tables of two dtypes": lambda t: t.seq_lens_padded is not None and t.seq_lens.dtype != t.seq_lens_padded.dtype,
    **{f"alignment {n}": lambda t, n=n: t.alignment == n for n in ALIGNMENTS},  # type: ignore[misc]
    "alignment wider than the row": lambda t: t.alignment > t.input_shape[1] > 0,
    "a minimum_length": lambda t: t.minimum_length > 0,
    "a length_multiple": lambda t: t.length_multiple is not None,
    # What only corrupted tables hold.
    "a negative length": lambda t: any(length < 0 and length not in ABSENT for length, _ in _entries(t)),
    "a span below its length": lambda t: any(0 < span < length for length, span in _entries(t)),
    "an absent document with a span": lambda t: any(a in ABSENT and b not in ABSENT for a, b in _entries(t)),
    "a present document without a span": lambda t: any(a > 0 and b in ABSENT for a, b in _entries(t)),
    "past the row": lambda t: any(slots > t.input_shape[1] for slots in _occupied(t)),
    "near 2**31": lambda t: any(2**29 < abs(n) <= 2**31 for entry in _entries(t) for n in entry),
    "near 2**63": lambda t: any(abs(n) > 2**60 for entry in _entries(t) for n in entry),
}  # fmt: skip
"""Edges of the arguments of `packed_layout`."""

ONLY_CORRUPTED = tuple(TABLE_EDGES)[-7:]

PAYLOAD_EDGES: dict[str, Callable[[Payload], bool]] = {
    **{str(dtype): lambda p, dtype=dtype: p.dtype == dtype for dtype in DTYPES},  # type: ignore[misc]
    **{strides: lambda p, strides=strides: p.strides == strides for strides in STRIDES},  # type: ignore[misc]
    "no trailing axes": lambda p: len(p.shape) == 2,
    "one word a slot": lambda p: p.shape[2:] == (1,),
    "several words a slot": lambda p: torch.Size(p.shape[2:]).numel() > 1,
    "a trailing axis of size 0": lambda p: 0 in p.shape[2:],
    "no slots": lambda p: p.shape[1] == 0,
    "all bits 0": lambda p: p.seed is None,
    "NaN": lambda p: p.dtype.is_floating_point and bool(p.tensor.double().isnan().any()),
    "-0.0": lambda p: (
        p.dtype.is_floating_point and bool(((d := p.tensor.double()) == 0).logical_and(d.signbit()).any())
    ),
}
"""Edges of what is moved."""
