"""Deliberate faults in compression groups: whose they are, whether they are whole, which of them a token may see."""

from dataclasses import replace

import torch

from alignpack import CompressionGroups, PackedSequenceLayout
from tests.faults.wrapping import FaultyLayout, as_class, wrong_object

ALL = ("groups_are_right", "groups_hold_one_document")
"""The laws that look at the groups of a whole layout."""


def of_tokens(groups: CompressionGroups, per_group: torch.Tensor) -> torch.Tensor:
    """What is said of each group, said of each of its slots."""
    return per_group.repeat_interleave(groups.ratio, dim=1)


# --- groups --------------------------------------------------------------------------------------------------------------


@wrong_object("strict", "groups_are_right")
class GroupsOfTheAlignment(FaultyLayout):
    """The ratio that was asked for is ignored, and groups are as wide as the alignment."""

    def groups(self, ratio: int) -> CompressionGroups:
        """See the class."""
        super().groups(ratio)
        return super().groups(self.alignment)


@wrong_object("strict", *ALL)
class IncompleteGroupsHaveNoDocument(FaultyLayout):
    """The id of a group is that of its last slot, so that an incomplete group is of no document."""

    def groups(self, ratio: int) -> CompressionGroups:
        """See the class."""
        return replace(super().groups(ratio), sequence_ids=self.sequence_ids[:, ratio - 1 :: ratio].contiguous())


@wrong_object("strict", *ALL)
class IncompleteGroupsAreNotFirst(FaultyLayout):
    """Only complete groups are first groups, so that a short document has none."""

    def groups(self, ratio: int) -> CompressionGroups:
        """See the class."""
        groups = super().groups(ratio)
        return replace(groups, first=groups.first & groups.complete)


@wrong_object("strict", *ALL)
class GroupPositionsAreIndices(FaultyLayout):
    """The position of a group is its number in the document, not that of its first token."""

    def groups(self, ratio: int) -> CompressionGroups:
        """See the class."""
        groups = super().groups(ratio)
        return replace(groups, position_ids=groups.position_ids // ratio)


@wrong_object("strict", *ALL)
class CompleteFromPositions(FaultyLayout):
    """A group is complete when the position of its last slot is not 0, which a document of one token has, too."""

    def groups(self, ratio: int) -> CompressionGroups:
        """See the class."""
        return replace(super().groups(ratio), complete=self.position_ids[:, ratio - 1 :: ratio] != 0)


@wrong_object("strict", *ALL)
class CompleteFromFirstSlot(FaultyLayout):
    """A group is complete when it has any token."""

    def groups(self, ratio: int) -> CompressionGroups:
        """See the class."""
        groups = super().groups(ratio)
        return replace(groups, complete=groups.sequence_ids != 0)


@wrong_object("strict", "groups_are_right", "groups_of_shards_are_columns")
class CompleteFromMaps(FaultyLayout):
    """A slot holds a token when its source is not -1, which a shift makes it where a document ends."""

    def groups(self, ratio: int) -> CompressionGroups:
        """See the class."""
        return replace(super().groups(ratio), complete=self.source_indices[:, ratio - 1 :: ratio] != -1)


@wrong_object("strict", *ALL)
class FirstAtPadding(FaultyLayout):
    """A group is the first of its document when its position is 0, which that of padding is, too."""

    def groups(self, ratio: int) -> CompressionGroups:
        """See the class."""
        groups = super().groups(ratio)
        return replace(groups, first=groups.position_ids == 0)


@wrong_object("strict", "groups_of_shards_are_columns")
class FirstInItsShard(FaultyLayout):
    """A group is first when the group before it is of another document, and a shard has none before its first."""

    def groups(self, ratio: int) -> CompressionGroups:
        """See the class."""
        groups = super().groups(ratio)
        ids = groups.sequence_ids
        before = torch.nn.functional.pad(ids[:, :-1], (1, 0))
        return replace(groups, first=(ids != before) & (ids != 0))


# --- what a token may see ------------------------------------------------------------------------------------------------


@wrong_object("strict", "groups_of_shards_are_columns")
class ShardRangesAreLocal(FaultyLayout):
    """The columns of groups are counted from the shard's start."""

    def groups(self, ratio: int) -> CompressionGroups:
        """See the class."""
        return replace(as_class(PackedSequenceLayout, self), offset=0).groups(ratio)


@wrong_object("strict", "groups_of_shards_are_columns")
class ShardRangesStartInTheShard(FaultyLayout):
    """The groups that a token may see start at the first group of its document that the shard holds."""

    def groups(self, ratio: int) -> CompressionGroups:
        """See the class."""
        groups = super().groups(ratio)
        real = self.sequence_ids != 0
        return replace(groups, visible_start=torch.where(real, groups.visible_start.clamp_min(self.offset // ratio), 0))


@wrong_object("strict", *ALL)
class RangesStartAtTheRow(FaultyLayout):
    """Every token may see the groups from the row's first on, whatever document they are of."""

    def groups(self, ratio: int) -> CompressionGroups:
        """See the class."""
        groups = super().groups(ratio)
        return replace(groups, visible_start=torch.zeros_like(groups.visible_start))


@wrong_object("strict", *ALL)
class RangesCountFromTheDocument(FaultyLayout):
    """The columns of groups are counted from the document's first group."""

    def groups(self, ratio: int) -> CompressionGroups:
        """See the class."""
        groups = super().groups(ratio)
        start = groups.visible_start
        return replace(groups, visible_start=torch.zeros_like(start), visible_end=groups.visible_end - start)


@wrong_object("strict", *ALL)
class OwnGroupIsSeen(FaultyLayout):
    """A token sees the group that it is in before that is complete, and so the future."""

    def groups(self, ratio: int) -> CompressionGroups:
        """See the class."""
        groups = super().groups(ratio)
        seen = groups.visible_start + self.position_ids // ratio + 1
        return replace(groups, visible_end=torch.where(self.sequence_ids != 0, seen, 0))


@wrong_object("strict", *ALL)
class OwnGroupIsNeverSeen(FaultyLayout):
    """The last token of a group does not see it, although it is complete."""

    def groups(self, ratio: int) -> CompressionGroups:
        """See the class."""
        groups = super().groups(ratio)
        return replace(groups, visible_end=groups.visible_start + self.position_ids // ratio)


@wrong_object("strict", *ALL)
class PaddingSeesGroups(FaultyLayout):
    """Padding behind a document may see what the group that it is in starts with."""

    def groups(self, ratio: int) -> CompressionGroups:
        """See the class."""
        groups = super().groups(ratio)
        return replace(
            groups,
            visible_start=of_tokens(groups, groups.visible_start[:, ::ratio]),
            visible_end=torch.maximum(groups.visible_end, of_tokens(groups, groups.visible_end[:, ::ratio])),
        )


@wrong_object("strict", *ALL)
class RangesAreSlots(FaultyLayout):
    """The range that a token may see is one of slots instead of columns of groups."""

    def groups(self, ratio: int) -> CompressionGroups:
        """See the class."""
        groups = super().groups(ratio)
        return replace(groups, visible_start=groups.visible_start * ratio, visible_end=groups.visible_end * ratio)


# --- memory and refusals -------------------------------------------------------------------------------------------------


@wrong_object("strict", "groups_are_right")
class GroupFieldsAreViews(FaultyLayout):
    """The ids of groups are every so-many-th of the layout's own."""

    def groups(self, ratio: int) -> CompressionGroups:
        """See the class."""
        return replace(super().groups(ratio), sequence_ids=self.sequence_ids[:, ::ratio])


@wrong_object("strict", "groups_are_right")
class AnyRatioIsTaken(FaultyLayout):
    """A ratio that does not divide the alignment is taken as the one below that does."""

    def groups(self, ratio: int) -> CompressionGroups:
        """See the class."""
        while ratio > 1 and self.alignment % ratio:
            ratio -= 1
        return super().groups(ratio)


@wrong_object("strict", "groups_are_right")
class FlagsAreIntegers(FaultyLayout):
    """The flags of groups are 64-bit integers."""

    def groups(self, ratio: int) -> CompressionGroups:
        """See the class."""
        groups = super().groups(ratio)
        return replace(groups, complete=groups.complete.long(), first=groups.first.long())
