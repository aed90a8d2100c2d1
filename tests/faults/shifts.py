"""Deliberate faults in shifted layouts and in what is counted: labels of other documents, wrong ways back."""

from dataclasses import dataclass, replace

import torch

from tests.faults.wrapping import FaultyLayout, wrong_object

MAPS = ("shifts_are_right", "shifts_stay_in_their_document")
"""The laws that look at both maps of a shifted layout."""

BACK = (*MAPS, "shifts_have_their_gradients")
"""The laws that look at the way back."""


def rolled(field: torch.Tensor, k: int) -> torch.Tensor:
    """What stands `k` slots further; what would come from beyond the row comes from its other end."""
    return field.roll(-(k % max(field.shape[1], 1)), dims=1)


def beyond(field: torch.Tensor, k: int) -> torch.Tensor:
    """Which slots have no slot `k` further in the row; `[slots]` bool."""
    other = torch.arange(field.shape[1]) + max(min(k, field.shape[1]), -field.shape[1])
    return (other < 0) | (other >= field.shape[1])


def inverse(source: torch.Tensor, slots: int) -> torch.Tensor:
    """The way back of a map; the last slot that takes a token has it."""
    back = source.new_full((len(source), slots + 1), -1)
    columns = torch.arange(source.shape[1]).expand_as(source)
    return back.scatter(1, torch.where(source < 0, slots, source), columns)[:, :slots].contiguous()


# --- documents -----------------------------------------------------------------------------------------------------------


@wrong_object("strict", *MAPS)
class ShiftCrossesDocuments(FaultyLayout):
    """Each slot takes the token `k` slots further in the row, of whatever document."""

    def shift(self, k: int) -> FaultyLayout:
        """See the class."""
        right = super().shift(k)
        source = rolled(self.source_indices, k).masked_fill(beyond(self.source_indices, k) | self.padding_mask, -1)
        return replace(right, source_indices=source, input_positions=inverse(source, self.input_positions.shape[1]))


@wrong_object("strict", *MAPS)
class ShiftTakesInputPadding(FaultyLayout):
    """Each slot takes the input slot so much further, which may be the padding behind its document or another one."""

    def shift(self, k: int) -> FaultyLayout:
        """See the class."""
        right, slots = super().shift(k), self.input_positions.shape[1]
        source = self.source_indices + max(min(k, slots), -slots)
        wrong = (self.source_indices < 0) | (source < 0) | (source >= slots)
        return replace(right, source_indices=source.masked_fill(wrong, -1))


@wrong_object("strict", "shifts_are_right")
class ShiftWrapsInTheRow(FaultyLayout):
    """A document that fills its row takes its first token behind its last one."""

    def shift(self, k: int) -> FaultyLayout:
        """See the class."""
        right = super().shift(k)
        whole = (self.sequence_ids == self.sequence_ids[:, :1]).all(dim=1, keepdim=True) & (abs(k) < 2**31)
        source = torch.where(whole, rolled(self.source_indices, k), right.source_indices)
        return replace(right, source_indices=source)


@wrong_object("strict", *MAPS)
class ShiftTheOtherWay(FaultyLayout):
    """A shift looks back where it should look ahead."""

    def shift(self, k: int) -> FaultyLayout:
        """See the class."""
        return super().shift(k if isinstance(k, bool | float) else -k)


@wrong_object("strict", *MAPS)
class ShiftKeepsTheLastToken(FaultyLayout):
    """Where the document ends, a slot keeps its own token instead of padding."""

    def shift(self, k: int) -> FaultyLayout:
        """See the class."""
        right = super().shift(k)
        source = right.source_indices
        return replace(right, source_indices=torch.where(source == -1, self.source_indices, source))


@wrong_object("strict", *MAPS)
class FarShiftsComeRound(FaultyLayout):
    """A distance is cut to 32 bits, so that a very far one becomes a near one."""

    def shift(self, k: int) -> FaultyLayout:
        """See the class."""
        return super().shift(k if isinstance(k, bool | float) else (k + 2**31) % 2**32 - 2**31)


@wrong_object("strict", "shifts_are_right")
class ShiftOfAShiftCountsTokens(FaultyLayout):
    """A second shift goes on from the token that a slot took, and so brings back what had left its document."""

    def shift(self, k: int) -> FaultyLayout:
        """See the class."""
        right, slots = super().shift(k), self.input_positions.shape[1]
        source = self.source_indices + max(min(k, slots), -slots)
        wrong = (self.source_indices < 0) | (source < 0) | (source >= slots)
        taken_by = torch.nn.functional.pad(self.input_positions, (0, 1), value=-1).gather(
            1, torch.where(wrong, slots, source)
        )
        other = self.sequence_ids.gather(1, taken_by.clamp_min(0)) != self.sequence_ids
        source = source.masked_fill(wrong | (taken_by < 0) | other, -1)
        return replace(right, source_indices=source, input_positions=inverse(source, slots))


@wrong_object("strict", "shifts_are_right", "shifts_compose")
@dataclass(frozen=True, eq=False, repr=False)
class ShiftOfAShiftStartsOver(FaultyLayout):
    """A second shift is one of the layout before the first."""

    unshifted: "ShiftOfAShiftStartsOver | None" = None

    def shift(self, k: int) -> FaultyLayout:
        """See the class."""
        unshifted = self.unshifted or self
        return replace(self, unshifted=unshifted)._again(super(ShiftOfAShiftStartsOver, unshifted).shift(k))


# --- the way back --------------------------------------------------------------------------------------------------------


@wrong_object("strict", *BACK)
class ShiftKeepsTheWayBack(FaultyLayout):
    """The way back of a shift is that of the layout, so that gradients arrive where the values were not taken from."""

    def shift(self, k: int) -> FaultyLayout:
        """See the class."""
        return replace(super().shift(k), input_positions=self.input_positions)


@wrong_object("strict", *BACK)
class ShiftsBackTheWrongWay(FaultyLayout):
    """The way back of a shift is that of the shift the other way."""

    def shift(self, k: int) -> FaultyLayout:
        """See the class."""
        right = super().shift(k)
        return replace(right, input_positions=super().shift(-k).input_positions)


@wrong_object("strict", *BACK)
class ShiftWayBackIgnoresDocuments(FaultyLayout):
    """On the way back a token goes to the slot so much before its own, although that is of another document."""

    def shift(self, k: int) -> FaultyLayout:
        """See the class."""
        right, slots = super().shift(k), self.source_indices.shape[1]
        back = self.input_positions - max(min(k, slots), -slots)
        wrong = (self.input_positions < 0) | (back < 0) | (back >= slots)
        return replace(right, input_positions=back.masked_fill(wrong, -1))


@wrong_object("strict", *BACK)
class ShiftKeepsTokensThatNobodyTakes(FaultyLayout):
    """On the way back a token that no slot takes any more goes to the slot where it stood."""

    def shift(self, k: int) -> FaultyLayout:
        """See the class."""
        right = super().shift(k)
        back = right.input_positions
        return replace(right, input_positions=torch.where(back == -1, self.input_positions, back))


# --- what stays ----------------------------------------------------------------------------------------------------------


@wrong_object("strict", "shifts_are_right", "groups_are_right")
class ShiftMovesPositions(FaultyLayout):
    """The positions are those of the tokens that were taken, not those of the slots."""

    def shift(self, k: int) -> FaultyLayout:
        """See the class."""
        right = super().shift(k)
        moved = self.position_ids + max(min(k, 2**31), -(2**31))
        return replace(right, position_ids=torch.where(right.source_indices == -1, 0, moved))


@wrong_object("strict", "shifts_are_right", "groups_are_right")
class ShiftMakesPadding(FaultyLayout):
    """A slot that takes nothing counts as padding, so that the last slot of a document is lost."""

    def shift(self, k: int) -> FaultyLayout:
        """See the class."""
        right = super().shift(k)
        nothing = right.source_indices == -1
        return replace(right, sequence_ids=right.sequence_ids.masked_fill(nothing, 0))


@wrong_object("strict", "shifts_are_right")
class ShiftLosesAlignment(FaultyLayout):
    """A shifted layout is built from its fields alone, so that its alignment is 1."""

    def shift(self, k: int) -> FaultyLayout:
        """See the class."""
        return replace(super().shift(k), alignment=1)


# --- shards --------------------------------------------------------------------------------------------------------------


@wrong_object("strict", "shards_of_shifts_are_columns")
class ShardsAreShifted(FaultyLayout):
    """A shard is shifted by itself, so that the tokens of the next rank are missing."""

    def shift(self, k: int) -> FaultyLayout:
        """See the class."""
        alone = replace(self, row_length=None) if self.row_length is not None else self
        return replace(super(ShardsAreShifted, alone).shift(k), row_length=self.row_length)


@wrong_object("strict", "shards_of_shifts_are_columns")
class ShardsOfOneRankAreShifted(FaultyLayout):
    """Only a part of a row counts as a shard, so that what runs on one rank is refused on two."""

    def shift(self, k: int) -> FaultyLayout:
        """See the class."""
        if self.row_length == self.source_indices.shape[1]:
            return replace(super(ShardsOfOneRankAreShifted, replace(self, row_length=None)).shift(k))
        return super().shift(k)


# --- counts --------------------------------------------------------------------------------------------------------------


@wrong_object("strict", "shifts_are_right")
class CountsWhatIsTaken(FaultyLayout):
    """Tokens are counted where a slot takes one, so that a shift changes how many there are."""

    @property
    def token_counts(self) -> torch.Tensor:
        """See the class."""
        return (self.source_indices != -1).sum(dim=1)


@wrong_object("strict", "shifts_are_right")
class CountsPositions(FaultyLayout):
    """Tokens are counted where the position is not 0, so that the first of each document is missing."""

    @property
    def token_counts(self) -> torch.Tensor:
        """See the class."""
        return (self.position_ids != 0).sum(dim=1)


@wrong_object("strict", "shards_make_the_whole")
class CountsTheInput(FaultyLayout):
    """Tokens are counted where the input has one that is packed here, and a batch has one number for all rows."""

    @property
    def token_counts(self) -> torch.Tensor:
        """See the class."""
        counts = (self.input_positions != -1).sum(dim=1)
        return counts.sum().expand(len(counts)) if len(counts) else counts


@wrong_object("strict", "shifts_are_right")
class CountsSlots(FaultyLayout):
    """Padding counts as tokens."""

    @property
    def token_counts(self) -> torch.Tensor:
        """See the class."""
        return torch.full_like(self.sequence_ids[:, 0], self.sequence_ids.shape[1])
