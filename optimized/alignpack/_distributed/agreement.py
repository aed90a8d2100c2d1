"""Comparing a call among ranks before any data moves, so that a mistake on one rank does not hang the others.

Every rank sends one message of fixed size: a header, and the data if there is room for it. All ranks raise the same error
when headers differ or one rank refuses its arguments, and no collective is left half done.
"""

import struct
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.distributed as dist
from torch.autograd import forward_ad

from alignpack._distributed.collectives import Ranks, bytes_of, gathered
from alignpack._inputs.arguments import integer_at_least
from alignpack._inputs.tables import LARGEST_WIDTH
from alignpack._inputs.words import WORD_DTYPES
from alignpack._torch_state import without_modes_and_transforms
from alignpack_reference import errors

MOST_AXES = 64
"""The most axes that a tensor may have: a header has room for 64 sizes."""

Refusal = TypeError | ValueError

_DTYPES = tuple(WORD_DTYPES)
_OPERATIONS = ("gather_sequence", "halo")
_ACCEPTED, _TYPE_ERROR, _VALUE_ERROR = 0, 1, 2
_NUMBERS = 128  # of a header after its first number: the call, which needs fewer, or the text of an error
_TEXT = struct.Struct(f"<{_NUMBERS}q")
_HEADER = 1 + _NUMBERS
_MESSAGE = 1024  # numbers in a message, 8 KiB: over gloo as fast as the header alone
_ROOM = 8 * (_MESSAGE - _HEADER)


def refusal_of(check: Callable[[], object]) -> Refusal | None:
    """The error that a check of the arguments raises, kept until the other ranks know of it."""
    try:
        check()
    except (TypeError, ValueError) as error:
        return error
    return None


def agree(
    ranks: Ranks, operation: str, tensor: torch.Tensor, width: int | None, refusal: Refusal | None, check: bool
) -> torch.Tensor | None:
    """Return on all ranks, or raise on all of them.

    Args:
        ranks: the ranks that take part.
        operation: the function that was called.
        tensor: its argument; read only when `refusal` is None.
        width: how many of the tensor's last columns the function sends; None: all.
        refusal: the error that this rank found in its own arguments, or None.
        check: when False, ranks are not compared, and only this rank's own error is raised.

    Returns:
        The bytes that the function sends, of every rank, `[size, bytes]`, if they travelled with the header; else None.
    """
    if ranks.group is None or not check:
        if refusal is not None:
            raise refusal
        return None
    if refusal is not None:
        _exchanged(_refused(refusal), ranks, refusal)
    data = _data(tensor, width, ranks)
    headers, received = _exchanged(_header(ranks, operation, tensor, width), ranks, None, data)
    if any(header != headers[0] for header in headers):
        raise _ranks_disagree(headers, ranks)
    return None if data is None else received[:, : data.numel()]


def _data(tensor: torch.Tensor, width: int | None, ranks: Ranks) -> torch.Tensor | None:
    """The bytes that the function sends, if they can travel with a header."""
    if tensor.device.type != ranks.control_device().type:
        return None
    sent = tensor if width is None else tensor[:, tensor.shape[1] - width :]
    if sent.numel() * sent.itemsize > _ROOM:
        return None
    return bytes_of(forward_ad.unpack_dual(sent).primal.detach())


def largest_of(ranks: Ranks, length: int, name: str) -> int:
    """The largest length of all ranks, by one MAX all-reduce; all ranks raise the error of any."""
    refusal = refusal_of(lambda: _check_length(name, length))
    if ranks.group is None:
        if refusal is not None:
            raise refusal
        return int(length)
    refused = LARGEST_WIDTH + 1  # above every length, so that all ranks see it and exchange their errors
    sent = int(length) if refusal is None else refused
    with without_modes_and_transforms():
        largest = torch.tensor([sent], dtype=torch.int64, device=ranks.control_device())
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=ranks.group)
        found = int(largest)
    if found == refused:
        _exchanged([_ACCEPTED] if refusal is None else _refused(refusal), ranks, refusal)
    return found


def _check_length(name: str, length: int) -> None:
    if integer_at_least(name, length, 0) > LARGEST_WIDTH:
        raise errors.too_large(name, int(length), LARGEST_WIDTH)


def _exchanged(
    header: list[int], ranks: Ranks, refusal: Refusal | None, data: torch.Tensor | None = None
) -> tuple[list[list[int]], torch.Tensor]:
    """The headers of all ranks, and the room for data behind each; raises the error of the ranks that refuse."""
    with without_modes_and_transforms():
        message = torch.zeros(1, _MESSAGE, dtype=torch.int64, device=ranks.control_device())
        message[0, : len(header)] = torch.tensor(header, device=message.device)
        if data is not None:
            message[0, _HEADER:].view(torch.uint8)[: data.numel()] = data
        messages = gathered(message, ranks).view(ranks.size, -1)
        headers: list[list[int]] = messages[:, :_HEADER].tolist()
        received = messages[:, _HEADER:].view(torch.uint8)
    if refusals := {rank: found for rank, header in enumerate(headers) if (found := _refusal_in(header)) is not None}:
        raise _refused_on_ranks(refusals) from refusal
    return headers, received


def _header(ranks: Ranks, operation: str, tensor: torch.Tensor, width: int | None) -> list[int]:
    call = [
        _OPERATIONS.index(operation),
        ranks.device_types().index(tensor.device.type),
        _DTYPES.index(tensor.dtype),
        # Whether autograd records the call: a backward that only some ranks run would wait for the others forever.
        tensor.requires_grad and torch.is_grad_enabled(),
        forward_ad.unpack_dual(tensor).tangent is not None,
        width or 0,
        tensor.ndim,
        *tensor.shape,
    ]
    return [_ACCEPTED, *call]


def _refused(refusal: Refusal) -> list[int]:
    text = str(refusal).encode(errors="backslashreplace")[: _TEXT.size].ljust(_TEXT.size, b"\0")
    kind = _TYPE_ERROR if isinstance(refusal, TypeError) else _VALUE_ERROR
    return [kind, *_TEXT.unpack(text)]


def _refusal_in(header: Sequence[int]) -> Refusal | None:
    kind, *numbers = header
    if kind == _ACCEPTED:
        return None
    text = _TEXT.pack(*numbers).rstrip(b"\0").decode(errors="ignore")  # may be cut inside a character
    return TypeError(text) if kind == _TYPE_ERROR else ValueError(text)


def _differences(headers: Sequence[Sequence[int]], ranks: Ranks) -> Iterator[tuple[str, dict[str, list[int]]]]:
    """The properties that differ, each with its values and the ranks of each value."""
    device_types = ranks.device_types()
    calls = [_described(header, device_types) for header in headers]
    for name in calls[0]:
        holders: dict[str, list[int]] = {}
        for rank, call in enumerate(calls):
            holders.setdefault(call[name], []).append(rank)
        if len(holders) > 1:
            yield name, holders


def _described(header: Sequence[int], device_types: Sequence[str]) -> dict[str, str]:
    _, operation, device, dtype, requires_grad, tangent, width, axes, *sizes = header
    return {
        "the function": _OPERATIONS[operation],
        "the device": device_types[device],
        "the dtype": str(_DTYPES[dtype]).removeprefix("torch."),
        "the shape": str(sizes[:axes]),
        "requires_grad": str(bool(requires_grad)),
        "having a forward-mode tangent": str(bool(tangent)),
        "width": str(width),
    }


def _refused_on_ranks(refusals: dict[int, Refusal]) -> Refusal:
    """The error for wrong arguments on some ranks: the class and text of the first."""
    rank, first = next(iter(refusals.items()))
    others = list(refusals)[1:]
    also = f" (and refused on {_ranks(others)}, too)" if others else ""
    kind = TypeError if isinstance(first, TypeError) else ValueError
    return kind(f"rank {rank}: {first}{also}")


def _ranks_disagree(headers: Sequence[Sequence[int]], ranks: Ranks) -> ValueError:
    """The error for calls that differ: each difference, with the ranks of each value."""
    shown = "; ".join(
        f"{name} is " + ", ".join(f"{value} on {_ranks(holders)}" for value, holders in values.items())
        for name, values in _differences(headers, ranks)
    )
    return ValueError(f"the ranks of the group must agree, but {shown}")


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks}"
