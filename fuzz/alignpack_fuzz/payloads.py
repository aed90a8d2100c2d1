"""Tensors of random bits, described by how they lie in memory, a shape, a dtype and a seed."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch

Shape = tuple[int, ...]
Strides = Literal["contiguous", "transposed", "every second", "expanded", "one element", "offset"]


@dataclass(frozen=True)
class Payload:
    """A tensor: how it lies in memory, its shape, its dtype, and the seed of its bits.

    Attributes:
        strides: "one element" has stride 0 on every axis, "expanded" on the batch only.
        seed: of random bits, so that NaN payloads and -0.0 occur (bool holds 0 and 1); None: all bits are 0, as a
            fill's often are.
    """

    strides: Strides
    shape: Shape
    dtype: torch.dtype
    seed: int | None

    @cached_property
    def tensor(self) -> torch.Tensor:
        """The tensor."""
        batch, slots, *trailing = self.shape
        match self.strides:
            case "transposed":
                return self._bits((slots, batch, *trailing)).transpose(0, 1)
            case "every second":
                return self._bits((batch, 2 * slots, *trailing))[:, ::2]
            case "expanded":
                return self._bits((1, slots, *trailing)).expand(self.shape)
            case "one element":
                return self._bits((1,) * len(self.shape)).expand(self.shape)
            case "offset":
                return self._bits((batch, slots + 1, *trailing))[:, 1:]
            case "contiguous":
                return self._bits(self.shape)

    def _bits(self, shape: Shape) -> torch.Tensor:
        return random_bits(shape, self.dtype, self.seed)


def random_bits(shape: Shape, dtype: torch.dtype, seed: int | None) -> torch.Tensor:
    """A contiguous tensor of random bits, an eighth of them odd values; bool holds 0 and 1.

    Without a seed, all bits are 0.
    """
    elements = torch.Size(shape).numel()
    if seed is None or elements == 0:
        return torch.zeros(shape, dtype=torch.uint8).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).to(torch.bool)
    noise = torch.randint(0, 256, (elements * dtype.itemsize,), generator=generator, dtype=torch.uint8)
    # In wide dtypes random bits never hit what masks, sentinels and arithmetic confuse: -1, both zeros, the limits.
    odd = _odd_values(dtype).view(torch.uint8).view(-1, dtype.itemsize)
    chosen = torch.rand(elements, generator=generator) < 1 / 8
    picks = torch.randint(0, len(odd), (elements,), generator=generator)
    bits = torch.where(chosen.unsqueeze(1), odd[picks], noise.view(elements, dtype.itemsize))
    return bits.view(-1).view(dtype).view(shape)


def _odd_values(dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_complex:
        return torch.tensor([complex(-0.0, 0.0), complex(0.0, -0.0), complex(math.nan, 1), -1, 1, 0]).to(dtype)
    if dtype.is_floating_point:
        return torch.tensor([-0.0, 0.0, -1.0, 1.0, math.nan, -math.nan, torch.finfo(dtype).max]).to(dtype)
    info = torch.iinfo(dtype)
    return torch.tensor([0, 1, -1, -100, max(info.min, -(2**63)), min(info.max, 2**63 - 1)]).to(dtype)
