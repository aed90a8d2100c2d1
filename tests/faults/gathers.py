"""Deliberate faults in the gather of context parallelism, as one process sees it."""

from typing import Any

import torch

from tests.faults.wrapping import wrong_gather


class _DetachedBackward(torch.autograd.Function):
    """The right gather, whose backward does not tell autograd what it does."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        del ctx
        return tensor.detach().clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        del ctx
        return gradients[0].detach().clone()


@wrong_gather("strict", "gathers_have_their_derivatives")
def gather_loses_second_derivative(tensor: torch.Tensor, group: None) -> torch.Tensor:
    """The backward of the gather leaves autograd, so that terms of second derivatives are missing without an error."""
    del group
    whole: torch.Tensor = _DetachedBackward.apply(tensor)  # type: ignore[no-untyped-call]
    return whole
