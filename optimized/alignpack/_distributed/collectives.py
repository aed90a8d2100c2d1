"""The collectives of context parallelism: the ranks that take part, and differentiable moves between them.

Tensors are `[batch, columns, ...]` and ranks hold contiguous columns. `docs/design.md` says how the moves differentiate
each other.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

Group: TypeAlias = dist.ProcessGroup | DeviceMesh | None
"""The ranks that share every row: a process group, a one-dimensional device mesh, or None for this process alone."""

# PyTorch renamed it; the old name warns where the new one exists.
_all_gather = dist.all_gather_single if hasattr(dist, "all_gather_single") else dist.all_gather_into_tensor


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks that take part, and which of them this process is.

    Attributes:
        group: the process group; None when this process is alone.
        rank: from 0, in the order of the columns.
        size: how many ranks there are.
    """

    group: dist.ProcessGroup | None
    rank: int
    size: int

    def open_group(self) -> dist.ProcessGroup | None:
        """The group, checked to be open still: backward may run after it was closed, which not every backend reports."""
        if self.group is not None:
            _rank_in(self.group)
        return self.group

    def device_types(self) -> list[str]:
        """The device types whose tensors the group can move; empty when this process is alone."""
        if self.group is None:
            return []
        return [pair.partition(":")[0] for pair in dist.get_backend_config(self.group).split(",")]

    def control_device(self) -> torch.device:
        """The device for tensors that only the host reads: the CPU if the group can move tensors there."""
        types = self.device_types()
        return torch.device("cpu" if "cpu" in types else types[0])


def ranks_of(group: Group) -> Ranks:
    """The ranks of an open group that includes this process."""
    if group is None:
        return Ranks(None, 0, 1)
    if isinstance(group, DeviceMesh):
        group = _group_of_mesh(group)
    elif isinstance(group, int) and group == dist.GroupMember.NON_GROUP_MEMBER:
        raise _not_in_group("dist.new_group gave GroupMember.NON_GROUP_MEMBER here")
    elif not isinstance(group, dist.ProcessGroup):
        raise TypeError(
            f"group must be a ProcessGroup, a one-dimensional DeviceMesh or None (this process alone), got {group!r}"
        )
    rank, size = _rank_in(group), group.size()
    return Ranks(group if size > 1 else None, rank, size)


def _rank_in(group: dist.ProcessGroup) -> int:
    try:
        return dist.get_rank(group)
    except ValueError as error:
        raise _closed_group(_name(group)) from error


def _name(group: dist.ProcessGroup) -> str:
    try:
        return f"process group {group.group_name!r}"
    except RuntimeError:  # a group that was never registered has no name
        return "a process group without a name"


def _group_of_mesh(mesh: DeviceMesh) -> dist.ProcessGroup:
    if mesh.ndim != 1:
        names = mesh.mesh_dim_names
        dimensions = f"the dimensions {list(names)}" if names else "dimensions without names"
        example = f"mesh[{names[-1]!r}]" if names else "mesh.get_group(dimension)"
        raise ValueError(
            f"group must be a one-dimensional DeviceMesh, got one of shape {list(mesh.shape)} with {dimensions}; pass "
            f"one of them, such as {example}"
        )
    if mesh.get_coordinate() is None:
        raise _not_in_group(f"it is not in {mesh!r}")
    try:
        return mesh.get_group()
    except RuntimeError as error:
        raise _closed_group(repr(mesh)) from error


def _not_in_group(reason: str) -> ValueError:
    return ValueError(f"this process is not in group: {reason}; call it only on the ranks of the group")


def _closed_group(name: str) -> ValueError:
    return ValueError(
        f"group must be open, but {name} is closed; make a new one, or close it after the last step (backward included)"
    )


def gather_columns(tensor: torch.Tensor, ranks: Ranks, received: torch.Tensor | None = None) -> torch.Tensor:
    """The columns of all ranks in their order, `[batch, columns, ...] -> [batch, size * columns, ...]`.

    `received`: the bytes of every rank's tensor, `[size, bytes]`, if they are here already; then nothing is sent.
    """
    whole: torch.Tensor = _Gather.apply(tensor, ranks, received)  # type: ignore[no-untyped-call]
    return whole


def scatter_sum(tensor: torch.Tensor, ranks: Ranks) -> torch.Tensor:
    """This rank's columns of the sum over ranks, `[batch, size * columns, ...] -> [batch, columns, ...]`.

    The sum runs over the ranks in their order, in float32 for floats below 32 bits, and is rounded once: no
    communication backend has a say in it.
    """
    summed: torch.Tensor = _ScatterSum.apply(tensor, ranks)  # type: ignore[no-untyped-call]
    return summed


def shift_ranks(tensor: torch.Tensor, ranks: Ranks, step: int, received: torch.Tensor | None = None) -> torch.Tensor:
    """The tensor of the rank `step` before this one, of equal shape; zeros where no such rank exists.

    `received`: as for `gather_columns`.
    """
    shifted: torch.Tensor = _Shift.apply(tensor, ranks, step, received)  # type: ignore[no-untyped-call]
    return shifted


# --- for autograd ----------------------------------------------------------------------------------------------------


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, ranks: Ranks, received: torch.Tensor | None) -> torch.Tensor:
        ctx.ranks = ranks
        return gathered(tensor, ranks, received)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return scatter_sum(gradients[0], ctx.ranks), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor, *_: None) -> torch.Tensor:
        return gather_columns(tangent, ctx.ranks)


class _ScatterSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, ranks: Ranks) -> torch.Tensor:
        ctx.ranks = ranks
        return _summed(tensor, ranks)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gather_columns(gradients[0], ctx.ranks), None

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor, *_: None) -> torch.Tensor:
        return scatter_sum(tangent, ctx.ranks)


class _Shift(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, ranks: Ranks, step: int, received: torch.Tensor | None) -> torch.Tensor:
        ctx.ranks, ctx.step = ranks, step
        return _shifted(tensor, ranks, step, received)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return shift_ranks(gradients[0], ctx.ranks, -ctx.step), None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor, *_: None) -> torch.Tensor:
        return shift_ranks(tangent, ctx.ranks, ctx.step)


# --- without gradients -----------------------------------------------------------------------------------------------


def gathered(tensor: torch.Tensor, ranks: Ranks, received: torch.Tensor | None = None) -> torch.Tensor:
    """`gather_columns` without autograd; the group has other ranks."""
    group = ranks.open_group()
    batch, columns = tensor.shape[:2]
    result = _empty_like(tensor, (batch, ranks.size * columns, *tensor.shape[2:]))
    flat = bytes_of(result)
    if flat.numel() == 0:
        return result
    if received is None:
        sent = bytes_of(tensor)
        if batch == 1:  # the ranks' bytes come in their place
            _all_gather(flat, sent, group=group)
            return result
        received = sent.new_empty(ranks.size, sent.numel())
        _all_gather(received.view(-1), sent, group=group)
    flat.view(batch, ranks.size, -1).copy_(received.view(ranks.size, batch, -1).transpose(0, 1))
    return result


def _summed(tensor: torch.Tensor, ranks: Ranks) -> torch.Tensor:
    group = ranks.open_group()
    by_rank = tensor.unflatten(1, (ranks.size, tensor.shape[1] // ranks.size)).transpose(0, 1)
    received = _empty_like(tensor, tuple(by_rank.shape))
    if received.numel() > 0:
        dist.all_to_all_single(bytes_of(received), bytes_of(by_rank), group=group)
    dtype = torch.float32 if tensor.dtype.itemsize < torch.float32.itemsize else tensor.dtype
    total = received[0].to(dtype)
    for part in received[1:]:
        total += part.to(dtype)
    return total.to(tensor.dtype)


def _shifted(tensor: torch.Tensor, ranks: Ranks, step: int, received: torch.Tensor | None = None) -> torch.Tensor:
    group = ranks.open_group()
    result = _empty_like(tensor, tuple(tensor.shape))
    flat = bytes_of(result).zero_()
    if group is None or flat.numel() == 0:
        return result
    to, origin = ranks.rank + step, ranks.rank - step
    if received is None:
        into, out_of = ([flat.numel() * (rank == other) for rank in range(ranks.size)] for other in (origin, to))
        sent = bytes_of(tensor)
        dist.all_to_all_single(flat[: sum(into)], sent[: sum(out_of)], into, out_of, group=group)
    elif 0 <= origin < ranks.size:
        flat.copy_(received[origin])
    return result


def _empty_like(tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.empty(shape, dtype=tensor.dtype, device=tensor.device)


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor in order as flat bytes; for a contiguous tensor, a view of its memory."""
    plain = _in_memory(tensor).contiguous()
    # A contiguous tensor of one element may have any stride, but `view` to a narrower dtype needs 1.
    return plain.as_strided((plain.numel(),), (1,)).view(torch.uint8)


def _in_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with its elements in its memory.

    A conjugate or negative view has others there, and a zero tensor, as autograd makes for a derivative that is zero
    everywhere, has no memory.
    """
    if tensor._is_zerotensor():
        return torch.zeros_like(tensor)
    return tensor.resolve_conj().resolve_neg()
