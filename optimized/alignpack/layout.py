"""The layout, the layouts and groups derived from it, and the function that builds it."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar, SupportsIndex

import torch

from alignpack._backends import BackendName, select_backend, select_backend_for
from alignpack._gather import check_and_choose, check_and_gather, gather_slots
from alignpack._inputs.arguments import Fill, check_mapping, integer_at_least, read_integer
from alignpack._inputs.tables import read_tables
from alignpack._record import TensorRecord, register_record
from alignpack._torch_state import graph_break, without_inference_mode, without_modes_and_transforms
from alignpack.groups import CompressionGroups, groups_of
from alignpack_reference import errors


@register_record
@dataclass(frozen=True, eq=False, repr=False)
class PackedSequenceLayout(TensorRecord):
    """Where each slot of the packed rows comes from, and where each slot of the input rows goes.

    The two index maps are inverse to each other on real tokens; everything else follows from that. All tensors are
    int64, contiguous and on one device. A layout is immutable; it compares and hashes by identity (`equal` compares
    contents), pickles, and is a pytree whose leaves are the four tensors. The constructor checks nothing, because
    transforms rebuild layouts from traced tensors: use `packed_layout`.

    Attributes:
        source_indices: `[batch, padded_sequence]`, the input column of each packed slot; -1 at padding.
        input_positions: `[batch, original_sequence]`, the packed column of each input slot; -1 where the input slot
            was padding.
        position_ids: `[batch, padded_sequence]`, the position within the document; 0 at padding.
        sequence_ids: `[batch, padded_sequence]`, the document's table column + 1; 0 at padding.
        alignment: documents start at multiples of it, in slots.
        offset: the column of the whole packed row at which this layout's first slot stands (above 0 only for shards).
        row_length: slots of the whole packed row; None when that is this layout's own width.
    """

    source_indices: torch.Tensor
    input_positions: torch.Tensor
    position_ids: torch.Tensor
    sequence_ids: torch.Tensor
    _: KW_ONLY
    alignment: int = 1
    offset: int = 0
    row_length: int | None = None

    _TENSORS: ClassVar = ("source_indices", "input_positions", "position_ids", "sequence_ids")
    _INTEGERS: ClassVar = ("alignment", "offset", "row_length")

    @property
    def padding_mask(self) -> torch.Tensor:
        """`[batch, padded_sequence]` bool, True at padding."""
        return self.sequence_ids == 0

    @property
    def token_counts(self) -> torch.Tensor:
        """`[batch]` int64, the real tokens of each row; of a shard, those of its part of the row."""
        return (self.sequence_ids != 0).sum(dim=1)

    def pack(self, values: torch.Tensor, fill: Fill = 0, *, backend: BackendName | None = None) -> torch.Tensor:
        """Carry values into the packed rows.

        The gradient is a gather through `input_positions`: exact, deterministic, 0 at input padding, and independent
        of what the upstream gradient holds at packed padding. It can be differentiated again.

        Args:
            values: `[batch, original_sequence, ...]` on the layout's device, any strides; bool, integers, float8 (e4m3,
                e5m2), float16, bfloat16, float32, float64, complex64 or complex128. Bits are kept.
            fill: the value at padding, a Python or NumPy number; exact for integers, rounded for floats.
            backend: the implementation by name; None takes `ALIGNPACK_BACKEND` or the fastest that runs.

        Returns:
            `[batch, padded_sequence, ...]`, a new contiguous tensor of the same dtype.

        Raises:
            TypeError: `values` is not a plain tensor of such a dtype; `fill` is not a number, or is complex for a
                real dtype.
            ValueError: `values` does not fit the layout, `fill` does not fit the dtype, or the backend is unknown.
            RuntimeError: the backend does not run on this device.

        Example:
            >>> layout = packed_layout(torch.tensor([[3, 2]]), torch.tensor([[4, 4]]), (1, 8), alignment=4)
            >>> layout.pack(torch.tensor([[10, 11, 12, 99, 20, 21, 98, 97]]), fill=-100)
            tensor([[  10,   11,   12, -100,   20,   21, -100, -100]])
        """
        return check_and_gather(values, self.source_indices, self.input_positions, fill, backend)

    def restore(self, values: torch.Tensor, *, backend: BackendName | None = None) -> torch.Tensor:
        """Carry packed values back to the input rows; input padding comes back as zero.

        The gradient is a gather through `source_indices`, with the properties of the gradient of `pack`.

        Args:
            values: `[batch, padded_sequence, ...]`, otherwise as in `pack`.
            backend: as in `pack`.

        Returns:
            `[batch, original_sequence, ...]`, a new contiguous tensor of the same dtype.

        Raises:
            TypeError: `values` is not a plain tensor of a dtype that `pack` takes.
            ValueError: `values` does not fit the layout, or the backend is unknown.
            RuntimeError: the backend does not run on this device.

        Example:
            >>> layout = packed_layout(torch.tensor([[3, 2]]), torch.tensor([[4, 4]]), (1, 8), alignment=4)
            >>> layout.restore(torch.tensor([[10, 11, 12, -100, 20, 21, -100, -100]]))
            tensor([[10, 11, 12,  0, 20, 21,  0,  0]])
        """
        return check_and_gather(values, self.input_positions, self.source_indices, backend=backend)

    def pack_batch(
        self,
        batch: Mapping[str, torch.Tensor],
        fill: Fill | Mapping[str, Fill] = 0,
        *,
        backend: BackendName | None = None,
    ) -> dict[str, torch.Tensor]:
        """Pack every tensor of a batch; nothing is packed when any of them is refused.

        Args:
            batch: names and values, each as in `pack`.
            fill: one fill for all, or a mapping from names to fills; a name without one gets 0.
            backend: as in `pack`.

        Returns:
            The packed tensors under the same names, in the same order.

        Raises:
            TypeError, RuntimeError, ValueError: as in `pack`, naming the key; or `fill` has a name that `batch` has not.

        Example:
            >>> layout = packed_layout(torch.tensor([[3]]), None, (1, 3), alignment=4)
            >>> batch = {"input_ids": torch.tensor([[5, 6, 7]]), "labels": torch.tensor([[6, 7, 8]])}
            >>> layout.pack_batch(batch, fill={"labels": -100})
            {'input_ids': tensor([[5, 6, 7, 0]]), 'labels': tensor([[   6,    7,    8, -100]])}
        """
        check_mapping(batch)
        fills = fill if isinstance(fill, Mapping) else dict.fromkeys(batch, fill)
        if unknown := [key for key in fills if key not in batch]:
            raise ValueError(f"fill has no tensor to fill for {unknown}; the batch holds {list(batch)}")
        index, inverse = self.source_indices, self.input_positions
        choices = {
            key: check_and_choose(values, inverse, fills.get(key, 0), backend, f"batch[{key!r}]", f"fill[{key!r}]")
            for key, values in batch.items()
        }
        return {key: gather_slots(batch[key], index, inverse, *choice) for key, choice in choices.items()}

    def __getitem__(self, rows: slice) -> "PackedSequenceLayout":
        """The layout of some of the rows, `layout[i:j]`, a copy of the same width.

        Raises:
            TypeError: the subscript is not a slice of integers.
            ValueError: the step is not positive.

        Example:
            >>> layout = packed_layout(torch.tensor([[3], [1]]), None, (2, 3), alignment=2)
            >>> layout[1:].source_indices
            tensor([[ 0, -1, -1, -1]])
        """
        if not isinstance(rows, slice) or not all(
            bound is None or isinstance(bound, SupportsIndex) for bound in (rows.start, rows.stop, rows.step)
        ):
            raise errors.not_rows(rows)
        if rows.step is not None and rows.step < 1:
            raise errors.not_forward(rows.step)
        return self._map(lambda field: field[rows].clone(memory_format=torch.contiguous_format))

    def shard(self, rank: int, size: int) -> "PackedSequenceLayout":
        """The part of every row that one rank owns under contiguous context parallelism.

        `shard.pack(values)` takes the full input rows and gives the local slice of the packed rows. The sum over all
        ranks of `shard.restore(local)` is the full restore, because exactly one rank owns each token.

        Args:
            rank: which part, from 0.
            size: the number of parts.

        Returns:
            The layout of the columns `[rank * width, (rank + 1) * width)`, where `width` is `padded_sequence / size`.

        Raises:
            TypeError: `size` or `rank` is not an integer.
            ValueError: one is out of range, or a cut falls inside a group; the message names a `length_multiple` to use.

        Example:
            >>> layout = packed_layout(torch.tensor([[3, 5]]), None, (1, 8), 4, length_multiple=8)
            >>> layout.source_indices
            tensor([[ 0,  1,  2, -1,  3,  4,  5,  6,  7, -1, -1, -1, -1, -1, -1, -1]])
            >>> layout.shard(1, 2).source_indices
            tensor([[ 7, -1, -1, -1, -1, -1, -1, -1]])
            >>> layout.shard(1, 2).input_positions
            tensor([[-1, -1, -1, -1, -1, -1, -1,  0]])
        """
        size = integer_at_least("size", size, 1)
        rank = integer_at_least("rank", rank, 0)
        if rank >= size:
            raise errors.bad_shard(rank, size)
        padded_sequence = self.source_indices.shape[1]
        row_length = padded_sequence if self.row_length is None else self.row_length
        if padded_sequence % (size * self.alignment):
            shards_of_row = row_length // padded_sequence * size
            raise errors.uneven_shards(padded_sequence, size, self.alignment, shards_of_row * self.alignment)
        width = padded_sequence // size
        start = rank * width
        with without_inference_mode():
            local = self.input_positions - start
            local.masked_fill_((local < 0) | (local >= width), -1)
            sources, positions, ids = (
                field[:, start : start + width].clone(memory_format=torch.contiguous_format)
                for field in (self.source_indices, self.position_ids, self.sequence_ids)
            )
        alignment, offset = self.alignment, self.offset + start
        return PackedSequenceLayout(
            sources, local, positions, ids, alignment=alignment, offset=offset, row_length=row_length
        )

    def shift(self, k: int) -> "PackedSequenceLayout":
        """The layout in which each slot takes the token `k` positions later in its document, as next-token labels need.

        It is a layout again: `pack` puts the token `k` positions later into each slot, and the fill where the document
        has no such token; `restore` carries each slot's value back to the token that the slot took, and gives zero to
        tokens that no slot takes. `position_ids` and `sequence_ids` stay as they are, and so do `padding_mask`,
        `token_counts` and `groups`.

        Args:
            k: positions: 1 takes the next token, -1 the previous one.

        Returns:
            A layout of the same shapes; `k` of 0 gives this one.

        Raises:
            TypeError: `k` is not an integer.
            ValueError: the layout is a shard, whose tokens may come from other ranks: shift first, then shard.

        Example:
            >>> layout = packed_layout(torch.tensor([[3, 2]]), None, (1, 5), alignment=4)
            >>> ids = torch.tensor([[10, 11, 12, 20, 21]])
            >>> layout.pack(ids)
            tensor([[10, 11, 12,  0, 20, 21,  0,  0]])
            >>> layout.shift(1).pack(ids, fill=-100)
            tensor([[  11,   12, -100, -100,   21, -100, -100, -100]])
        """
        k = read_integer("k", k)
        # The shard of a single rank is refused too, so that code fails on one rank as it would on two.
        if self.row_length is not None:
            raise errors.shifted_shard(self.offset, self.source_indices.shape[1], self.row_length)
        if k == 0:
            return self
        with without_inference_mode():
            backend = select_backend_for(self.source_indices, self.input_positions, self.sequence_ids)
            maps = backend.shift_maps(self.source_indices, self.input_positions, self.sequence_ids, k)
        # A shift keeps ids and positions, and layouts are immutable, so the tensors are shared.
        return replace(self, source_indices=maps.source_indices, input_positions=maps.input_positions)

    def groups(self, ratio: int) -> CompressionGroups:
        """The groups of `ratio` slots that compressed attention pools: documents, completeness, visibility.

        `packed.unflatten(1, (-1, ratio))` is `[batch, groups, ratio, ...]`, ready to pool, and no group holds tokens of
        two documents. One layout serves any number of ratios; nothing is cached.

        Args:
            ratio: slots of a group, a divisor of the alignment.

        Returns:
            `CompressionGroups`: four tensors `[batch, slots / ratio]` and two `[batch, slots]`.

        Raises:
            TypeError: `ratio` is not an integer.
            ValueError: it is below 1 or does not divide the alignment; the message says which alignment allows it.

        Example:
            >>> layout = packed_layout(torch.tensor([[3, 6]]), None, (1, 9), alignment=4)
            >>> groups = layout.groups(4)
            >>> groups.sequence_ids
            tensor([[1, 2, 2]])
            >>> groups.complete
            tensor([[False,  True, False]])
            >>> groups.visible_end - groups.visible_start  # how many groups each token may see
            tensor([[0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0]])
        """
        return groups_of(self.sequence_ids, self.position_ids, self.alignment, self.offset, ratio)


@graph_break
def packed_layout(
    seq_lens: torch.Tensor,
    seq_lens_padded: torch.Tensor | None,
    input_shape: Sequence[int],
    alignment: int,
    minimum_length: int = 0,
    *,
    length_multiple: int | None = None,
    device: torch.device | str | int | None = None,
    backend: BackendName | None = None,
) -> PackedSequenceLayout:
    """Move every document of every packed row to the next multiple of `alignment`.

    Documents follow each other in the input row from slot 0, each in its own physical span, real tokens first. In the
    packed row they keep their order, and the input's padding is dropped. All packed rows have
    `max(minimum_length, longest packed row, 1)` slots, rounded up to a multiple of `alignment` and `length_multiple`.

    The tables are read once, on the host: tables on an accelerator are copied to the host once.
    In compiled code the call is a graph break.

    Args:
        seq_lens: `[batch, documents]` (or `[documents]` for batch 1) int32 or int64: real tokens of each document, in
            row order. 0 or -1000 means: no document here.
        seq_lens_padded: the physical spans: the slots that each document occupies in the input row, with its own padding; of
            the same shapes and dtypes as `seq_lens` may be. None: documents follow each other directly.
        input_shape: `(batch, original_sequence)` of the tensors to be packed.
        alignment: documents start at multiples of it, in slots.
        minimum_length: packed rows have at least this many slots. `original_sequence + documents * (alignment - 1)` is
            enough for every batch of that shape, and so keeps shapes constant.
        length_multiple: the slots of packed rows are a multiple of it, and always of `alignment`; for context
            parallelism over `size` ranks, `size * alignment`.
        device: where the layout's tensors live; None: where `seq_lens` lives.
        backend: the implementation by name; None takes `ALIGNPACK_BACKEND` or the fastest that runs.

    Returns:
        The layout: fields `[batch, padded_sequence]` and `[batch, original_sequence]`, int64, on `device`.

    Raises:
        TypeError: a table is not a tensor with values, or an integer argument is not an integer.
        ValueError: an argument is out of range, shapes or dtypes do not match, packed rows would exceed 2**31 - 1
            slots, or the backend is unknown.
        LayoutError: the first document, in row-major order, that the input row cannot hold; its `row` and `document`
            say which.
        RuntimeError: the backend does not run on this device.

    Example:
        >>> layout = packed_layout(torch.tensor([[3, 2]]), torch.tensor([[4, 4]]), (1, 8), alignment=4)
        >>> layout.source_indices
        tensor([[ 0,  1,  2, -1,  4,  5, -1, -1]])
        >>> layout.position_ids
        tensor([[0, 1, 2, 0, 0, 1, 0, 0]])
        >>> layout.sequence_ids
        tensor([[1, 1, 1, 0, 2, 2, 0, 0]])
        >>> layout.shard(0, 2).sequence_ids
        tensor([[1, 1, 1, 0]])
    """
    # Tables are plain numbers, whatever is traced or transformed around the call. And a layout that is built under
    # inference mode must serve training later.
    with without_modes_and_transforms():
        tables = read_tables(seq_lens, seq_lens_padded, input_shape, alignment, minimum_length, length_multiple)
        target = seq_lens.device if device is None else torch.device(device)
        implementation = select_backend(backend, target)
        return PackedSequenceLayout(*implementation.build_fields(tables, target), alignment=tables.alignment)
