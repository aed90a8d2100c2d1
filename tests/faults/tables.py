"""Deliberate faults in the fields of layouts: places, widths, ids and positions."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from alignpack_fuzz.cases import Tables
from alignpack_fuzz.strategies import ABSENT
from alignpack_fuzz.targets import Target
from tests.faults.places import Place, lay_out, needed, put, read_places, round_up, table_arrays, width_for
from tests.faults.wrapping import fault, right_layout, wrong_layout

# --- which documents there are -------------------------------------------------------------------------------------------


@wrong_layout("core", "fields_are_right")
def absent_columns_skipped_in_ids(right: Target, tables: Tables) -> Any:
    """Ids number the present documents, so that an absent column changes the ids behind it."""
    tables.build(right)
    places = read_places(tables)
    for place, before in zip(places[1:], places, strict=False):
        place.number = before.number + 1 if place.row == before.row else 1
    for place in places[:1]:
        place.number = 1
    return lay_out(tables, places)


@wrong_layout("core", "fields_are_right", "layouts_are_packed")
def first_absent_ends_the_row(right: Target, tables: Tables) -> Any:
    """An absent column is taken for the ragged end of its row, and the documents behind it are dropped."""
    tables.build(right)
    present = np.logical_and.accumulate(~np.isin(table_arrays(tables)[0], ABSENT), axis=1)
    return lay_out(tables, [place for place in read_places(tables) if present[place.row, place.number - 1]])


@wrong_layout("core", "fields_are_right")
def tables_filtered_separately(right: Target, tables: Tables) -> Any:
    """Each table drops its own -1000, so that a 0 beside a -1000 pairs later lengths with other spans."""
    tables.build(right)
    lengths, spans = table_arrays(tables)
    places = []
    for row in range(len(lengths)):
        kept = (table[row][table[row] != -1000].tolist() for table in (lengths, spans))
        pairs = enumerate(zip(*kept, strict=False))
        places += [Place(row, column + 1, length, span) for column, (length, span) in pairs if length]
    return lay_out(
        tables, put(places, lambda place: place.span, lambda place: round_up(place.length, tables.alignment))
    )


@wrong_layout("core", "fields_are_right", "layouts_are_packed")
def marker_enters_running_sum(right: Target, tables: Tables) -> Any:
    """The marker -1000 is summed with the spans, so that documents behind it start 1000 slots too early."""
    tables.build(right)
    spans, places = table_arrays(tables)[1], read_places(tables)
    for place in places:
        place.source += int(np.minimum(spans[place.row, : place.number], 0).sum())
    return lay_out(tables, places)


@wrong_layout("core", "fields_are_right", "layouts_are_packed")
def one_token_documents_merged(right: Target, tables: Tables) -> Any:
    """Documents are told apart by where positions go on, so that one token alone joins the document before it."""
    layout = right_layout(right, tables)
    ids, places = layout.sequence_ids.clone(), read_places(tables)
    for place, before in zip(places[1:], places, strict=False):
        if place.length == 1 and place.row == before.row:
            ids[place.row, place.packed] = before.number
    return replace(layout, sequence_ids=ids)


@wrong_layout("core", "fields_are_right", "layouts_are_packed")
def tail_folded_into_last_document(right: Target, tables: Tables) -> Any:
    """The padding at the row's end counts as tokens of the row's last document."""
    tables.build(right)
    places = read_places(tables)
    for place, after in zip(places, [*places[1:], None], strict=True):
        if after is None or after.row != place.row:
            place.length = max(place.length, tables.input_shape[1] - place.source)
    return lay_out(tables, places)


@wrong_layout("core", "fields_are_right")
def documents_sorted_by_length(right: Target, tables: Tables) -> Any:
    """A planner puts the longest documents of each row first and keeps no way back."""
    tables.build(right)
    places = sorted(read_places(tables), key=lambda place: (place.row, -place.length))
    sources = [place.source for place in places]
    put(places, lambda place: place.span, lambda place: round_up(place.length, tables.alignment))
    for place, source in zip(places, sources, strict=True):
        place.source = source
    return lay_out(tables, places)


# --- where documents start -----------------------------------------------------------------------------------------------


@wrong_layout("core", "fields_are_right", "layouts_are_packed")
def aligned_length_gets_a_group(right: Target, tables: Tables) -> Any:
    """A document whose length is a multiple of the alignment gets one group more: `length // alignment + 1`."""
    tables.build(right)
    if tables.alignment == 1:
        return tables.build(right)
    groups = read_places(tables)
    return lay_out(
        tables,
        put(groups, lambda place: place.span, lambda place: (place.length // tables.alignment + 1) * tables.alignment),
    )


@wrong_layout("core", "fields_are_right", "layouts_are_packed")
def alignment_rounded_by_bits(right: Target, tables: Tables) -> Any:
    """Rounding is `(n + a - 1) & -a`, which is right only for powers of two."""
    tables.build(right)
    alignment = tables.alignment
    return lay_out(
        tables,
        put(read_places(tables), lambda place: place.span, lambda place: (place.length + alignment - 1) & -alignment),
    )


@wrong_layout("core", "fields_are_right", "layouts_are_packed")
def slack_kept(right: Target, tables: Tables) -> Any:
    """The span is rounded up instead of the length, so that padding of the input stays."""
    tables.build(right)
    return lay_out(
        tables,
        put(read_places(tables), lambda place: place.span, lambda place: round_up(place.span, tables.alignment)),
    )


@wrong_layout("core", "fields_are_right")
def slack_ignored_in_input(right: Target, tables: Tables) -> Any:
    """Documents are read as if they were concatenated, although spans say that padding stands between them."""
    tables.build(right)
    return lay_out(
        tables,
        put(read_places(tables), lambda place: place.length, lambda place: round_up(place.length, tables.alignment)),
    )


@wrong_layout("core", "fields_are_right")
def slack_dropped_up_to_a_group(right: Target, tables: Tables) -> Any:
    """Input padding is thought to be narrower than a group: `span % alignment` slots are skipped, not all."""
    tables.build(right)
    places = read_places(tables)
    return lay_out(
        tables,
        put(
            places,
            lambda place: place.length + (place.span - place.length) % max(tables.alignment, 2),
            lambda place: round_up(place.length, tables.alignment),
        ),
    )


@wrong_layout("core", "fields_are_right", "layouts_are_packed")
def first_row_stands_for_all(right: Target, tables: Tables) -> Any:
    """Packed starts are those of the first row for every row of the batch."""
    tables.build(right)
    places = read_places(tables)
    starts = {place.number: place.packed for place in places if place.row == 0}
    for place in places:
        place.packed = starts.get(place.number, place.packed)
    return lay_out(tables, places, tables.build(right).source_indices.shape[1])


@wrong_layout("core", "fields_are_right", "layouts_are_packed")
def search_from_the_left(right: Target, tables: Tables) -> Any:
    """Slots find their document by a left-sided search, so that a document's first slot gets the id before it."""
    layout = right_layout(right, tables)
    ids, places = layout.sequence_ids.clone(), read_places(tables)
    for place, before in zip(places[1:], places, strict=False):
        if place.row == before.row and place.packed == before.packed + before.length:
            ids[place.row, place.packed] = before.number
    return replace(layout, sequence_ids=ids)


@wrong_layout("core", "fields_are_right")
def equal_boundaries_confuse_search(right: Target, tables: Tables) -> Any:
    """An absent document makes two equal boundaries, and the search takes the first of them."""
    layout = right_layout(right, tables)
    ids, places = layout.sequence_ids.clone(), read_places(tables)
    for place, before in zip(places[1:], places, strict=False):
        if place.row == before.row:
            ids[place.row, place.packed : place.packed + place.length] = before.number + 1
    return replace(layout, sequence_ids=ids)


# --- widths --------------------------------------------------------------------------------------------------------------


@wrong_layout("core", "fields_are_right", "layouts_are_packed")
def minimum_after_rounding(right: Target, tables: Tables) -> Any:
    """The minimum length is applied to the rounded width, and so is not rounded itself."""
    tables.build(right)
    width = max(width_for(replace(tables, minimum_length=0), needed(tables)), tables.minimum_length)
    return lay_out(tables, read_places(tables), width)


@wrong_layout("core", "fields_are_right", "layouts_are_packed")
def minimum_cut_to_input(right: Target, tables: Tables) -> Any:
    """A minimum length above the input row's is ignored."""
    tables.build(right)
    lower = min(tables.minimum_length, tables.input_shape[1])
    return lay_out(tables, read_places(tables), width_for(replace(tables, minimum_length=lower), needed(tables)))


@wrong_layout("core", "fields_are_right", "layouts_are_packed")
def rounding_adds_a_group(right: Target, tables: Tables) -> Any:
    """A width that is a multiple already gets one alignment more."""
    layout = tables.build(right)
    multiple, width = math.lcm(tables.alignment, tables.length_multiple or 1), layout.source_indices.shape[1]
    exact = multiple > 1 and width == max(tables.minimum_length, needed(tables))
    return lay_out(tables, read_places(tables), width + multiple * exact)


@wrong_layout("core", "fields_are_right", "layouts_are_packed")
def product_instead_of_lcm(right: Target, tables: Tables) -> Any:
    """The width is rounded to alignment times length_multiple."""
    tables.build(right)
    multiple = tables.alignment * (tables.length_multiple or 1)
    return lay_out(tables, read_places(tables), round_up(max(tables.minimum_length, needed(tables), 1), multiple))


@wrong_layout("core", "fields_are_right", "layouts_are_packed")
def larger_instead_of_lcm(right: Target, tables: Tables) -> Any:
    """The width is rounded to the larger of alignment and length_multiple, which need not divide each other."""
    tables.build(right)
    multiple = max(tables.alignment, tables.length_multiple or 1)
    return lay_out(tables, read_places(tables), round_up(max(tables.minimum_length, needed(tables), 1), multiple))


@wrong_layout("core", "fields_are_right", "layouts_are_packed")
def width_from_last_row(right: Target, tables: Tables) -> Any:
    """The width is what the last row needs, though an earlier one is longer."""
    tables.build(right)
    last = [place for place in read_places(tables) if place.row == tables.input_shape[0] - 1]
    slots = max((place.packed + place.length for place in last), default=0)
    return lay_out(tables, read_places(tables), width_for(tables, slots))


@wrong_layout("core", "fields_are_right", "layouts_are_packed")
def never_narrower_than_input(right: Target, tables: Tables) -> Any:
    """Packed rows are never shorter than input rows, though dropped padding makes them so."""
    tables.build(right)
    return lay_out(tables, read_places(tables), width_for(tables, max(needed(tables), tables.input_shape[1])))


@wrong_layout("core", "fields_are_right", "layouts_are_packed")
def no_slot_for_nothing(right: Target, tables: Tables) -> Any:
    """Where nothing is present, packed rows have no slot at all."""
    tables.build(right)
    width = 0 if max(tables.minimum_length, needed(tables)) == 0 else None
    return lay_out(tables, read_places(tables), width)


@wrong_layout("core", "fields_are_right")
def restored_width_is_packed_width(right: Target, tables: Tables) -> Any:
    """The way back has as many slots as the packed row where that is the shorter one."""
    layout = right_layout(right, tables)
    width = layout.source_indices.shape[1]
    return replace(layout, input_positions=layout.input_positions[:, :width].contiguous())


# --- what stands in the fields -------------------------------------------------------------------------------------------


@wrong_layout("core", "fields_are_right", "layouts_are_packed")
def positions_run_on(right: Target, tables: Tables) -> Any:
    """Positions count on through the row instead of starting again with each document."""
    layout = right_layout(right, tables)
    real = layout.source_indices >= 0
    return replace(layout, position_ids=(real.cumsum(1) - 1) * real)


@wrong_layout("core", "fields_are_right", "layouts_are_packed")
def padding_has_positions(right: Target, tables: Tables) -> Any:
    """Positions go on through the alignment padding behind a document."""
    layout = right_layout(right, tables)
    positions = layout.position_ids.clone()
    for place in read_places(tables):
        slots = torch.arange(round_up(place.length, tables.alignment))
        positions[place.row, place.packed + slots] = slots
    return replace(layout, position_ids=positions)


@wrong_layout("core", "fields_are_right", "layouts_are_packed")
def padding_has_ids(right: Target, tables: Tables) -> Any:
    """Alignment padding takes the id of the document before it."""
    layout = right_layout(right, tables)
    ids = layout.sequence_ids.clone()
    for place in read_places(tables):
        ids[place.row, place.packed : place.packed + round_up(place.length, tables.alignment)] = place.number
    return replace(layout, sequence_ids=ids)


@wrong_layout("core", "fields_are_right")
def int32_ids(right: Target, tables: Tables) -> Any:
    """Ids have the dtype of the table, which may be int32."""
    layout = right_layout(right, tables)
    return replace(layout, sequence_ids=layout.sequence_ids.to(tables.seq_lens.dtype))


@wrong_layout("core", "fields_are_right", "layouts_are_packed")
def last_token_lost_at_row_end(right: Target, tables: Tables) -> Any:
    """The slot at the input row's very end is taken for padding: an index compared with `<` instead of `<=`."""
    layout = right_layout(right, tables)
    back = layout.input_positions.clone()
    back[:, -1:] = -1
    return replace(layout, input_positions=back)


# --- what a build leaves behind ------------------------------------------------------------------------------------------


@wrong_layout("core", "results_are_independent")
def tables_changed_in_place(right: Target, tables: Tables) -> Any:
    """The marker -1000 is replaced by 0 in the caller's own table."""
    layout = tables.build(right)
    for table in (tables.seq_lens, tables.seq_lens_padded):
        if table is not None:
            table.clamp_min_(0)
    return layout


@fault("core", "layouts_are_independent")
def cache_by_shape(right: Target) -> Any:
    """A layout is looked up by its shapes and its alignment, which other documents may share."""
    cache: dict[Any, Any] = {}

    def packed_layout(*args: Any, **kwargs: Any) -> Any:
        tables = Tables(*args, **kwargs)
        layout = tables.build(right)
        shapes = tuple(getattr(layout, name).shape for name in ("source_indices", "input_positions"))
        return cache.setdefault((shapes, tables.seq_lens.shape, tables.alignment), layout)

    return packed_layout
