"""Deliberate faults in which tables and arguments are refused, and in what the errors say."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from alignpack import LayoutError
from alignpack_fuzz.cases import Tables
from alignpack_fuzz.strategies import ABSENT
from alignpack_fuzz.targets import Target
from alignpack_reference import errors
from tests.faults.places import table_arrays
from tests.faults.wrapping import wrong_layout

# --- tables that should be refused ---------------------------------------------------------------------------------------


def accept(right: Target, tables: Tables, wrongly: Callable[[NDArray[np.int64], NDArray[np.int64], int], bool]) -> Any:
    """The layout; where that is refused but `wrongly(lengths, spans, original_sequence)`, one without the documents."""
    try:
        return tables.build(right)
    except LayoutError:
        if not wrongly(*table_arrays(tables), tables.input_shape[1]):
            raise
    nothing = torch.zeros_like(tables.seq_lens)
    return replace(tables, seq_lens=nothing, seq_lens_padded=None).build(right)


def pairs_fit(lengths: NDArray[np.int64], spans: NDArray[np.int64]) -> bool:
    """Whether each document, by itself, is what a document can be."""
    absent = np.isin(lengths, ABSENT)
    return bool(np.where(absent, np.isin(spans, ABSENT), (lengths > 0) & (spans >= lengths)).all())


@wrong_layout("core", "corrupt_tables_are_refused")
def totals_in_32_bits(right: Target, tables: Tables) -> Any:
    """Spans of int32 tables are summed in 32 bits, and only the row's total is compared with the row."""

    def wrongly(lengths: NDArray[np.int64], spans: NDArray[np.int64], original_sequence: int) -> bool:
        totals = np.maximum(spans, 0).sum(axis=1).astype(np.int32)
        return pairs_fit(lengths, spans) and bool((totals <= original_sequence).all())

    return accept(right, tables, wrongly) if tables.seq_lens.dtype == torch.int32 else tables.build(right)


@wrong_layout("core", "corrupt_tables_are_refused")
def totals_that_wrap_to_small(right: Target, tables: Tables) -> Any:
    """A total that wraps in 64 bits is refused when it is negative, but not when it comes round to a small number."""

    def wrongly(lengths: NDArray[np.int64], spans: NDArray[np.int64], original_sequence: int) -> bool:
        totals = np.maximum(spans, 0).sum(axis=1)
        return pairs_fit(lengths, spans) and bool(((totals >= 0) & (totals <= original_sequence)).all())

    return accept(right, tables, wrongly)


@wrong_layout("core", "corrupt_tables_are_refused")
def every_negative_is_absent(right: Target, tables: Tables) -> Any:
    """Any negative length says that there is no document, not only -1000."""
    return accept(right, replace_in(tables, lambda table: table.clamp_min(0)), lambda *_: False)


def replace_in(tables: Tables, change: Callable[[torch.Tensor], torch.Tensor]) -> Tables:
    """The call with both tables changed."""
    spans = tables.seq_lens_padded
    return replace(tables, seq_lens=change(tables.seq_lens), seq_lens_padded=None if spans is None else change(spans))


@wrong_layout("core", "corrupt_tables_are_refused")
def large_negatives_are_absent(right: Target, tables: Tables) -> Any:
    """The marker is compared with `<=`, so that -1001 passes for it."""
    return replace_in(tables, lambda table: torch.where(table < -1000, -1000, table)).build(right)


@wrong_layout("core", "corrupt_tables_are_refused")
def label_ignore_value_is_absent(right: Target, tables: Tables) -> Any:
    """The label's ignore value -100 passes for an absent document."""
    return replace_in(tables, lambda table: torch.where(table == -100, 0, table)).build(right)


@wrong_layout("core", "corrupt_tables_are_refused")
def absent_documents_may_have_spans(right: Target, tables: Tables) -> Any:
    """The span of an absent document is not looked at."""
    if tables.seq_lens_padded is None:
        return tables.build(right)
    try:
        absent = (tables.seq_lens == 0) | (tables.seq_lens == -1000)
        return replace(tables, seq_lens_padded=tables.seq_lens_padded.masked_fill(absent, 0)).build(right)
    except RuntimeError:
        return tables.build(right)  # shapes that do not match


@wrong_layout("core", "corrupt_tables_are_refused")
def short_spans_are_widened(right: Target, tables: Tables) -> Any:
    """A span below its length is taken for the length instead of being refused."""
    if tables.seq_lens_padded is None or tables.seq_lens_padded.shape != tables.seq_lens.shape:
        return tables.build(right)
    widened = torch.maximum(tables.seq_lens_padded.long(), tables.seq_lens.long())
    present = (tables.seq_lens > 0) & (tables.seq_lens_padded > 0)
    return replace(tables, seq_lens_padded=torch.where(present, widened, tables.seq_lens_padded.long())).build(right)


@wrong_layout("core", "corrupt_tables_are_refused")
def spans_may_pass_the_row_end(right: Target, tables: Tables) -> Any:
    """Only real tokens must fit: the last span's padding may stand behind the row's end."""

    def wrongly(lengths: NDArray[np.int64], spans: NDArray[np.int64], original_sequence: int) -> bool:
        ends = np.minimum(np.maximum(spans, 0), original_sequence + 1).cumsum(axis=1)
        fits = ends - np.maximum(spans, 0) + lengths <= original_sequence
        return pairs_fit(lengths, spans) and bool(fits[lengths > 0].all())

    return accept(right, tables, wrongly)


@wrong_layout("core", "fields_are_right")
def full_rows_are_refused(right: Target, tables: Tables) -> Any:
    """A document that ends exactly at the row's end is refused as one slot too long."""
    layout = tables.build(right)
    ends = np.maximum(table_arrays(tables)[1], 0).cumsum(axis=1)
    if ends.size and (ends >= tables.input_shape[1]).any() and tables.input_shape[1] > 0:
        raise LayoutError("a document ends past its row")
    return layout


@wrong_layout("core", "fields_are_right")
def batch_zero_crashes(right: Target, tables: Tables) -> Any:
    """A batch without rows reaches a `reshape(0, -1)`."""
    table = tables.seq_lens
    if table.ndim == 2:
        table.reshape(tables.input_shape[0], -1)
    return tables.build(right)


@wrong_layout("core", "fields_are_right")
def empty_tables_crash(right: Target, tables: Tables) -> Any:
    """A table without columns reaches a maximum over nothing."""
    layout = tables.build(right)
    if tables.input_shape[0]:
        np.max(table_arrays(tables)[0], axis=1)
    return layout


@wrong_layout("core", "fields_are_right")
def mixed_dtypes_are_refused(right: Target, tables: Tables) -> Any:
    """Tables of int32 and int64 do not go together."""
    if tables.seq_lens_padded is not None and tables.seq_lens_padded.dtype != tables.seq_lens.dtype:
        raise ValueError("the tables differ in dtype")
    return tables.build(right)


# --- arguments that should be refused ------------------------------------------------------------------------------------


@wrong_layout("core", "wrong_arguments_are_refused")
def float_tables_are_cut(right: Target, tables: Tables) -> Any:
    """Tables of floats are turned into integers."""
    whole = tables.seq_lens.long() if tables.seq_lens.is_floating_point() else tables.seq_lens
    return replace(tables, seq_lens=whole).build(right)


@wrong_layout("core", "wrong_arguments_are_refused")
def narrow_tables_are_widened(right: Target, tables: Tables) -> Any:
    """Tables of any integer dtype are accepted, and lengths above 32767 arrive as negative ones."""
    narrow = tables.seq_lens.dtype == torch.int16
    return replace(tables, seq_lens=tables.seq_lens.long() if narrow else tables.seq_lens).build(right)


@wrong_layout("core", "wrong_arguments_are_refused")
def one_table_row_for_all(right: Target, tables: Tables) -> Any:
    """A table of one row is broadcast over the batch."""
    table, batch = tables.seq_lens, tables.input_shape[0]
    if table.ndim == 2 and table.shape[0] == 1 and tables.seq_lens_padded is None:
        table = table.expand(batch, -1)
    return replace(tables, seq_lens=table).build(right)


@wrong_layout("core", "wrong_arguments_are_refused")
def flat_table_for_all_rows(right: Target, tables: Tables) -> Any:
    """A 1-D table serves every row of a batch, not only of batch one."""
    batch = tables.input_shape[0]
    rows = replace_in(tables, lambda table: table.expand(batch, -1) if table.ndim == 1 else table)
    return rows.build(right)


@wrong_layout("core", "wrong_arguments_are_refused")
def spans_without_lengths_are_cut(right: Target, tables: Tables) -> Any:
    """Lengths and spans are paired by `zip`, so that a column too many goes unseen."""
    spans, lengths = tables.seq_lens_padded, tables.seq_lens
    if spans is not None and spans.ndim == lengths.ndim == 2 and spans.shape[1] == lengths.shape[1] + 1:
        spans = spans[:, :-1]
    return replace(tables, seq_lens_padded=spans).build(right)


@wrong_layout("core", "wrong_arguments_are_refused")
def alignment_zero_means_none(right: Target, tables: Tables) -> Any:
    """An alignment of 0 is taken for 1."""
    return replace(tables, alignment=tables.alignment or 1).build(right)


@wrong_layout("core", "wrong_arguments_are_refused")
def negative_minimum_is_none(right: Target, tables: Tables) -> Any:
    """A negative minimum length has no effect instead of being refused."""
    return replace(tables, minimum_length=max(tables.minimum_length, 0)).build(right)


# --- what errors say -----------------------------------------------------------------------------------------------------


def errors_by_row(right: Target, tables: Tables) -> list[LayoutError]:
    """For each row that is refused, its first fault, found with all other rows empty."""
    found = []
    for row in range(tables.input_shape[0]):

        def alone(table: torch.Tensor, row: int = row) -> torch.Tensor:
            rows = table.unsqueeze(0) if table.ndim == 1 else table
            return rows * (torch.arange(len(rows)) == row).unsqueeze(1)

        try:
            replace_in(tables, alone).build(right)
        except LayoutError as error:
            found.append(error)
    return found


@wrong_layout("strict", "faults_are_placed")
def first_fault_by_column(right: Target, tables: Tables) -> Any:
    """Of several faults, the one in the first column is reported, whatever its row."""
    try:
        return tables.build(right)
    except LayoutError:
        raise min(errors_by_row(right, tables), key=lambda error: error.document or 0) from None


@wrong_layout("strict", "faults_are_placed")
def last_faulty_row_reported(right: Target, tables: Tables) -> Any:
    """Each row's fault overwrites the one before."""
    try:
        return tables.build(right)
    except LayoutError:
        raise errors_by_row(right, tables)[-1] from None


@wrong_layout("strict", "faults_are_placed")
def negative_lengths_reported_first(right: Target, tables: Tables) -> Any:
    """Each kind of fault is looked for in the whole table, negative lengths before spans, rather than by place."""
    try:
        return tables.build(right)
    except LayoutError:
        lengths = table_arrays(tables)[0]
        for row, document in zip(*np.nonzero((lengths < 0) & (lengths != -1000)), strict=True):
            raise errors.bad_length(int(row), int(document), int(lengths[row, document])) from None
        raise


@wrong_layout("strict", "faults_are_placed")
def documents_counted_without_absent(right: Target, tables: Tables) -> Any:
    """The place of a fault is counted in present documents instead of columns."""
    try:
        return tables.build(right)
    except LayoutError as error:
        before = table_arrays(tables)[0][error.row, : error.document]
        error.document = int((~np.isin(before, ABSENT)).sum())
        raise


@wrong_layout("strict", "faults_are_placed")
def place_only_in_the_text(right: Target, tables: Tables) -> Any:
    """The error's text names the place, but its attributes got lost on the way."""
    try:
        return tables.build(right)
    except LayoutError as error:
        raise LayoutError(str(error)) from None


@wrong_layout("strict", "faults_are_placed")
def wrong_table_named(right: Target, tables: Tables) -> Any:
    """A span past the row's end is blamed on `seq_lens`, though it came from `seq_lens_padded`."""
    try:
        return tables.build(right)
    except LayoutError as error:
        text = str(error).replace("seq_lens_padded is", "seq_lens is") if "from slot" in str(error) else str(error)
        raise LayoutError(text, error.row, error.document) from None
