"""The backend that runs wherever PyTorch runs: whole-tensor operations only, none per document."""

import numpy as np
import torch
from numpy.typing import NDArray

from alignpack.tables import DocumentTables
from alignpack.values import as_words, from_words


def unavailable(_device: torch.device) -> str | None:
    """It runs on every device."""
    return None


def build_fields(
    tables: DocumentTables, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The four fields of a layout, in their order."""
    packed = _DocumentRuns(tables.packed_starts, tables.lengths, tables.padded_sequence, device)
    source_indices = packed.columns_moved_by(tables.input_starts - tables.packed_starts)
    original = _DocumentRuns(tables.input_starts, tables.lengths, tables.original_sequence, device)
    input_positions = original.columns_moved_by(tables.packed_starts - tables.input_starts)
    return source_indices, input_positions, packed.positions(), packed.ids


class _DocumentRuns:
    """The slots of rows as runs: a gap, a document, a gap, a document, ..., a gap; any of them may be empty.

    One run has one fact of each kind (its id, its shift), so each field is a small table of facts, looked up by the
    run that a slot belongs to.
    """

    def __init__(self, starts: NDArray[np.int64], lengths: NDArray[np.int64], width: int, device: torch.device) -> None:
        batch, documents = starts.shape
        edges = np.zeros((batch, 2 * documents + 2), np.int64)  # where each run starts, and at last where the row ends
        edges[:, 1:-1:2] = starts
        edges[:, 2:-1:2] = starts + lengths
        edges[:, -1] = width
        slots = torch.from_numpy(np.diff(edges, axis=1).ravel()).to(device)
        self._starts = starts
        self._shape = (batch, width)
        self._run = torch.repeat_interleave(slots, output_size=batch * width)
        self._columns = torch.arange(width, device=device)
        self.ids = self._look_up(np.broadcast_to(np.arange(1, documents + 1), starts.shape))
        self._gap = self.ids == 0

    def columns_moved_by(self, shifts: NDArray[np.int64]) -> torch.Tensor:
        """Each slot's column plus its document's shift, -1 in gaps."""
        return self._look_up(shifts).add_(self._columns).masked_fill_(self._gap, -1)

    def positions(self) -> torch.Tensor:
        """Each slot's position within its document, 0 in gaps."""
        return self._look_up(-self._starts).add_(self._columns).masked_fill_(self._gap, 0)

    def _look_up(self, facts: NDArray[np.int64]) -> torch.Tensor:
        """`[batch, documents]` facts as `[batch, width]`, 0 in gaps."""
        batch, documents = facts.shape
        of_runs = np.zeros((batch, 2 * documents + 1), np.int64)
        of_runs[:, 1::2] = facts
        table = torch.from_numpy(of_runs.ravel()).to(self._run.device)
        return table.index_select(0, self._run).view(self._shape)


def gather_rows(values: torch.Tensor, index: torch.Tensor, words: tuple[int, ...]) -> torch.Tensor:
    """`out[b, i] = values[b, index[b, i]]`, and the fill where `index` is -1."""
    shape = (*index.shape, *values.shape[2:])
    if 0 in shape:
        return values.new_empty(shape)
    source = as_words(values)
    if source.shape[2] == 1:
        # The fill stands in front of every row, so that -1 + 1 finds it: no mask, any strides.
        padded = torch.constant_pad_nd(source.squeeze(2), (1, 0), words[0])
        moved = padded.gather(1, index + 1).unsqueeze(2)
    else:
        moved = _gather_wide(source, index, words)
    return from_words(moved, values)


def _gather_wide(source: torch.Tensor, index: torch.Tensor, words: tuple[int, ...]) -> torch.Tensor:
    batch, slots, width = source.shape
    columns = index.shape[1]
    if slots == 0:
        moved = source.new_empty(batch * columns, width)
    else:
        rows = index.clamp_min(0)
        if batch > 1:
            rows += torch.arange(0, batch * slots, slots, device=index.device).unsqueeze(1)
        moved = source.reshape(batch * slots, width).index_select(0, rows.reshape(-1))
    for number, word in enumerate(words):
        _fill_rows(moved[:, number :: len(words)], index, word)
    return moved.view(batch, columns, width)


def _fill_rows(rows: torch.Tensor, index: torch.Tensor, word: int) -> None:
    """Write the word into the rows whose index is -1."""
    padding = index.reshape(-1) < 0
    if rows.device.type == "cpu":
        rows.index_fill_(0, padding.nonzero().squeeze(1), word)
    else:
        # `nonzero` would make the host wait for the device.
        rows.masked_fill_(padding.unsqueeze(1), word)
