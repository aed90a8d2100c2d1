"""Deliberate faults in what a layout offers beside `pack` and `restore`: shards, rows, batches, copies, equality."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import torch
import torch.utils._pytree as pytree

from alignpack import PackedSequenceLayout
from alignpack._backends import BackendName
from alignpack_fuzz.compare import FIELDS
from tests.faults.wrapping import INTEGERS, FaultyLayout, as_class, wrong_object

# --- shards --------------------------------------------------------------------------------------------------------------


@wrong_object("strict", "shards_make_the_whole")
class ShardPositionsNumberedAgain(FaultyLayout):
    """A document that goes on in the next shard starts there at position 0 again."""

    def shard(self, rank: int, size: int) -> FaultyLayout:
        """See the class."""
        local = super().shard(rank, size)
        first_ids, first = local.sequence_ids[:, :1], local.position_ids[:, :1]
        return replace(local, position_ids=local.position_ids - torch.where(local.sequence_ids == first_ids, first, 0))


@wrong_object("strict", "shards_make_the_whole")
class ShardMapStaysGlobal(FaultyLayout):
    """The way back of a shard keeps columns of the whole row."""

    def shard(self, rank: int, size: int) -> FaultyLayout:
        """See the class."""
        local = super().shard(rank, size)
        start = local.offset - self.offset
        back = local.input_positions
        return replace(local, input_positions=torch.where(back == -1, back, back + start))


@wrong_object("strict", "shards_make_the_whole")
class ShardSourcesCountFromItsStart(FaultyLayout):
    """The sources of a shard are counted from the shard's start, although it is given the whole input."""

    def shard(self, rank: int, size: int) -> FaultyLayout:
        """See the class."""
        local = super().shard(rank, size)
        first = torch.where(local.source_indices < 0, 2**40, local.source_indices).amin(dim=1, keepdim=True)
        return replace(local, source_indices=torch.where(local.source_indices < 0, -1, local.source_indices - first))


@wrong_object("strict", "shards_make_the_whole")
class ShardsOwnOneTokenTwice(FaultyLayout):
    """The token behind a shard's last slot counts as the shard's, too: `<=` for `<`."""

    def shard(self, rank: int, size: int) -> FaultyLayout:
        """See the class."""
        local = super().shard(rank, size)
        width = local.source_indices.shape[1]
        behind = self.input_positions == local.offset - self.offset + width
        return replace(local, input_positions=local.input_positions.masked_fill(behind, width))


@wrong_object("strict", "shards_make_the_whole")
class ShardOfPaddingHasNoWayBack(FaultyLayout):
    """A shard whose slots are all padding has no way back: its map is empty."""

    def shard(self, rank: int, size: int) -> FaultyLayout:
        """See the class."""
        local = super().shard(rank, size)
        nothing = bool((local.source_indices < 0).all())
        return replace(local, input_positions=local.input_positions[:, :0]) if nothing else local


@wrong_object("strict", "shards_make_the_whole")
class ShardIsAView(FaultyLayout):
    """The fields of a shard are views of the whole row's, and so not contiguous."""

    def shard(self, rank: int, size: int) -> FaultyLayout:
        """See the class."""
        local = super().shard(rank, size)
        start = local.offset - self.offset
        columns = slice(start, start + local.source_indices.shape[1])
        return replace(local, source_indices=self.source_indices[:, columns])


@wrong_object("strict", "shards_make_the_whole")
class ShardRowLengthIsItsOwn(FaultyLayout):
    """A shard forgets how long the whole row is."""

    def shard(self, rank: int, size: int) -> FaultyLayout:
        """See the class."""
        local = super().shard(rank, size)
        return replace(local, row_length=local.source_indices.shape[1])


@wrong_object("strict", "shards_make_the_whole")
class ShardsBalancedZigzag(FaultyLayout):
    """Later ranks hold earlier columns, as for causal attention where nothing is pooled; two ranks exchange theirs."""

    def shard(self, rank: int, size: int) -> FaultyLayout:
        """See the class."""
        return super().shard((1, 0)[rank] if size == 2 and rank < 2 else rank, size)


@wrong_object("strict", "shards_make_the_whole")
class ShardOfShardStartsAtZero(FaultyLayout):
    """The shard of a shard counts its offset from the shard, not from the whole row."""

    def shard(self, rank: int, size: int) -> FaultyLayout:
        """See the class."""
        local = super().shard(rank, size)
        return replace(local, offset=local.offset - self.offset)


@wrong_object("strict", "shards_make_the_whole")
class ShardsCutGroups(FaultyLayout):
    """A packed row is cut wherever its slots divide, through the middle of a group, instead of refusing."""

    def shard(self, rank: int, size: int) -> FaultyLayout:
        """See the class."""
        by_slots = replace(as_class(PackedSequenceLayout, self), alignment=1).shard(rank, size)
        return self._again(replace(by_slots, alignment=self.alignment))


# --- rows ----------------------------------------------------------------------------------------------------------------


@wrong_object("strict", "row_slices_are_those_rows")
class RowSliceKeepsFirstRowsMap(FaultyLayout):
    """The way back of a slice of rows is that of the first rows."""

    def __getitem__(self, rows: slice) -> FaultyLayout:
        part = super().__getitem__(rows)
        return replace(part, input_positions=self.input_positions[: len(part.source_indices)].contiguous())


@wrong_object("strict", "row_slices_are_those_rows")
class RowSliceCutsNegativeBounds(FaultyLayout):
    """A negative bound of a slice of rows counts as 0."""

    def __getitem__(self, rows: slice) -> FaultyLayout:
        start, stop = (None if bound is None else max(bound, 0) for bound in (rows.start, rows.stop))
        return super().__getitem__(slice(start, stop, rows.step))


@wrong_object("strict", "row_slices_are_those_rows")
class RowSliceIgnoresStep(FaultyLayout):
    """The step of a slice of rows has no effect."""

    def __getitem__(self, rows: slice) -> FaultyLayout:
        return super().__getitem__(slice(rows.start, rows.stop))


@wrong_object("strict", "row_slices_are_those_rows")
class RowSliceLosesAlignment(FaultyLayout):
    """A slice of rows is built from its fields alone, so that its alignment is 1."""

    def __getitem__(self, rows: slice) -> FaultyLayout:
        return replace(super().__getitem__(rows), alignment=1)


@wrong_object("strict", "row_slices_are_those_rows")
class RowSliceNotContiguous(FaultyLayout):
    """Every second row is a view."""

    def __getitem__(self, rows: slice) -> FaultyLayout:
        return replace(super().__getitem__(rows), source_indices=self.source_indices[rows])


@wrong_object("strict", "row_slices_are_those_rows")
class FirstTokensMaskedAsPadding(FaultyLayout):
    """The padding mask is read from positions, which are 0 at every document's first token, too."""

    @property
    def padding_mask(self) -> torch.Tensor:
        """See the class."""
        return self.position_ids == 0


# --- batches -------------------------------------------------------------------------------------------------------------


@wrong_object("strict", "batches_are_separate_packs")
class BatchFillsMixedUp(FaultyLayout):
    """Names without a fill of their own get one as soon as another name has one."""

    def pack_batch(
        self, batch: Mapping[str, torch.Tensor], fill: Any = 0, *, backend: BackendName | None = None
    ) -> dict[str, torch.Tensor]:
        """See the class."""
        if isinstance(fill, Mapping) and fill:
            first = next(iter(fill.values()))
            fill = {name: fill.get(name, int(first != 0)) for name in batch}
        return super().pack_batch(batch, fill, backend=backend)


@wrong_object("strict", "batches_are_separate_packs")
class BatchSortedByName(FaultyLayout):
    """Tensors of a batch come back in the order of their names."""

    def pack_batch(
        self, batch: Mapping[str, torch.Tensor], fill: Any = 0, *, backend: BackendName | None = None
    ) -> dict[str, torch.Tensor]:
        """See the class."""
        return super().pack_batch(dict(sorted(batch.items())), fill, backend=backend)


@wrong_object("strict", "batches_are_separate_packs")
class BatchOfOneDtype(FaultyLayout):
    """Integers of a batch are packed together, so that a mask comes back as integers."""

    def pack_batch(
        self, batch: Mapping[str, torch.Tensor], fill: Any = 0, *, backend: BackendName | None = None
    ) -> dict[str, torch.Tensor]:
        """See the class."""
        whole = {name: values.long() if values.dtype == torch.bool else values for name, values in batch.items()}
        return super().pack_batch(whole, fill, backend=backend)


@wrong_object("strict", "batches_are_separate_packs")
class BatchFillsForNobody(FaultyLayout):
    """A fill for a name that the batch does not have is ignored, so that a misspelt name goes unseen."""

    def pack_batch(
        self, batch: Mapping[str, torch.Tensor], fill: Any = 0, *, backend: BackendName | None = None
    ) -> dict[str, torch.Tensor]:
        """See the class."""
        if isinstance(fill, Mapping):
            fill = {name: number for name, number in fill.items() if name in batch}
        return super().pack_batch(batch, fill, backend=backend)


# --- copies and equality -------------------------------------------------------------------------------------------------


@wrong_object("strict", "copies_are_equal")
class PickleLosesAlignment(FaultyLayout):
    """Only the four tensors are pickled."""

    def __reduce__(self) -> Any:
        return type(self), tuple(getattr(self, name) for name in FIELDS)


@wrong_object("strict", "copies_are_equal")
class ToLosesAlignment(FaultyLayout):
    """A layout that was sent to a device has forgotten its integers."""

    def to(self, device: torch.device | str | int | torch.Tensor, non_blocking: bool = False) -> Self:
        """See the class."""
        sent = super().to(device, non_blocking)
        return type(self)(*(getattr(sent, name) for name in FIELDS))


@wrong_object("strict", "copies_are_equal")
class FlattenLosesAlignment(FaultyLayout):
    """The tensors of a layout are a pytree's leaves, but its integers are lost."""


def _flatten(layout: FlattenLosesAlignment) -> tuple[list[torch.Tensor], None]:
    return [getattr(layout, name) for name in FIELDS], None


pytree.register_pytree_node(FlattenLosesAlignment, _flatten, lambda leaves, _: FlattenLosesAlignment(*leaves))


@wrong_object("strict", "copies_are_equal")
class EqualMeansTheSameTensors(FaultyLayout):
    """Layouts are equal when their tensors are the same objects."""

    def equal(self, other: object) -> bool:
        """See the class."""
        return isinstance(other, PackedSequenceLayout) and all(
            getattr(self, name) is getattr(other, name) for name in FIELDS
        )


@wrong_object("strict", "copies_are_equal")
class EqualLooksOnlyAtMaps(FaultyLayout):
    """Equality compares the two maps, so that layouts that differ in ids or positions pass for equal."""

    def equal(self, other: object) -> bool:
        """See the class."""
        if not isinstance(other, PackedSequenceLayout):
            return False
        same = replace(
            as_class(PackedSequenceLayout, other), position_ids=self.position_ids, sequence_ids=self.sequence_ids
        )
        return super().equal(same)


@wrong_object("strict", "copies_are_equal")
class EqualIgnoresIntegers(FaultyLayout):
    """Equality compares the four tensors only, so that shards of different rows pass for equal."""

    def equal(self, other: object) -> bool:
        """See the class."""
        if not isinstance(other, PackedSequenceLayout):
            return False
        integers: dict[str, Any] = {name: getattr(self, name) for name in INTEGERS}
        return super().equal(replace(as_class(PackedSequenceLayout, other), **integers))
