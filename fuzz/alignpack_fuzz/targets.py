"""Implementations of the contract behind one interface, so that one test or law holds for all of them.

The interface speaks torch. The reference speaks NumPy, which has no bfloat16 and no float8: such values, and their
fills, go through it as the unsigned integers of their bits.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol, get_args

import numpy as np
import torch
from numpy.typing import NDArray

import alignpack
import alignpack._backends
import alignpack_reference as reference
from alignpack.context_parallel import gather_sequence

_BITS_FOR_NUMPY = {
    torch.bfloat16: torch.uint16,
    torch.float8_e4m3fn: torch.uint8,
    torch.float8_e4m3fnuz: torch.uint8,
    torch.float8_e5m2: torch.uint8,
    torch.float8_e5m2fnuz: torch.uint8,
}


class Target(Protocol):
    """One implementation of the contract; its layouts give torch tensors, whatever they are made of."""

    @property
    def name(self) -> str:
        """What reports call it."""

    @property
    def packed_layout(self) -> Callable[..., Any]:
        """Builds a layout: an object with the four fields as torch tensors, `pack` and `restore`."""

    @property
    def gather_sequence(self) -> Callable[..., torch.Tensor] | None:
        """Gathers a tensor over the ranks of a group; None where an implementation of layouts has no such function."""

    def pack_gradient(self, layout: Any, upstream: torch.Tensor) -> torch.Tensor:
        """The gradient that `pack` passes on: `[batch, padded_sequence, ...]` to `[batch, original_sequence, ...]`."""

    def restore_gradient(self, layout: Any, upstream: torch.Tensor) -> torch.Tensor:
        """The gradient that `restore` passes on: `[batch, original_sequence, ...]` to `[batch, padded_sequence, ...]`."""

    def active(self) -> AbstractContextManager[None]:
        """What must hold while the target is used."""


@dataclass(frozen=True)
class ModuleTarget:
    """Anything that has a `packed_layout` like the contract's; gradients go through autograd.

    Attributes:
        packed_layout: called by keyword, so that keyword-only signatures work.
        gather_sequence: called with a tensor and None, which is the group of this process alone.
    """

    name: str
    packed_layout: Callable[..., Any]
    gather_sequence: Callable[..., torch.Tensor] | None = field(default=None, kw_only=True)

    def pack_gradient(self, layout: Any, upstream: torch.Tensor) -> torch.Tensor:
        """See `Target`."""
        return _gradient(layout.pack, layout.input_positions.shape, upstream)

    def restore_gradient(self, layout: Any, upstream: torch.Tensor) -> torch.Tensor:
        """See `Target`."""
        return _gradient(layout.restore, layout.source_indices.shape, upstream)

    def active(self) -> AbstractContextManager[None]:
        """Nothing must hold."""
        return nullcontext()


@dataclass(frozen=True)
class BackendTarget(ModuleTarget):
    """`alignpack` with one backend, which builds layouts and moves values."""

    backend: str

    @contextmanager
    def active(self) -> Iterator[None]:
        """The environment names the backend."""
        before = os.environ.get("ALIGNPACK_BACKEND")
        os.environ["ALIGNPACK_BACKEND"] = self.backend
        try:
            yield
        finally:
            del os.environ["ALIGNPACK_BACKEND"]
            if before is not None:
                os.environ["ALIGNPACK_BACKEND"] = before


class ReferenceTarget:
    """`alignpack_reference`, given and giving torch tensors."""

    name = "reference"
    gather_sequence = None

    def packed_layout(self, seq_lens: Any, seq_lens_padded: Any, *args: Any, **kwargs: Any) -> "ReferenceLayout":
        """Build a layout from the tables as NumPy arrays; anything but a tensor is passed on as it is, to be refused."""

        def array(table: Any) -> Any:
            return table.numpy() if isinstance(table, torch.Tensor) else table

        return ReferenceLayout(reference.packed_layout(array(seq_lens), array(seq_lens_padded), *args, **kwargs))

    def pack_gradient(self, layout: "ReferenceLayout", upstream: torch.Tensor) -> torch.Tensor:
        """The explicit adjoint."""
        return _from_numpy(reference.pack_adjoint(layout.numpy, _to_numpy(upstream)), upstream.dtype)

    def restore_gradient(self, layout: "ReferenceLayout", upstream: torch.Tensor) -> torch.Tensor:
        """The explicit adjoint."""
        return _from_numpy(reference.restore_adjoint(layout.numpy, _to_numpy(upstream)), upstream.dtype)

    def active(self) -> AbstractContextManager[None]:
        """Nothing must hold."""
        return nullcontext()


@dataclass(frozen=True, eq=False)
class ReferenceLayout:
    """A layout of the reference in torch's terms."""

    numpy: reference.PackedSequenceLayout

    def __getattr__(self, name: str) -> Any:
        return _in_torch(getattr(self.numpy, name))

    def pack(self, values: Any, fill: Any = 0) -> Any:
        """Pack a tensor by its bits."""
        if not isinstance(values, torch.Tensor):
            return self.numpy.pack(values, fill)  # to be refused
        if values.dtype in _BITS_FOR_NUMPY:
            fill = torch.full((1,), fill, dtype=values.dtype).view(_BITS_FOR_NUMPY[values.dtype]).item()
        return _from_numpy(self.numpy.pack(_to_numpy(values), fill), values.dtype)

    def restore(self, values: Any) -> Any:
        """Restore a tensor by its bits."""
        if not isinstance(values, torch.Tensor):
            return self.numpy.restore(values)  # to be refused
        return _from_numpy(self.numpy.restore(_to_numpy(values)), values.dtype)

    def shard(self, rank: int, size: int) -> "ReferenceLayout":
        """See the reference."""
        return ReferenceLayout(self.numpy.shard(rank, size))

    def shift(self, k: int) -> "ReferenceLayout":
        """See the reference."""
        return ReferenceLayout(self.numpy.shift(k))

    def groups(self, ratio: int) -> "ReferenceGroups":
        """See the reference."""
        return ReferenceGroups(self.numpy.groups(ratio))

    def __getitem__(self, rows: slice) -> "ReferenceLayout":
        return ReferenceLayout(self.numpy[rows])


@dataclass(frozen=True, eq=False)
class ReferenceGroups:
    """Compression groups of the reference in torch's terms."""

    numpy: reference.CompressionGroups

    def __getattr__(self, name: str) -> Any:
        return _in_torch(getattr(self.numpy, name))


REFERENCE = ReferenceTarget()

ALIGNPACK = ModuleTarget("alignpack", alignpack.packed_layout, gather_sequence=gather_sequence)
"""`alignpack` with any backend that runs."""

BACKENDS = tuple(
    BackendTarget(f"alignpack:backend={name}", alignpack.packed_layout, name, gather_sequence=gather_sequence)
    for name in get_args(alignpack._backends.BackendName)
)
"""`alignpack` with each of its backends."""


def _gradient(
    move: Callable[[torch.Tensor], torch.Tensor], leading: torch.Size, upstream: torch.Tensor
) -> torch.Tensor:
    """What backward gives for an upstream gradient; the values are zeros, as a move is linear."""
    values = upstream.new_zeros(*leading, *upstream.shape[2:]).requires_grad_()
    (gradient,) = torch.autograd.grad(move(values), values, upstream)
    return gradient


def _to_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    plain = tensor.detach().resolve_conj().resolve_neg()
    array: NDArray[Any] = plain.view(_BITS_FOR_NUMPY.get(plain.dtype, plain.dtype)).numpy()
    return array


def _in_torch(value: Any) -> Any:
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def _from_numpy(array: NDArray[Any], dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(array).view(dtype)
