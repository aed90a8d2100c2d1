"""Context parallelism: every rank holds one contiguous slice of every packed row.

Import it with `from alignpack import context_parallel`. A `group` is a `ProcessGroup`, a one-dimensional `DeviceMesh`, or
None for this process alone. All ranks make the same calls in the same order, forward and backward. `docs/context_parallel.md`
says which errors every rank raises and which only the rank that made the mistake.
"""

from collections.abc import Mapping, Sequence

import torch

from alignpack._distributed.agreement import MOST_AXES, agree, largest_of, refusal_of
from alignpack._distributed.collectives import Group, Ranks, gather_columns, ranks_of, shift_ranks
from alignpack._inputs.arguments import FAKE, Fill, check_mapping, check_values, integer_at_least, is_fake, not_dense
from alignpack._inputs.tables import place_documents, read_tables
from alignpack._torch_state import graph_break, is_functorch_wrapped, transforms_active, without_modes_and_transforms
from alignpack.layout import PackedSequenceLayout
from alignpack_reference import errors

__all__ = ["Group", "agree_on_length", "gather_sequence", "halo", "packed_length", "shard_batch"]

_FROM_THE_LAYOUT = ("position_ids", "sequence_ids", "padding_mask")


@graph_break
def packed_length(
    seq_lens: torch.Tensor,
    seq_lens_padded: torch.Tensor | None,
    input_shape: Sequence[int],
    alignment: int,
    minimum_length: int = 0,
    *,
    length_multiple: int | None = None,
) -> int:
    """The `padded_sequence` that `packed_layout` would give, without building the layout.

    Args:
        seq_lens: as for `packed_layout`.
        seq_lens_padded: as for `packed_layout`.
        input_shape: as for `packed_layout`.
        alignment: as for `packed_layout`.
        minimum_length: as for `packed_layout`.
        length_multiple: as for `packed_layout`; for ranks that share rows, `size * alignment`.

    Returns:
        The number of slots of a packed row.

    Raises:
        TypeError, ValueError, LayoutError: as `packed_layout`.

    Example:
        >>> packed_length(torch.tensor([[3, 5]]), None, (1, 8), alignment=4, length_multiple=8)
        16
    """
    with without_modes_and_transforms():
        tables = read_tables(seq_lens, seq_lens_padded, input_shape, alignment, minimum_length, length_multiple)
        return place_documents(tables).padded_sequence


@graph_break
def agree_on_length(length: int, group: Group) -> int:
    """The largest `length` of all ranks, for ranks that hold different rows and need one width: one MAX all-reduce.

    Pass the result as `minimum_length`. The host waits for it.

    Args:
        length: slots, from `packed_length`.
        group: the ranks that need one width; they need not share rows.

    Raises:
        TypeError: `length` is not an integer on some rank; raised by every rank.
        ValueError: `length` is negative or above 2**31 - 1 on some rank; raised by every rank.

    Example:
        >>> agree_on_length(packed_length(torch.tensor([[3, 5]]), None, (1, 8), 4), group=None)
        12
    """
    return largest_of(ranks_of(group), length, "length")


def shard_batch(
    layout: PackedSequenceLayout,
    batch: Mapping[str, torch.Tensor],
    group: Group,
    fill: Fill | Mapping[str, Fill] = 0,
) -> dict[str, torch.Tensor]:
    """This rank's slice of every packed tensor and of the layout's fields; nothing is communicated.

    Only the slice is packed: no tensor of `padded_sequence` slots is made.

    Args:
        layout: the layout of the whole rows, built with a `length_multiple` of `size * alignment`.
        batch: names and whole input tensors, `[batch, original_sequence, ...]`.
        group: the ranks that share the rows.
        fill: the value at padding, as for `PackedSequenceLayout.pack_batch`.

    Returns:
        The slices `[batch, padded_sequence / size, ...]` under the names of the batch, and `position_ids`,
        `sequence_ids` (int64) and `padding_mask` (bool, True at padding), each `[batch, padded_sequence / size]`.

    Raises:
        TypeError: `layout` is not a layout, or as `pack_batch`.
        ValueError: `layout` is a shard itself or cannot be cut, `batch` has one of those three names, or as
            `pack_batch`.

    Example:
        >>> from alignpack import packed_layout
        >>> layout = packed_layout(torch.tensor([[3, 1]]), None, (1, 4), alignment=4)
        >>> for name, values in shard_batch(layout, {"ids": torch.tensor([[7, 8, 9, 5]])}, group=None).items():
        ...     print(name, values.tolist())
        ids [[7, 8, 9, 0, 5, 0, 0, 0]]
        position_ids [[0, 1, 2, 0, 0, 0, 0, 0]]
        sequence_ids [[1, 1, 1, 0, 2, 0, 0, 0]]
        padding_mask [[False, False, False, True, False, True, True, True]]
    """
    if not isinstance(layout, PackedSequenceLayout):
        raise TypeError(f"layout must be a PackedSequenceLayout, got {type(layout).__name__}")
    check_mapping(batch)
    if taken := [name for name in _FROM_THE_LAYOUT if name in batch]:
        raise ValueError(f"batch may not hold {taken}, which come from the layout")
    slots = layout.source_indices.shape[1]
    if layout.row_length not in (None, slots):
        raise ValueError(
            f"layout must be that of the whole rows, got a shard of {slots} of the {layout.row_length} slots of each row"
        )
    ranks = ranks_of(group)
    shard = layout.shard(ranks.rank, ranks.size)
    fields = {name: getattr(shard, name) for name in _FROM_THE_LAYOUT}
    return shard.pack_batch(batch, fill) | fields


@graph_break
def gather_sequence(tensor: torch.Tensor, group: Group, check: bool = True) -> torch.Tensor:
    """The columns of all ranks, in rank order.

    In backward each rank receives the sum over all ranks of the gradients for its own columns, so every
    rank must run it. A loss over each rank's own columns is right as it is; a loss that every rank computes in full counts
    `size` times. The sum runs over the ranks in their order, in float32 for floats below 32 bits, and is rounded once.
    Higher derivatives and forward mode work.

    Args:
        tensor: `[batch, columns, ...]`, the same shape on every rank, any strides, any dtype that `pack` takes.
        group: the ranks that share the rows.
        check: compare the call among ranks before any data moves; the host waits for that. Pass the same on every rank.
            Without it, a call that differs between ranks may hang or give wrong values.

    Returns:
        `[batch, size * columns, ...]`, new and contiguous; bits are kept. In a group of one, and for None, `tensor` itself.

    Raises:
        TypeError: `tensor` is not a plain tensor of a supported dtype, or the call is inside a `torch.func` transform.
        ValueError: it has fewer than two or more than 64 axes or is on a device that the group does not serve; or the
            ranks differ in device, dtype, shape, `requires_grad` (taken as False where gradients are disabled) or in
            whether it has a forward-mode tangent. With `check` every rank raises the same error, which names the ranks,
            and the group stays usable.

    Example:
        >>> gather_sequence(torch.tensor([[1, 2, 3, 4]]), group=None)
        tensor([[1, 2, 3, 4]])
    """
    ranks = ranks_of(group)
    refusal = refusal_of(lambda: _check_tensor(tensor, ranks, check))
    received = agree(ranks, "gather_sequence", tensor, None, refusal, check)
    return tensor if ranks.group is None else gather_columns(tensor, ranks, received)


@graph_break
def halo(tensor: torch.Tensor, width: int, group: Group, check: bool = True) -> torch.Tensor:
    """The last `width` columns of the rank before this one; zeros on the first rank.

    A sliding window or an overlapping compression group looks back to these columns at the left edge of a shard. Only
    neighbours exchange data. Where a document starts, mask the halo (with `torch.where`: zero times NaN is NaN). The zeros
    of the first rank are part of the graph too, so that backward runs on every rank; each rank receives the gradient of
    the columns it sent.

    Args:
        tensor: `[batch, columns, ...]`, as for `gather_sequence`.
        width: columns, at most as many as `tensor` has; the same on every rank.
        group: as for `gather_sequence`.
        check: as for `gather_sequence`.

    Returns:
        `[batch, width, ...]`, new and contiguous.

    Raises:
        TypeError: `width` is not an integer, or as `gather_sequence`.
        ValueError: `width` is negative, larger than the columns, or differs between ranks, or as `gather_sequence`.

    Example:
        >>> halo(torch.tensor([[1, 2, 3, 4]]), 2, group=None)
        tensor([[0, 0]])
    """
    ranks = ranks_of(group)

    def check_arguments() -> None:
        _check_tensor(tensor, ranks, check)
        if integer_at_least("width", width, 0) > tensor.shape[1]:
            raise ValueError(
                f"width must be at most the {tensor.shape[1]} columns of a rank, got {errors.shown(width)}"
            )

    refusal = refusal_of(check_arguments)
    width = 0 if refusal is not None else int(width)
    received = agree(ranks, "halo", tensor, width, refusal, check)
    return shift_ranks(tensor[:, tensor.shape[1] - width :], ranks, 1, received)


def _check_tensor(tensor: torch.Tensor, ranks: Ranks, check: bool) -> None:
    # A tensor that outlives its transform stays wrapped.
    if transforms_active() or (isinstance(tensor, torch.Tensor) and is_functorch_wrapped(tensor)):
        raise TypeError(
            "tensor must be outside of torch.func transforms (vmap, grad and others): no collective goes there"
        )
    check_values(tensor, "tensor")
    if check and ranks.group is not None and is_fake(tensor):
        raise not_dense("tensor", FAKE)
    if tensor.ndim < 2:
        raise ValueError(f"tensor must have shape [batch, columns, ...], got {list(tensor.shape)}")
    if tensor.ndim > MOST_AXES:
        raise errors.too_large("tensor.ndim", tensor.ndim, MOST_AXES)
    served = ranks.device_types()
    if ranks.group is not None and tensor.device.type not in served:
        raise ValueError(
            f"tensor must be on a device that the group serves, {' or '.join(served)}, got {tensor.device}"
        )
