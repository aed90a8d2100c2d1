"""What a deliberate fault is, and the ways to wrap one around a correct target.

A harness that finds no fault proves nothing unless it finds these. Each is wrong only where a real report was wrong:
the rest of the implementation is the correct one.
"""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar

import torch

from alignpack import PackedSequenceLayout
from alignpack_fuzz.cases import Tables
from alignpack_fuzz.compare import FIELDS
from alignpack_fuzz.targets import ModuleTarget, Target

Group = Literal["core", "strict"]

INTEGERS = ("alignment", "offset", "row_length")


@dataclass(frozen=True)
class Fault:
    """One deliberate fault.

    Attributes:
        sentence: what is wrong.
        group: the laws that must find it: `core`, or `strict` where it breaks only what `alignpack` promises.
        found_by: names of laws, each of which must find it.
        wrap: makes a faulty target of a correct one; every call gives a fresh one, with no memory of others.
    """

    name: str
    sentence: str
    group: Group
    found_by: tuple[str, ...]
    wrap: Callable[[Target], Target]


REGISTERED: dict[str, Fault] = {}
"""The faults of all modules that were imported; `tests.faults` imports all."""

Wrap = Callable[[Target], Callable[..., Any]]
Build = Callable[[Target, Tables], Any]
Class = TypeVar("Class", bound=type["FaultyLayout"])


@dataclass(frozen=True)
class FaultyTarget(ModuleTarget):
    """A correct target of which one thing was changed."""

    right: Target

    def active(self) -> AbstractContextManager[None]:
        """What the correct target needs."""
        return self.right.active()


# --- the ways ----------------------------------------------------------------------------------------------------------


def fault(group: Group, *found_by: str) -> Callable[[Wrap], Wrap]:
    """A fault from a function that makes a faulty `packed_layout` of a target; its name and docstring are the fault's."""

    def register(wrap: Wrap) -> Wrap:
        _register(wrap.__name__, wrap.__doc__, group, found_by, wrap)
        return wrap

    return register


def wrong_layout(group: Group, *found_by: str) -> Callable[[Build], Build]:
    """A fault from a function that builds a wrong layout, or refuses wrongly, with a correct target at hand."""

    def register(build: Build) -> Build:
        def wrap(right: Target) -> Callable[..., Any]:
            return lambda *args, **kwargs: build(right, Tables(*args, **kwargs))

        _register(build.__name__, build.__doc__, group, found_by, wrap)
        return build

    return register


def wrong_object(group: Group, *found_by: str) -> Callable[[Class], Class]:
    """A fault from a class of layouts with a wrong method."""

    def register(layout_class: Class) -> Class:
        def wrap(right: Target) -> Callable[..., Any]:
            return lambda *args, **kwargs: as_class(layout_class, right.packed_layout(*args, **kwargs))

        name = re.sub(r"(?<!^)(?=[A-Z])", "_", layout_class.__name__).lower()
        _register(name, layout_class.__doc__, group, found_by, wrap)
        return layout_class

    return register


def wrong_move(group: Group, *found_by: str) -> Callable[["Transfer"], "Transfer"]:
    """A fault from a function that does one `pack` or `restore` wrongly."""

    def register(transfer: Transfer) -> Transfer:
        def wrap(right: Target) -> Callable[..., Any]:
            return lambda *args, **kwargs: as_class(MovingLayout, right.packed_layout(*args, **kwargs), move=transfer)

        _register(transfer.__name__, transfer.__doc__, group, found_by, wrap)
        return transfer

    return register


def wrong_gradient(group: Group, *found_by: str) -> Callable[["Backward"], "Backward"]:
    """A fault from a function of the upstream gradient and both maps, which stands for both backwards.

    It takes the map that the forward gathered through, and its inverse, which the backward should gather through.
    """

    def register(backward: Backward) -> Backward:
        def wrap(right: Target) -> Callable[..., Any]:
            transfer = partial(_with_backward, backward)
            return lambda *args, **kwargs: as_class(MovingLayout, right.packed_layout(*args, **kwargs), move=transfer)

        _register(backward.__name__, backward.__doc__, group, found_by, wrap)
        return backward

    return register


def wrong_gather(group: Group, *found_by: str) -> Callable[["Gather"], "Gather"]:
    """A fault from a function that gathers a tensor over this process alone."""

    def register(gather: Gather) -> Gather:
        _register(gather.__name__, gather.__doc__, group, found_by, lambda right: right.packed_layout, gather)
        return gather

    return register


def _register(
    name: str,
    text: str | None,
    group: Group,
    found_by: tuple[str, ...],
    wrap: Wrap,
    gather: "Gather | None" = None,
) -> None:
    def faulty(right: Target) -> Target:
        return FaultyTarget(
            f"{name}({right.name})", wrap(right), right, gather_sequence=gather or right.gather_sequence
        )

    REGISTERED[name] = Fault(name, " ".join((text or "").split()), group, found_by, faulty)


# --- layouts -----------------------------------------------------------------------------------------------------------


class FaultyLayout(PackedSequenceLayout):
    """A layout that stays of its class when others are made of it."""

    def __getitem__(self, rows: slice) -> "FaultyLayout":
        return self._again(super().__getitem__(rows))

    def shard(self, rank: int, size: int) -> "FaultyLayout":
        """See `PackedSequenceLayout`."""
        return self._again(super().shard(rank, size))

    def shift(self, k: int) -> "FaultyLayout":
        """See `PackedSequenceLayout`."""
        return self._again(super().shift(k))

    def to(self, device: torch.device | str | int | torch.Tensor, non_blocking: bool = False) -> "FaultyLayout":
        """See `PackedSequenceLayout`."""
        return self._again(super().to(device, non_blocking))

    def _again(self, layout: PackedSequenceLayout) -> "FaultyLayout":
        return replace(self, **{name: getattr(layout, name) for name in (*FIELDS, *INTEGERS)})


@dataclass(frozen=True)
class Call:
    """One `pack` or `restore` that is to be done."""

    name: Literal["pack", "restore"]
    layout: PackedSequenceLayout
    values: torch.Tensor
    fill: Any = 0

    @property
    def index(self) -> torch.Tensor:
        """Where each slot of the result comes from."""
        return self.layout.source_indices if self.name == "pack" else self.layout.input_positions

    @property
    def inverse(self) -> torch.Tensor:
        """Where each slot of the values goes."""
        return self.layout.input_positions if self.name == "pack" else self.layout.source_indices

    @property
    def padding(self) -> torch.Tensor:
        """Which slots of the result are padding, with as many axes as the values."""
        return (self.index == -1).reshape(*self.index.shape, *(1,) * (self.values.ndim - 2))

    def right(self, values: torch.Tensor | None = None) -> torch.Tensor:
        """What is right, for the values or for others."""
        values = self.values if values is None else values
        if self.name == "pack":
            return PackedSequenceLayout.pack(self.layout, values, self.fill)
        return PackedSequenceLayout.restore(self.layout, values)

    def through(self, index: torch.Tensor) -> torch.Tensor:
        """What comes through another map; -1 gives the fill."""
        other = replace(self.layout, source_indices=index, input_positions=self.inverse)
        return PackedSequenceLayout.pack(other, self.values, self.fill)


Transfer = Callable[[Call], torch.Tensor]
Backward = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
Gather = Callable[[torch.Tensor, None], torch.Tensor]


@dataclass(frozen=True, eq=False, repr=False)
class MovingLayout(FaultyLayout):
    """A layout that moves values by another function."""

    move: Transfer = Call.right

    def pack(self, values: torch.Tensor, fill: Any = 0, *, backend: str | None = None) -> torch.Tensor:
        """See `PackedSequenceLayout`."""
        return self.move(Call("pack", self, values, fill))

    def restore(self, values: torch.Tensor, *, backend: str | None = None) -> torch.Tensor:
        """See `PackedSequenceLayout`."""
        return self.move(Call("restore", self, values))


def as_class(layout_class: type[PackedSequenceLayout], layout: Any, **more: Any) -> PackedSequenceLayout:
    """The layout of any target as one of `alignpack`'s or of a class derived from that."""
    everything: dict[str, Any] = {name: getattr(layout, name) for name in (*FIELDS, *INTEGERS)}
    return layout_class(**everything, **more)


def right_layout(right: Target, tables: Tables) -> PackedSequenceLayout:
    """The correct layout as one of `alignpack`'s, of which fields may be replaced."""
    return as_class(PackedSequenceLayout, tables.build(right))


class _WrongBackward(torch.autograd.Function):
    """The right forward with another backward."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, call: Call, backward: Backward) -> torch.Tensor:
        ctx.call, ctx.wrong = replace(call, values=values.detach()), backward
        return call.right(values)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return ctx.wrong(gradients[0], ctx.call.index, ctx.call.inverse), None, None


def _with_backward(backward: Backward, call: Call) -> torch.Tensor:
    moved: torch.Tensor = _WrongBackward.apply(call.values, call, backward)  # type: ignore[no-untyped-call]
    return moved
