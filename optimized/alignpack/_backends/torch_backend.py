"""The backend that runs wherever PyTorch runs."""

import numpy as np
import torch
from numpy.typing import NDArray

from alignpack._backends.interface import Backend, GroupFields, LayoutFields, ShiftedMaps
from alignpack._inputs.tables import ABSENT_MARKER, DocumentTables, LengthTables, place_documents
from alignpack._inputs.words import as_words, words_of

_GAP = -(2**40)
"""How far gaps move: below every column, so that one clamp turns all their slots into padding."""

_FEW_DOCUMENTS = 64
"""Up to this many columns of all rows' tables, writing one document after the other is faster on the CPU."""

_FEW_WORDS = 1024
"""Up to this many words, a call costs what starting its operations costs."""

_BLOCK_WORDS = 2**18
"""Words moved at once on the CPU: temporaries stay in its caches and their memory is reused."""


def unavailable(_device: torch.device) -> str | None:
    """None: PyTorch runs on every device."""
    return None


def build_fields(tables: LengthTables, device: torch.device) -> LayoutFields:
    """The four fields of a layout, in their order."""
    if device.type == "cpu" and tables.lengths.numel() <= _FEW_DOCUMENTS:
        return _write_documents(tables, device)
    return _look_up_runs(place_documents(tables), device)


def _write_documents(tables: LengthTables, device: torch.device) -> LayoutFields:
    """The fields on the CPU, one document after the other."""
    placed, longest = _place_one_by_one(tables)
    batch = tables.lengths.shape[0]
    packed, original = (batch, tables.padded_sequence(longest)), (batch, tables.original_sequence)
    fields = LayoutFields(
        source_indices=torch.full(packed, -1, dtype=torch.int64, device=device),
        input_positions=torch.full(original, -1, dtype=torch.int64, device=device),
        position_ids=torch.zeros(packed, dtype=torch.int64, device=device),
        sequence_ids=torch.zeros(packed, dtype=torch.int64, device=device),
    )
    source_indices, input_positions, position_ids, sequence_ids = (field.numpy() for field in fields)
    columns = np.arange(max(packed[1], original[1]))
    for row, document, length, start, packed_start in placed:
        stop, packed_stop = start + length, packed_start + length
        source_indices[row, packed_start:packed_stop] = columns[start:stop]
        input_positions[row, start:stop] = columns[packed_start:packed_stop]
        position_ids[row, packed_start:packed_stop] = columns[:length]
        sequence_ids[row, packed_start:packed_stop] = document + 1
    return fields


def _place_one_by_one(tables: LengthTables) -> tuple[list[tuple[int, int, int, int, int]], int]:
    """Row, document, length, input start and packed start of each document, and the most groups of a row."""
    lengths = tables.lengths.tolist()
    spans = lengths if tables.spans is None else tables.spans.tolist()
    absent = (0, ABSENT_MARKER)
    placed, longest = [], 0
    for row, documents in enumerate(zip(lengths, spans, strict=True)):
        start = groups = 0
        for document, (length, span) in enumerate(zip(*documents, strict=True)):
            if length in absent and span in absent:
                continue
            if length <= 0 or span < length or start + span > tables.original_sequence:
                raise tables.fault(row, document)
            placed.append((row, document, length, start, groups * tables.alignment))
            start += span
            groups += -(-length // tables.alignment)
        longest = max(longest, groups)
    return placed, longest


def _look_up_runs(tables: DocumentTables, device: torch.device) -> LayoutFields:
    """The fields on any device, by operations on whole tensors.

    A row is a series of runs: a gap, a document, a gap, a document, ..., a gap, any of them empty. A small table holds
    what all slots of a run share (the document's id, how far it moves); each field looks that up by the slot's run.
    """
    batch, documents = tables.lengths.shape
    moved = tables.input_starts - tables.packed_starts
    host = np.full((6, batch, 2 * documents + 1), _GAP, np.int64)
    host[0] = _run_lengths(tables.packed_starts, tables.lengths, tables.padded_sequence)
    host[1] = _run_lengths(tables.input_starts, tables.lengths, tables.original_sequence)
    host[2] = 0
    for fact, of_documents in enumerate((np.arange(1, documents + 1), moved, -moved, -tables.packed_starts), start=2):
        host[fact, :, 1::2] = of_documents
    # One copy to the device for all of them; with CUDA the host does not wait for it.
    facts = torch.from_numpy(host.reshape(6, -1)).to(device, non_blocking=device.type == "cuda")
    packed_runs, input_runs, ids, to_input, to_packed, to_position = facts

    run, columns = _runs_of_slots(packed_runs, (batch, tables.padded_sequence))
    sequence_ids = _look_up(ids, run)
    source_indices = _look_up(to_input, run).add_(columns).clamp_min_(-1)
    position_ids = _look_up(to_position, run).add_(columns).clamp_min_(0)

    run, columns = _runs_of_slots(input_runs, (batch, tables.original_sequence))
    input_positions = _look_up(to_packed, run).add_(columns).clamp_min_(-1)
    return LayoutFields(source_indices, input_positions, position_ids, sequence_ids)


def _run_lengths(starts: NDArray[np.int64], lengths: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """`[batch, 2 * documents + 1]`: slots of each gap and each document of rows of `width` slots."""
    batch, documents = starts.shape
    edges = np.zeros((batch, 2 * documents + 2), np.int64)
    edges[:, 1:-1:2] = starts
    edges[:, 2:-1:2] = starts + lengths
    edges[:, -1] = width
    return np.diff(edges, axis=1)


def _runs_of_slots(run_lengths: torch.Tensor, shape: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """`[batch, width]`: the run that each slot belongs to, counted over all rows; and `[width]`: its column."""
    batch, width = shape
    runs = torch.repeat_interleave(run_lengths, output_size=batch * width).view(shape)
    return runs, torch.arange(width, device=run_lengths.device)


def _look_up(facts: torch.Tensor, runs: torch.Tensor) -> torch.Tensor:
    # `gather` along rows uses all threads, where `index_select` from one vector uses one.
    return facts.expand(runs.shape[0], -1).gather(1, runs)


def gather_slots(values: torch.Tensor, index: torch.Tensor, words: tuple[int, ...]) -> torch.Tensor:
    """`out[b, i] = values[b, index[b, i]]`, and the fill where `index` is -1."""
    source = as_words(values)
    if (
        values.ndim == 2
        and source.dtype == values.dtype
        and index.numel() <= _BLOCK_WORDS
        and _takes_most(source, index)
    ):
        return _gather_padded(source, index, words)  # ids: no view and no reshape needed
    # The result is written through a view of its words. Were it a view itself, autograd would refuse in-place changes
    # to it.
    result = values.new_empty(*index.shape, *values.shape[2:])
    out = words_of(result)
    if result.numel() == 0:
        return result
    if values.shape[2:].numel() == 1 and len(words) == 1:
        _gather_narrow(source.flatten(1), index, words, out.flatten(1))
    # Word indices cost more than the words, but for few of either the number of operations decides.
    elif len(words) == 1 and max(source.numel(), out.numel()) <= _FEW_WORDS:
        _gather_padded(source, index, words, out)
    else:
        _gather_wide(source, index, words, out)
    return result


def _gather_narrow(source: torch.Tensor, index: torch.Tensor, words: tuple[int, ...], out: torch.Tensor) -> None:
    """`[batch, slots]` words into `[batch, columns]`, some rows at a time."""
    gather = _gather_padded if _takes_most(source, index) else _gather_masked
    rows = max(1, _BLOCK_WORDS // index.shape[1])
    if not source.is_cpu or rows >= index.shape[0]:
        gather(source, index, words, out)
        return
    for part, places, target in zip(source.split(rows), index.split(rows), out.split(rows), strict=True):
        gather(part, places, words, target)


def _gather_masked(source: torch.Tensor, index: torch.Tensor, words: tuple[int, ...], out: torch.Tensor) -> None:
    """`[batch, slots]` words into `[batch, columns]`; it reads only the slots it needs, and at least one."""
    torch.gather(source, 1, index.clamp_min(0), out=out).masked_fill_(index < 0, words[0])


def _takes_most(source: torch.Tensor, index: torch.Tensor) -> bool:
    # A shard takes few of many slots and should not touch the others; the padded form copies all.
    return 2 * index.shape[1] >= source.shape[1]


def _gather_padded(
    source: torch.Tensor, index: torch.Tensor, words: tuple[int, ...], out: torch.Tensor | None = None
) -> torch.Tensor:
    """`[batch, slots, ...]` words of any strides to `[batch, columns, ...]`, word by word."""
    # The fill is put in front of every row: -1 + 1 finds it without a mask.
    if source.numel() <= _FEW_WORDS:  # one operation, though it writes every word twice
        padded = torch.constant_pad_nd(source, (0, 0) * (source.ndim - 2) + (1, 0), words[0])
    else:
        padded = torch.cat((source.new_full((source.shape[0], 1, *source.shape[2:]), words[0]), source), dim=1)
    places = index + 1
    if out is not None and source.ndim > 2:
        places = places.view(*index.shape, *(1,) * (source.ndim - 2)).expand(*out.shape)
    return torch.gather(padded, 1, places, out=out)


def _gather_wide(source: torch.Tensor, index: torch.Tensor, words: tuple[int, ...], out: torch.Tensor) -> None:
    """`[batch, slots, ...]` words into `[batch, columns, ...]`."""
    batch, slots = source.shape[:2]
    rows_out = out.view(index.numel(), -1)
    if slots > 0:
        rows = index.clamp_min(0)
        if batch > 1:
            rows += torch.arange(0, batch * slots, slots, device=index.device).unsqueeze(1)
        torch.index_select(source.reshape(batch * slots, -1), 0, rows.reshape(-1), out=rows_out)
    _fill_rows(rows_out, index.reshape(-1) < 0, words)


def _fill_rows(rows: torch.Tensor, padding: torch.Tensor, words: tuple[int, ...]) -> None:
    """Write the fill into the rows `[n, width]` that are `padding` `[n]`, word by word where it has two."""
    places = padding.nonzero().squeeze(1) if rows.is_cpu else None
    for first, word in enumerate(words):
        part = rows if len(words) == 1 else rows[:, first :: len(words)]
        if places is not None:
            part.index_fill_(0, places, word)
        else:
            # `nonzero` would make the host wait for the device.
            part.masked_fill_(padding.unsqueeze(1), word)


def group_fields(sequence_ids: torch.Tensor, position_ids: torch.Tensor, offset: int, ratio: int) -> GroupFields:
    """The six tensors of `CompressionGroups`, in their order, from the ids and positions of all slots.

    A document starts where a group starts, and its tokens follow each other. So a group's first slot tells its document,
    and its last slot whether it is full.
    """
    batch, slots = sequence_ids.shape
    ids, positions = (tensor.view(batch, slots // ratio, ratio) for tensor in (sequence_ids, position_ids))
    group_ids, group_positions = (
        tensor[:, :, 0].clone(memory_format=torch.contiguous_format) for tensor in (ids, positions)
    )
    complete = ids[:, :, -1] != 0
    first = group_positions < group_ids.clamp(0, 1)

    # A shard may start inside a document; positions alone tell where the document starts.
    multiplier, shift = reciprocal(ratio)
    columns = torch.arange(offset // ratio, (offset + slots) // ratio, device=sequence_ids.device)
    document_starts = torch.sub(columns, group_positions.mul(multiplier).bitwise_right_shift_(shift))
    # With `start + position = offset + slot`, and starts that are multiples of the ratio, `visible_end` is the same for
    # a column of all rows.
    ends = torch.arange(offset + 1, offset + slots + 1, device=sequence_ids.device)
    ends.mul_(multiplier).bitwise_right_shift_(shift)
    # On a CPU integers of 64 bits are masked in half the time in which they are multiplied or chosen.
    real = sequence_ids.clamp(0, 1).neg_()  # all bits set at tokens, none at padding
    visible_start = document_starts.repeat_interleave(ratio, dim=1, output_size=slots).bitwise_and_(real)
    visible_end = real.bitwise_and_(ends)
    return GroupFields(group_ids, group_positions, complete, first, visible_start, visible_end)


def reciprocal(divisor: int) -> tuple[int, int]:
    """`(multiplier, shift)` such that `x // divisor` is `x * multiplier >> shift` for 0 <= x < 2**31.

    A processor divides many times more slowly than it multiplies, and does not vectorise integer division.
    """
    # A multiplier that is too large by less than one makes the product too large by less than x / 2**shift, and that is
    # less than 1 / divisor, the least by which a quotient misses the next integer. The product has 63 bits.
    shift = 31 + (divisor - 1).bit_length()
    return (1 << shift) // divisor + 1, shift


def shift_maps(
    source_indices: torch.Tensor, input_positions: torch.Tensor, sequence_ids: torch.Tensor, k: int
) -> ShiftedMaps:
    """`source_indices` and `input_positions` of a shifted layout: each slot takes what slot + `k` takes."""
    sources = _shifted_sources(source_indices, sequence_ids, k)
    return ShiftedMaps(sources, _shifted_positions(input_positions, sources, k))


def _shifted_sources(source_indices: torch.Tensor, sequence_ids: torch.Tensor, k: int) -> torch.Tensor:
    """`[batch, padded_sequence]`: the source of slot + `k` where that is in the same document, else -1."""
    padded_sequence = source_indices.shape[1]
    distance = min(abs(k), padded_sequence)
    near, far = slice(0, padded_sequence - distance), slice(distance, None)
    takes, gives, beyond = (near, far, (0, distance)) if k > 0 else (far, near, (distance, 0))
    shifted = torch.nn.functional.pad(source_indices[:, gives], beyond, value=-1)
    # At padding the source is -1 already, so the equal ids of padding do no harm.
    shifted[:, takes].masked_fill_(sequence_ids[:, takes] != sequence_ids[:, gives], -1)
    return shifted


def _shifted_positions(input_positions: torch.Tensor, shifted_sources: torch.Tensor, k: int) -> torch.Tensor:
    """`[batch, original_sequence]`: the slot that takes each input slot after the shift, or -1.

    Only the slot `k` before the one that took it can take it now, and that slot's source says whether it does. Slots
    beyond the row, and those of input padding, are clamped to a slot of the row, which names another input slot.
    """
    padded_sequence = shifted_sources.shape[1]
    k = max(-padded_sequence, min(k, padded_sequence))
    slots = (input_positions - k).clamp_(0, padded_sequence - 1)
    columns = torch.arange(input_positions.shape[1], device=input_positions.device)
    return slots.masked_fill_(shifted_sources.gather(1, slots) != columns, -1)


def warmup(_device: torch.device) -> None:
    """Nothing is compiled."""


BACKEND = Backend("torch", None, unavailable, build_fields, gather_slots, group_fields, shift_maps, warmup)
