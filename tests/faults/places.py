"""Where documents stand, as plain data that deliberate faults change, and the layouts of such places."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from alignpack import PackedSequenceLayout
from alignpack_fuzz.cases import Tables
from alignpack_fuzz.strategies import ABSENT


@dataclass
class Place:
    """Where one document stands.

    Attributes:
        number: what `sequence_ids` calls it.
        source: its first column in the input row.
        packed: its first column in the packed row.
    """

    row: int
    number: int
    length: int
    span: int
    source: int = 0
    packed: int = 0


def table_arrays(tables: Tables) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lengths and spans, `[batch, documents]`; the absent as they are."""
    batch = tables.input_shape[0]
    lengths = tables.seq_lens.numpy().astype(np.int64)
    spans = lengths if tables.seq_lens_padded is None else tables.seq_lens_padded.numpy().astype(np.int64)
    shape = (batch, lengths.shape[-1])
    return lengths.reshape(shape), spans.reshape(shape)


def round_up(value: int, multiple: int) -> int:
    """The next multiple that is not below the value."""
    return -(-value // multiple) * multiple


def read_places(tables: Tables) -> list[Place]:
    """The present documents, placed rightly."""
    lengths, spans = table_arrays(tables)
    rows, columns = np.nonzero(~np.isin(lengths, ABSENT))
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    documents = [Place(row, column + 1, int(lengths[row, column]), int(spans[row, column])) for row, column in pairs]
    return put(documents, lambda place: place.span, lambda place: round_up(place.length, tables.alignment))


def put(places: list[Place], span: Callable[[Place], int], slots: Callable[[Place], int]) -> list[Place]:
    """Put documents one after the other, with `span` slots in the input row and `slots` in the packed row."""
    before: Place | None = None
    for place in places:
        follows = before is not None and before.row == place.row
        place.source = before.source + span(before) if before is not None and follows else 0
        place.packed = before.packed + slots(before) if before is not None and follows else 0
        before = place
    return places


def width_for(tables: Tables, slots: int) -> int:
    """The width of packed rows of which the longest needs `slots`."""
    return round_up(max(tables.minimum_length, slots, 1), math.lcm(tables.alignment, tables.length_multiple or 1))


def lay_out(tables: Tables, places: list[Place], width: int | None = None) -> PackedSequenceLayout:
    """The fields for such places; what does not fit into a row is cut off."""
    if width is None:
        width = width_for(tables, max((place.packed + place.length for place in places), default=0))
    batch, original_sequence = tables.input_shape
    source, positions, ids = (torch.full((batch, width), empty) for empty in (-1, 0, 0))
    back = torch.full((batch, original_sequence), -1)
    for place in places:
        kept = torch.arange(max(min(place.length, width - place.packed), 0))
        source[place.row, place.packed + kept] = place.source + kept
        positions[place.row, place.packed + kept] = kept
        ids[place.row, place.packed + kept] = place.number
        inside = kept[(place.source + kept >= 0) & (place.source + kept < original_sequence)]
        back[place.row, place.source + inside] = place.packed + inside
    return PackedSequenceLayout(source, back, positions, ids, alignment=tables.alignment)


def needed(tables: Tables) -> int:
    """Slots of the longest packed row before anything is asked of it."""
    return max((place.packed + round_up(place.length, tables.alignment) for place in read_places(tables)), default=0)
