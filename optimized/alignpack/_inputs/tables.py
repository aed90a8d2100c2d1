"""Reading and checking the length tables: on the host, once, whole arrays at a time.

Nothing here can wrap. Rows have at most 2**31 - 1 slots, spans are cut to one slot more than a row before they are
summed, and packed rows are counted in groups until their size is known.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from alignpack._inputs.arguments import FAKE, integer_at_least, is_fake, not_dense, not_plain
from alignpack._torch_state import is_functorch_wrapped, without_grad_wrappers
from alignpack_reference import errors

ABSENT_MARKER = -1000
"""What collators write to fill ragged tables: no document here. 0 means the same."""

LARGEST_WIDTH = 2**31 - 1
"""The most slots that a row may have."""


@dataclass(frozen=True, slots=True)
class LengthTables:
    """The arguments of `packed_layout`, checked; the contents of the tables are not checked yet.

    Attributes:
        lengths: `[batch, documents]` int64, contiguous, on the host, a copy; 0 or -1000 where there is no
            document.
        spans: the same for the slots that documents occupy; None: their lengths.
        original_sequence: slots of an input row.
        alignment: documents start at multiples of it, in slots.
        minimum_length: packed rows have at least this many slots.
        length_multiple: the slots of packed rows are a multiple of it; None: of `alignment` only.
    """

    lengths: torch.Tensor
    spans: torch.Tensor | None
    original_sequence: int
    alignment: int
    minimum_length: int
    length_multiple: int | None

    def padded_sequence(self, groups: int) -> int:
        """Slots of a packed row when the longest row has that number of groups."""
        return _padded_sequence(groups * self.alignment, self.alignment, self.minimum_length, self.length_multiple)

    def fault(self, row: int, document: int) -> errors.LayoutError:
        """The error for the first document of a row that cannot be placed."""
        lengths = self.lengths[row].tolist()
        spans = lengths if self.spans is None else self.spans[row].tolist()
        length, span = lengths[document], spans[document]
        if length in (0, ABSENT_MARKER):
            return errors.absent_with_span(row, document, length, span)
        if length < 0:
            return errors.bad_length(row, document, length)
        if span < length:
            return errors.short_span(row, document, length, span)
        start = sum(max(occupied, 0) for occupied in spans[:document])
        table = "seq_lens" if self.spans is None else "seq_lens_padded"
        return errors.past_row(row, document, table, start, span, self.original_sequence)


@dataclass(frozen=True, slots=True)
class DocumentTables:
    """Where the documents of a batch start; all arrays `[batch, documents]` int64 on the host.

    Attributes:
        lengths: real tokens; 0 where there is no document.
        input_starts: the column of the input row at which the document starts.
        packed_starts: the column of the packed row at which the document starts.
        original_sequence: slots of an input row.
        padded_sequence: slots of a packed row.
    """

    lengths: NDArray[np.int64]
    input_starts: NDArray[np.int64]
    packed_starts: NDArray[np.int64]
    original_sequence: int
    padded_sequence: int


def read_tables(
    seq_lens: torch.Tensor,
    seq_lens_padded: torch.Tensor | None,
    input_shape: Sequence[int],
    alignment: int,
    minimum_length: int,
    length_multiple: int | None,
) -> LengthTables:
    """Check the arguments of `packed_layout` and bring the tables to the host; its docstring lists the errors.

    The backend that builds the layout checks the contents of the tables as it scans them.
    """
    seq_lens = _plain("seq_lens", seq_lens)
    if seq_lens_padded is not None:
        seq_lens_padded = _plain("seq_lens_padded", seq_lens_padded)
    batch, original_sequence = _read_input_shape(input_shape)
    alignment = integer_at_least("alignment", alignment, 1)
    minimum_length = integer_at_least("minimum_length", minimum_length, 0)
    if length_multiple is not None:
        length_multiple = integer_at_least("length_multiple", length_multiple, 1)
    # A width that is too large whatever the tables hold is refused before they are read.
    _padded_sequence(0, alignment, minimum_length, length_multiple)
    seq_lens = _with_batch_axis("seq_lens", seq_lens, batch)
    if seq_lens_padded is not None:
        seq_lens_padded = _with_batch_axis("seq_lens_padded", seq_lens_padded, batch)
        if seq_lens_padded.shape != seq_lens.shape:
            raise errors.different_tables(tuple(seq_lens.shape), tuple(seq_lens_padded.shape))
    lengths, spans = _to_host(seq_lens, seq_lens_padded)
    return LengthTables(lengths, spans, original_sequence, alignment, minimum_length, length_multiple)


def place_documents(tables: LengthTables) -> DocumentTables:
    """Check the contents of the tables and place every document, whole arrays at a time.

    Raises:
        LayoutError: the first document, in row-major order, that the input row cannot hold.
        ValueError: packed rows would have too many slots.
    """
    lengths, input_starts = _check_documents(tables)
    groups = -(-lengths // tables.alignment)
    groups_through = np.cumsum(groups, axis=1)
    longest = int(groups_through[:, -1].max(initial=0)) if groups.shape[1] else 0
    return DocumentTables(
        lengths=lengths,
        input_starts=input_starts,
        packed_starts=(groups_through - groups) * tables.alignment,
        original_sequence=tables.original_sequence,
        padded_sequence=tables.padded_sequence(longest),
    )


def _padded_sequence(longest: int, alignment: int, minimum_length: int, length_multiple: int | None) -> int:
    """The width of packed rows when the longest needs that many slots."""
    multiple = math.lcm(alignment, length_multiple or 1)
    width = -(-max(minimum_length, longest, 1) // multiple) * multiple
    if width > LARGEST_WIDTH:
        raise errors.too_wide(width, LARGEST_WIDTH, alignment, minimum_length, length_multiple)
    return width


def _check_documents(tables: LengthTables) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lengths with 0 for absent documents, and the column at which each document starts in the input row."""
    lengths: NDArray[np.int64] = tables.lengths.numpy()
    spans: NDArray[np.int64] | None = None if tables.spans is None else tables.spans.numpy()
    original_sequence = tables.original_sequence
    absent = (lengths == 0) | (lengths == ABSENT_MARKER)
    # These sums are exact up to the first document that leaves the row, and the row is refused at that document.
    cut = np.where(absent, 0, np.clip(lengths if spans is None else spans, 0, original_sequence + 1))
    ends = np.cumsum(cut, axis=1)
    wrong = (ends > original_sequence) | (lengths < 0)
    if spans is not None:
        wrong |= spans < lengths
        absent_span = (spans == 0) | (spans == ABSENT_MARKER)
        wrong = np.where(absent, ~absent_span, wrong)
    else:
        wrong &= ~absent
    if wrong.any():
        row, document = divmod(int(np.argmax(wrong)), wrong.shape[1])
        raise tables.fault(row, document)
    return np.where(absent, 0, lengths), ends - cut


def _plain(name: str, table: torch.Tensor) -> torch.Tensor:
    """The table, checked to be a plain tensor with values; the error names the argument."""
    if not isinstance(table, torch.Tensor):
        raise errors.not_an_array(name, "torch.Tensor", table)
    table = without_grad_wrappers(table)
    kind, subclass = not_plain(table), type(table) is not torch.Tensor
    if kind is None and table.is_meta:
        kind = "a meta tensor, which holds no values"
    if kind is None and is_fake(table):
        kind = FAKE
    if kind is None and is_functorch_wrapped(table):
        kind = "a tensor that torch.func batches or replaces; build the layout outside of the transform"
    if kind is None and subclass:
        if _answers_itself(table):
            table = table.clone()  # a plain tensor may hide in it, as in the result of a collective
        if _answers_itself(table):
            kind = f"a {type(table).__name__}, a subclass that may hold its values elsewhere"
    if kind is not None:
        raise not_dense(name, kind)
    return table.as_subclass(torch.Tensor) if subclass else table


def _answers_itself(table: torch.Tensor) -> bool:
    """Whether its class intercepts every operation, so that its memory may be elsewhere."""
    return type(table).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def _read_input_shape(input_shape: Sequence[int]) -> tuple[int, int]:
    if not isinstance(input_shape, tuple) and (  # the usual case, fast
        not isinstance(input_shape, Iterable)
        or getattr(input_shape, "ndim", 1) != 1  # the values in place of their shape
    ):
        raise errors.not_a_shape(input_shape)
    shape = tuple(input_shape)
    if len(shape) != 2:
        raise errors.bad_input_shape(shape)
    batch = integer_at_least("input_shape[0]", shape[0], 0)
    original_sequence = integer_at_least("input_shape[1]", shape[1], 0)
    if original_sequence > LARGEST_WIDTH:
        raise errors.too_large("input_shape[1]", original_sequence, LARGEST_WIDTH)
    return batch, original_sequence


def _with_batch_axis(name: str, table: torch.Tensor, batch: int) -> torch.Tensor:
    if table.dtype not in (torch.int32, torch.int64):
        raise errors.bad_table_dtype(name, table.dtype)
    rows = table.unsqueeze(0) if table.ndim == 1 else table
    if rows.ndim != 2 or rows.shape[0] != batch:
        raise errors.bad_table_shape(name, tuple(table.shape), batch)
    return rows


def _to_host(seq_lens: torch.Tensor, seq_lens_padded: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Both tables on the host; two tables on one accelerator are copied together, so that the host waits once."""
    if seq_lens_padded is None:
        return _on_host(seq_lens), None
    if not seq_lens.is_cpu and seq_lens.device == seq_lens_padded.device:
        return _in_one_copy(seq_lens, seq_lens_padded)
    return _on_host(seq_lens), _on_host(seq_lens_padded)


def _in_one_copy(seq_lens: torch.Tensor, seq_lens_padded: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    both = _on_host(torch.stack((seq_lens.to(torch.int64), seq_lens_padded.to(torch.int64))))
    return both[0], both[1]


def _on_host(table: torch.Tensor) -> torch.Tensor:
    # A copy, because the tables are read more than once and another thread may change them in between.
    if table.is_cpu and table.dtype is torch.int64:
        return table.clone(memory_format=torch.contiguous_format)  # the usual case, fast
    return table.to("cpu", torch.int64, copy=True, memory_format=torch.contiguous_format)
