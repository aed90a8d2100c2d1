"""Implementations of the contract behind one interface, so that one test or law holds for all of them.

The interface speaks torch. The reference speaks NumPy, which has no bfloat16 and no float8: such values, and their
fills, go through it as the unsigned integers of their bits.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

import alignpack
import alignpack_reference as reference

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

    def packed_layout(self, *args: Any, **kwargs: Any) -> Any:
        """Build a layout: an object with the four fields as torch tensors, `pack`, `restore`, `shard`, row slices."""

    def pack_gradient(self, layout: Any, upstream: torch.Tensor) -> torch.Tensor:
        """The gradient that `pack` passes on: `[batch, padded_sequence, ...]` to `[batch, original_sequence, ...]`."""

    def restore_gradient(self, layout: Any, upstream: torch.Tensor) -> torch.Tensor:
        """The gradient that `restore` passes on: `[batch, original_sequence, ...]` to `[batch, padded_sequence, ...]`."""


@dataclass(frozen=True)
class AlignpackTarget:
    """`alignpack` with one backend: it builds the layouts.

    Values are moved by the backend that `ALIGNPACK_BACKEND` names, which callers set for as long as they use a target.
    """

    backend: str

    @property
    def name(self) -> str:
        """The backend's name."""
        return self.backend

    def packed_layout(self, *args: Any, **kwargs: Any) -> alignpack.PackedSequenceLayout:
        """Build a layout with the backend."""
        return alignpack.packed_layout(*args, backend=self.backend, **kwargs)

    def pack_gradient(self, layout: alignpack.PackedSequenceLayout, upstream: torch.Tensor) -> torch.Tensor:
        """Through autograd."""
        values = upstream.new_zeros(*layout.input_positions.shape, *upstream.shape[2:]).requires_grad_()
        (gradient,) = torch.autograd.grad(layout.pack(values), values, upstream)
        return gradient

    def restore_gradient(self, layout: alignpack.PackedSequenceLayout, upstream: torch.Tensor) -> torch.Tensor:
        """Through autograd."""
        values = upstream.new_zeros(*layout.source_indices.shape, *upstream.shape[2:]).requires_grad_()
        (gradient,) = torch.autograd.grad(layout.restore(values), values, upstream)
        return gradient


class ReferenceTarget:
    """`alignpack_reference`, given and giving torch tensors."""

    name = "reference"

    def packed_layout(self, seq_lens: Any, seq_lens_padded: Any, *args: Any, **kwargs: Any) -> "ReferenceLayout":
        """Build a layout from the tables as NumPy arrays; what is no tensor is passed on to be refused."""

        def array(table: Any) -> Any:
            return table.numpy() if isinstance(table, torch.Tensor) else table

        return ReferenceLayout(reference.packed_layout(array(seq_lens), array(seq_lens_padded), *args, **kwargs))

    def pack_gradient(self, layout: "ReferenceLayout", upstream: torch.Tensor) -> torch.Tensor:
        """The explicit adjoint."""
        return _from_numpy(reference.pack_adjoint(layout.numpy, _to_numpy(upstream)), upstream.dtype)

    def restore_gradient(self, layout: "ReferenceLayout", upstream: torch.Tensor) -> torch.Tensor:
        """The explicit adjoint."""
        return _from_numpy(reference.restore_adjoint(layout.numpy, _to_numpy(upstream)), upstream.dtype)


@dataclass(frozen=True, eq=False)
class ReferenceLayout:
    """A layout of the reference in torch's terms."""

    numpy: reference.PackedSequenceLayout

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.numpy, name)
        return torch.from_numpy(value) if isinstance(value, np.ndarray) else value

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

    def __getitem__(self, rows: slice) -> "ReferenceLayout":
        return ReferenceLayout(self.numpy[rows])


REFERENCE = ReferenceTarget()
TARGETS: tuple[Target, ...] = (REFERENCE, AlignpackTarget("torch"))
"""Every implementation in this repository, the specification first."""


def _to_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    plain = tensor.detach().resolve_conj().resolve_neg()
    array: NDArray[Any] = plain.view(_BITS_FOR_NUMPY.get(plain.dtype, plain.dtype)).numpy()
    return array


def _from_numpy(array: NDArray[Any], dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(array).view(dtype)
