"""The backend that runs wherever PyTorch runs: whole-tensor operations only, none per document."""

import numpy as np
import torch
from numpy.typing import NDArray

from alignpack.tables import LengthTables, place_documents
from alignpack.values import as_words, words_of

_GAP = -(2**40)
"""How far gaps move: below every column, so that one lower bound turns all their slots into padding."""

_FEW_WORDS = 1024
"""Up to so many words a call costs what its operations cost to start."""

_BLOCK_WORDS = 2**18
"""Words that are moved at once on the CPU: what is in between stays in its caches, and is never mapped afresh."""


def unavailable(_device: torch.device) -> str | None:
    """It runs on every device."""
    return None


def build_fields(
    length_tables: LengthTables, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The four fields of a layout, in their order.

    A row is a series of runs: a gap, a document, a gap, a document, ..., a gap, any of them empty. What is the same for
    all slots of a run (the document's id, how far it moves) is a small table of facts; each field is a look-up by the
    run that a slot belongs to.

    Raises:
        LayoutError: see `place_documents`.
    """
    tables = place_documents(length_tables)
    batch, documents = tables.lengths.shape
    moved = tables.input_starts - tables.packed_starts
    host = np.full((6, batch, 2 * documents + 1), _GAP, np.int64)
    host[0] = _run_lengths(tables.packed_starts, tables.lengths, tables.padded_sequence)
    host[1] = _run_lengths(tables.input_starts, tables.lengths, tables.original_sequence)
    host[2] = 0
    for fact, of_documents in enumerate((np.arange(1, documents + 1), moved, -moved, -tables.packed_starts), start=2):
        host[fact, :, 1::2] = of_documents
    # All facts cross to the device at once; CUDA copies them without making the host wait.
    facts = torch.from_numpy(host.reshape(6, -1)).to(device, non_blocking=device.type == "cuda")
    packed_runs, input_runs, ids, to_input, to_packed, to_position = facts

    run, columns = _runs_of_slots(packed_runs, (batch, tables.padded_sequence))
    sequence_ids = _look_up(ids, run)
    source_indices = _look_up(to_input, run).add_(columns).clamp_min_(-1)
    position_ids = _look_up(to_position, run).add_(columns).clamp_min_(0)

    run, columns = _runs_of_slots(input_runs, (batch, tables.original_sequence))
    input_positions = _look_up(to_packed, run).add_(columns).clamp_min_(-1)
    return source_indices, input_positions, position_ids, sequence_ids


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


def gather_rows(values: torch.Tensor, index: torch.Tensor, words: tuple[int, ...]) -> torch.Tensor:
    """`out[b, i] = values[b, index[b, i]]`, and the fill where `index` is -1."""
    source = as_words(values)
    if (
        values.ndim == 2
        and source.dtype == values.dtype
        and index.numel() <= _BLOCK_WORDS
        and _takes_most(source, index)
    ):
        return _gather_padded(source, index, words)  # ids: nothing to view, nothing to part
    # The result is written through its words and given itself: were it a view of the words, autograd would refuse to
    # let it be changed in place.
    result = values.new_empty(*index.shape, *values.shape[2:])
    out = words_of(result)
    if result.numel() == 0:
        return result
    if values.shape[2:].numel() == 1 and len(words) == 1:
        _gather_narrow(source.flatten(1), index, words, out.flatten(1))
    # The indices of words cost more than the words, but where both are few the number of operations counts.
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
    """`[batch, slots]` words into `[batch, columns]`; it reads no more slots than it needs, and at least one."""
    torch.gather(source, 1, index.clamp_min(0), out=out).masked_fill_(index < 0, words[0])


def _takes_most(source: torch.Tensor, index: torch.Tensor) -> bool:
    # A shard takes few of many slots, and must not touch the others; the padded form copies all.
    return 2 * index.shape[1] >= source.shape[1]


def _gather_padded(
    source: torch.Tensor, index: torch.Tensor, words: tuple[int, ...], out: torch.Tensor | None = None
) -> torch.Tensor:
    """`[batch, slots, ...]` words of any strides to `[batch, columns, ...]`, word by word."""
    # The fill stands in front of every row, so that -1 + 1 finds it and no mask is needed.
    if source.numel() <= _FEW_WORDS:  # one operation, although it writes every word twice
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
