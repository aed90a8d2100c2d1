"""Compression groups: which document each belongs to, whether it is full, and which tokens may see it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, SupportsIndex

import torch

from alignpack._backends import select_backend_for
from alignpack._inputs.arguments import integer_at_least
from alignpack._record import TensorRecord, register_record
from alignpack._torch_state import without_inference_mode
from alignpack_reference import errors


@register_record
@dataclass(frozen=True, eq=False, repr=False)
class CompressionGroups(TensorRecord):
    """The groups of `ratio` neighbouring slots of the packed rows, and which of them each token may see.

    A row has `groups = slots / ratio` of them. Group columns are counted in the whole packed row: each field of a
    shard's groups is the rank's part of the whole layout's field, values unchanged. All tensors are
    contiguous and on the layout's device. Like a layout, groups are immutable, compare and hash by identity (`equal`
    compares contents), and are a pytree whose leaves are the six tensors.

    Attributes:
        ratio: slots of a group.
        sequence_ids: `[batch, groups]` int64, the document of the group, as in the layout; 0 at padding.
        position_ids: `[batch, groups]` int64, the position of the group's first token in its document, a multiple of
            `ratio`; 0 at padding.
        complete: `[batch, groups]` bool, all `ratio` slots hold tokens. An incomplete group keeps its id, position and
            `first`.
        first: `[batch, groups]` bool, the first group of its document: a window over two groups must not look back.
        visible_start: `[batch, slots]` int64, the column of the first group that the token may see: the first of its
            document; 0 at padding.
        visible_end: `[batch, slots]` int64, one past the column of the last group that the token may see. It sees a
            group of its document whose last token is itself or comes before it:
            `visible_start + (position + 1) // ratio`; 0 at padding.
    """

    ratio: int
    sequence_ids: torch.Tensor
    position_ids: torch.Tensor
    complete: torch.Tensor
    first: torch.Tensor
    visible_start: torch.Tensor
    visible_end: torch.Tensor

    _TENSORS: ClassVar = ("sequence_ids", "position_ids", "complete", "first", "visible_start", "visible_end")
    _INTEGERS: ClassVar = ("ratio",)


def groups_of(
    sequence_ids: torch.Tensor, position_ids: torch.Tensor, alignment: int, offset: int, ratio: int
) -> CompressionGroups:
    """The groups of `ratio` slots, from the fields of a layout; see `PackedSequenceLayout.groups`."""
    ratio = integer_at_least("ratio", ratio, 1)
    if alignment % ratio:
        raise errors.bad_ratio(ratio, alignment, math.lcm(ratio, alignment))
    with without_inference_mode():
        fields = select_backend_for(sequence_ids, position_ids).group_fields(sequence_ids, position_ids, offset, ratio)
        return CompressionGroups(ratio, *fields)


def compression_alignment(ratios: Iterable[SupportsIndex]) -> int:
    """The smallest alignment that serves all of a model's compression ratios: their least common multiple.

    Args:
        ratios: tokens of a group, one per layer for example; 0 and 1 compress nothing and are ignored.

    Raises:
        TypeError: `ratios` is not iterable, or one of them is not an integer.
        ValueError: one of them is negative.

    Example:
        >>> from alignpack import compression_alignment
        >>> compression_alignment([0, 0, 4, 128, 4, 128, 0])
        128
        >>> compression_alignment([2, 1])
        2
    """
    if not isinstance(ratios, Iterable):
        raise errors.not_ratios(ratios)
    return math.lcm(*(integer_at_least(f"ratios[{place}]", ratio, 0) or 1 for place, ratio in enumerate(ratios)))
