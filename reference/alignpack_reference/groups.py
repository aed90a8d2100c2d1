"""Compression groups: which document each belongs to, whether it is full, and which tokens may see it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from alignpack_reference import errors
from alignpack_reference.integers import at_least


@dataclass(frozen=True, eq=False)
class CompressionGroups:
    """The groups of `ratio` neighbouring slots of the packed rows, and which of them each token may see.

    Columns of groups are those of the whole packed row, also in a shard.

    Attributes:
        ratio: slots of a group; a row has `groups = slots / ratio`.
        sequence_ids: `[batch, groups]` int64, the document of the group; 0 at padding.
        position_ids: `[batch, groups]` int64, the position of its first token in the document, a multiple of `ratio`;
            0 at padding.
        complete: `[batch, groups]` bool, all `ratio` slots hold tokens.
        first: `[batch, groups]` bool, the first group of its document; a window over two groups must not look back from it.
        visible_start: `[batch, slots]` int64, the column of the first group that the token may see, which is the first
            of its document; 0 at padding.
        visible_end: `[batch, slots]` int64, one past the column of the last group that the token may see: it sees a
            group whose last token is itself or comes before it; 0 at padding.
    """

    ratio: int
    sequence_ids: NDArray[np.int64]
    position_ids: NDArray[np.int64]
    complete: NDArray[np.bool_]
    first: NDArray[np.bool_]
    visible_start: NDArray[np.int64]
    visible_end: NDArray[np.int64]


def groups(
    sequence_ids: NDArray[np.int64], position_ids: NDArray[np.int64], alignment: int, offset: int, ratio: int
) -> CompressionGroups:
    """The groups of `ratio` slots, from four fields of a layout.

    Args:
        sequence_ids: `[batch, slots]`, the layout's.
        position_ids: `[batch, slots]`, the layout's.
        alignment: the layout's, in slots.
        offset: the layout's, in slots.
        ratio: slots of a group.

    Raises:
        TypeError: the ratio is not an integer.
        ValueError: it is below 1, or does not divide the alignment, so that a group could hold two documents.

    Example:
        >>> from alignpack_reference import packed_layout
        >>> layout = packed_layout(np.array([[5, 2]]), None, (1, 7), 4)
        >>> pairs = groups(layout.sequence_ids, layout.position_ids, layout.alignment, layout.offset, 2)
        >>> pairs.sequence_ids
        array([[1, 1, 1, 0, 2, 0]])
        >>> pairs.visible_end
        array([[0, 1, 1, 2, 2, 0, 0, 0, 4, 5, 0, 0]])
    """
    ratio = at_least("ratio", ratio, 1)
    # Documents start at multiples of the alignment: only a divisor of it keeps every group in one document.
    if alignment % ratio != 0:
        raise errors.bad_ratio(ratio, alignment, math.lcm(ratio, alignment))
    batch, slots = sequence_ids.shape
    group_ids = np.zeros((batch, slots // ratio), np.int64)
    group_positions = np.zeros((batch, slots // ratio), np.int64)
    complete = np.zeros((batch, slots // ratio), np.bool_)
    first = np.zeros((batch, slots // ratio), np.bool_)
    visible_start = np.zeros((batch, slots), np.int64)
    visible_end = np.zeros((batch, slots), np.int64)
    for row in range(batch):
        for group in range(slots // ratio):
            members = range(group * ratio, (group + 1) * ratio)
            real = [slot for slot in members if sequence_ids[row, slot] != 0]
            if not real:
                continue  # padding belongs to no document
            group_ids[row, group] = sequence_ids[row, real[0]]
            group_positions[row, group] = position_ids[row, real[0]]
            complete[row, group] = len(real) == ratio
            first[row, group] = position_ids[row, real[0]] == 0
            for slot in real:
                position = position_ids[row, slot]
                # A shard may start inside a document, so the document's start is found from the position.
                document_start = offset + slot - position
                visible_start[row, slot] = document_start // ratio
                visible_end[row, slot] = document_start // ratio + (position + 1) // ratio
    return CompressionGroups(ratio, group_ids, group_positions, complete, first, visible_start, visible_end)


def compression_alignment(ratios: Iterable[int]) -> int:
    """The smallest alignment that all of the ratios divide; 0 and 1, which compress nothing, are ignored.

    Raises:
        TypeError: the ratios are not iterable, or one of them is not an integer.
        ValueError: one of them is negative.

    Example:
        >>> compression_alignment([0, 4, 128, 4, 0])
        128
        >>> compression_alignment([])
        1
    """
    if not isinstance(ratios, Iterable):
        raise errors.not_ratios(ratios)
    alignment = 1
    for place, ratio in enumerate(ratios):
        alignment = math.lcm(alignment, max(at_least(f"ratios[{place}]", ratio, 0), 1))
    return alignment
