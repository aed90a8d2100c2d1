"""What a packed layout is: where every token of a packed row comes from, and where it goes.

This is the specification: plain loops over rows, documents and slots. Each rule of the contract is one visible line.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
from numpy.typing import NDArray

from alignpack_reference import errors
from alignpack_reference.groups import CompressionGroups, groups
from alignpack_reference.integers import at_least, integer
from alignpack_reference.values import Array, Fill, pack, restore

ABSENT = (0, -1000)
"""Table entries that mean "no document here"; collators write -1000 to fill ragged tables."""

PADDING = -1
"""The entry of an index map where there is no token."""

LARGEST_WIDTH = 2**31 - 1
"""The most slots that a row may have."""


@dataclass(frozen=True, eq=False)
class PackedSequenceLayout:
    """Where each slot of the packed rows comes from, and where each slot of the input rows goes.

    The two index maps are inverse to each other on real tokens; everything else follows from that.

    Attributes:
        source_indices: `[batch, padded_sequence]` int64, the input column of each packed slot; -1 at padding.
        input_positions: `[batch, original_sequence]` int64, the packed column of each input slot; -1 where the input
            slot was padding.
        position_ids: `[batch, padded_sequence]` int64, the position within the document; 0 at padding.
        sequence_ids: `[batch, padded_sequence]` int64, the document's table column + 1; 0 at padding.
        alignment: documents start at multiples of it, in slots.
        offset: the column of the whole packed row at which this layout's first slot stands (above 0 only for shards).
        row_length: slots of the whole packed row; None when that is this layout's own width.
    """

    source_indices: NDArray[np.int64]
    input_positions: NDArray[np.int64]
    position_ids: NDArray[np.int64]
    sequence_ids: NDArray[np.int64]
    _: KW_ONLY
    alignment: int = 1
    offset: int = 0
    row_length: int | None = None

    @property
    def padding_mask(self) -> NDArray[np.bool_]:
        """`[batch, padded_sequence]` bool, True at padding."""
        return np.equal(self.sequence_ids, 0)

    @property
    def token_counts(self) -> NDArray[np.int64]:
        """`[batch]` int64, the real tokens of each row (of a shard: of its part of the row)."""
        counts = np.zeros(len(self.sequence_ids), np.int64)
        for row, ids in enumerate(self.sequence_ids):
            for document in ids:
                counts[row] += document != 0
        return counts

    def groups(self, ratio: int) -> CompressionGroups:
        """The groups of `ratio` slots; see `alignpack_reference.groups.groups`."""
        return groups(self.sequence_ids, self.position_ids, self.alignment, self.offset, ratio)

    def pack(self, values: Array, fill: Fill = 0) -> Array:
        """Carry `[batch, original_sequence, ...]` into the packed rows; see `alignpack_reference.values.pack`."""
        return pack(self, values, fill)

    def restore(self, values: Array) -> Array:
        """Carry `[batch, padded_sequence, ...]` back; see `alignpack_reference.values.restore`."""
        return restore(self, values)

    def __getitem__(self, rows: slice) -> "PackedSequenceLayout":
        """The layout of those rows."""
        if not isinstance(rows, slice) or not all(
            bound is None or hasattr(bound, "__index__") for bound in (rows.start, rows.stop, rows.step)
        ):
            raise errors.not_rows(rows)
        if rows.step is not None and rows.step < 1:
            raise errors.not_forward(rows.step)
        return PackedSequenceLayout(
            self.source_indices[rows].copy(),
            self.input_positions[rows].copy(),
            self.position_ids[rows].copy(),
            self.sequence_ids[rows].copy(),
            alignment=self.alignment,
            offset=self.offset,
            row_length=self.row_length,
        )

    def shard(self, rank: int, size: int) -> "PackedSequenceLayout":
        """The part of every row that rank `rank` of `size` holds under contiguous context parallelism.

        Raises:
            TypeError: `size` or `rank` is not an integer.
            ValueError: one of them is out of range, or the cut would fall inside a group.
        """
        size = at_least("size", size, 1)
        rank = at_least("rank", rank, 0)
        if rank >= size:
            raise errors.bad_shard(rank, size)
        batch, padded_sequence = self.source_indices.shape
        row_length = padded_sequence if self.row_length is None else self.row_length

        # Every rank holds the same number of whole groups, so that no group is pooled across ranks.
        if padded_sequence % (size * self.alignment) != 0:
            pieces = row_length // padded_sequence
            raise errors.uneven_shards(padded_sequence, size, self.alignment, pieces * size * self.alignment)

        width = padded_sequence // size
        start, stop = rank * width, (rank + 1) * width
        # A token is local exactly when its packed column is; its position is then counted from the shard's start.
        input_positions = np.full(self.input_positions.shape, PADDING, np.int64)
        for row in range(batch):
            for slot, column in enumerate(self.input_positions[row]):
                if start <= column < stop:
                    input_positions[row, slot] = column - start
        return PackedSequenceLayout(
            self.source_indices[:, start:stop].copy(),
            input_positions,
            self.position_ids[:, start:stop].copy(),
            self.sequence_ids[:, start:stop].copy(),
            alignment=self.alignment,
            offset=self.offset + start,
            row_length=row_length,
        )

    def shift(self, k: int) -> "PackedSequenceLayout":
        """The layout in which each slot takes what slot + `k` takes in this one, where both belong to the same document.

        Raises:
            TypeError: `k` is not an integer.
            ValueError: the layout is a shard, whose tokens may come from other ranks.
        """
        k = integer("k", k)
        batch, padded_sequence = self.source_indices.shape
        if self.row_length is not None:
            raise errors.shifted_shard(self.offset, padded_sequence, self.row_length)
        source_indices = np.full(self.source_indices.shape, PADDING, np.int64)
        input_positions = np.full(self.input_positions.shape, PADDING, np.int64)
        for row in range(batch):
            for slot in range(padded_sequence):
                other = slot + k
                if not 0 <= other < padded_sequence:
                    continue
                # Positions and ids say which slots a document has, and a shift leaves them where they are.
                document = self.sequence_ids[row, slot]
                if document != 0 and self.sequence_ids[row, other] == document:
                    source = self.source_indices[row, other]
                    source_indices[row, slot] = source
                    if source != PADDING:  # as in a layout that was shifted before
                        input_positions[row, source] = slot
        return PackedSequenceLayout(
            source_indices,
            input_positions,
            self.position_ids.copy(),
            self.sequence_ids.copy(),
            alignment=self.alignment,
        )


def packed_layout(
    seq_lens: NDArray[np.integer],
    seq_lens_padded: NDArray[np.integer] | None,
    input_shape: Sequence[int],
    alignment: int,
    minimum_length: int = 0,
    *,
    length_multiple: int | None = None,
) -> PackedSequenceLayout:
    """Move every document of every row to the next multiple of `alignment`.

    Args:
        seq_lens: `[batch, documents]` (or `[documents]` for batch 1) int32 or int64: real tokens of each document, in
            row order. 0 or -1000 means: no document here.
        seq_lens_padded: the slots that each document occupies in the input row, its own padding included; the same
            shapes and dtypes. None: documents follow each other directly.
        input_shape: `(batch, original_sequence)` of the tensors to be packed.
        alignment: documents start at multiples of it, in slots.
        minimum_length: the packed row has at least this many slots.
        length_multiple: the packed row's slots are a multiple of it and of `alignment`.

    Raises:
        TypeError: a table is not an array, or an integer argument is not an integer.
        ValueError: an argument is out of range, or shapes do not match.
        LayoutError: the first document, in row-major order, that the input row cannot hold.

    Example:
        >>> layout = packed_layout(np.array([[3, 2]]), np.array([[4, 4]]), (1, 8), 4)
        >>> layout.source_indices
        array([[ 0,  1,  2, -1,  4,  5, -1, -1]])
        >>> layout.input_positions
        array([[ 0,  1,  2, -1,  4,  5, -1, -1]])
        >>> layout.position_ids
        array([[0, 1, 2, 0, 0, 1, 0, 0]])
        >>> layout.sequence_ids
        array([[1, 1, 1, 0, 2, 2, 0, 0]])
    """
    for name, table in (("seq_lens", seq_lens), ("seq_lens_padded", seq_lens_padded)):
        if not (isinstance(table, np.ndarray) or (table is None and name == "seq_lens_padded")):
            raise errors.not_an_array(name, "numpy.ndarray", table)
    batch, original_sequence = _input_shape(input_shape)
    alignment = at_least("alignment", alignment, 1)
    minimum_length = at_least("minimum_length", minimum_length, 0)
    if length_multiple is not None:
        length_multiple = at_least("length_multiple", length_multiple, 1)
    # A width that is too large whatever the tables hold is refused before they are read.
    _padded_sequence(0, alignment, minimum_length, length_multiple)
    lengths = _table("seq_lens", seq_lens, batch)
    if seq_lens_padded is None:
        # Documents are directly concatenated: each occupies as many slots as it has tokens.
        spans, span_table = lengths, "seq_lens"
    else:
        spans, span_table = _table("seq_lens_padded", seq_lens_padded, batch), "seq_lens_padded"
        if spans.shape != lengths.shape:
            raise errors.different_tables(lengths.shape, spans.shape)

    # Find each document's place: (row, document, column in the input row, column in the packed row, length).
    places: list[tuple[int, int, int, int, int]] = []
    longest = 0
    for row in range(batch):
        input_column = packed_column = 0
        for document in range(lengths.shape[1]):
            length, span = int(lengths[row, document]), int(spans[row, document])  # Python integers never wrap
            if length in ABSENT:
                # An absent document takes no slot, so its span must not claim any.
                if span not in ABSENT:
                    raise errors.absent_with_span(row, document, length, span)
                continue
            if length < 0:
                raise errors.bad_length(row, document, length)
            # The real tokens stand at the front of the span, so the span holds them all.
            if span < length:
                raise errors.short_span(row, document, length, span)
            # Spans follow each other from slot 0 and end inside the row.
            if input_column + span > original_sequence:
                raise errors.past_row(row, document, span_table, input_column, span, original_sequence)
            places.append((row, document, input_column, packed_column, length))
            input_column += span
            # The next document starts where the next group starts.
            packed_column = _round_up(packed_column + length, alignment)
        longest = max(longest, packed_column)
    padded_sequence = _padded_sequence(longest, alignment, minimum_length, length_multiple)

    source_indices = np.full((batch, padded_sequence), PADDING, np.int64)
    input_positions = np.full((batch, original_sequence), PADDING, np.int64)
    position_ids = np.zeros((batch, padded_sequence), np.int64)
    sequence_ids = np.zeros((batch, padded_sequence), np.int64)
    for row, document, input_column, packed_column, length in places:
        for position in range(length):
            source_indices[row, packed_column + position] = input_column + position
            input_positions[row, input_column + position] = packed_column + position
            position_ids[row, packed_column + position] = position
            # Absent columns count, so that a document keeps its id whatever its neighbours are.
            sequence_ids[row, packed_column + position] = document + 1
    return PackedSequenceLayout(source_indices, input_positions, position_ids, sequence_ids, alignment=alignment)


def _padded_sequence(longest: int, alignment: int, minimum_length: int, length_multiple: int | None) -> int:
    """Slots of every packed row: whole groups, whole multiples, and at least one slot."""
    multiple = math.lcm(alignment, length_multiple or 1)
    padded_sequence = _round_up(max(minimum_length, longest, 1), multiple)
    if padded_sequence > LARGEST_WIDTH:
        raise errors.too_wide(padded_sequence, LARGEST_WIDTH, alignment, minimum_length, length_multiple)
    return padded_sequence


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _table(name: str, table: NDArray[np.integer], batch: int) -> NDArray[np.integer]:
    """The table with its batch axis."""
    if table.dtype not in (np.dtype(np.int32), np.dtype(np.int64)):
        raise errors.bad_table_dtype(name, table.dtype)
    rows = table[np.newaxis] if table.ndim == 1 else table
    if rows.ndim != 2 or rows.shape[0] != batch:
        raise errors.bad_table_shape(name, table.shape, batch)
    return rows


def _input_shape(input_shape: Sequence[int]) -> tuple[int, int]:
    if (
        not isinstance(input_shape, Iterable) or getattr(input_shape, "ndim", 1) != 1
    ):  # the values in place of their shape
        raise errors.not_a_shape(input_shape)
    shape = tuple(input_shape)
    if len(shape) != 2:
        raise errors.bad_input_shape(shape)
    batch = at_least("input_shape[0]", shape[0], 0)
    original_sequence = at_least("input_shape[1]", shape[1], 0)
    if original_sequence > LARGEST_WIDTH:
        raise errors.too_large("input_shape[1]", original_sequence, LARGEST_WIDTH)
    return batch, original_sequence
