"""Deliberate faults in the gradients of `pack` and `restore`; the values are moved rightly."""

from typing import Any

import torch

from alignpack._backends import BackendName
from tests.faults.values import read_in_order
from tests.faults.wrapping import FaultyLayout, wrong_gradient, wrong_object


def gather(gradient: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """What is right: `out[b, i] = gradient[b, index[b, i]]`, zero where the index is -1; with autograd's gradient."""
    clamped = gather_clamped(gradient, index)
    return torch.where(like(index < 0, clamped), torch.zeros((), dtype=clamped.dtype), clamped)


def gather_clamped(gradient: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """The same with slot 0 where the index is -1; rows without a slot give zeros."""
    if gradient.shape[1] == 0:
        return gradient.new_zeros(*index.shape, *gradient.shape[2:])
    return gradient[torch.arange(len(index)).unsqueeze(1), index.clamp_min(0)]


def scatter(gradient: torch.Tensor, index: torch.Tensor, slots: int) -> torch.Tensor:
    """Add each slot of the gradient where it came from; the slots of the index must be there."""
    result = gradient.new_zeros(len(index), slots, *gradient.shape[2:])
    rows = torch.arange(len(index)).unsqueeze(1).expand_as(index)
    return result.index_put((rows, index), gradient, accumulate=True) if slots else result


def like(mask: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The mask with the axes of the values."""
    return mask.reshape(*mask.shape, *(1,) * (values.ndim - 2))


# --- padding -------------------------------------------------------------------------------------------------------------


@wrong_gradient("core", "gradients_are_adjoint", "inner_products_agree")
def padding_added_to_slot_zero(gradient: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
    """Indices are clamped and gradients added: what arrives at padding is added to the row's first slot."""
    return scatter(gradient, index.clamp_min(0), inverse.shape[1])


@wrong_gradient("core", "garbage_in_padding_reaches_nothing")
def padding_multiplied_by_mask(gradient: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
    """Gradients of padding are made zero by a product before they are added to slot 0: a NaN stays one."""
    return scatter(gradient * like(index >= 0, gradient), index.clamp_min(0), inverse.shape[1])


@wrong_gradient("core", "gradients_are_adjoint", "inner_products_agree")
def padding_gets_a_gradient(gradient: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
    """What was padding in the values gets the gradient of slot 0 instead of zero."""
    del index
    return gather_clamped(gradient, inverse)


@wrong_gradient("core", "gradients_are_adjoint", "inner_products_agree")
def first_token_gets_no_gradient(gradient: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
    """The test for padding is `index > 0`, so that the first token of each row gets no gradient."""
    del index
    return gather(gradient, torch.where(inverse > 0, inverse, -1))


@wrong_gradient("core", "gradients_are_adjoint", "inner_products_agree")
def last_token_gets_no_gradient(gradient: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
    """The backward stops one slot before the end of rows that are full."""
    return gather(gradient, inverse.masked_fill(inverse == index.shape[1] - 1, -1))


# --- sums and bits -------------------------------------------------------------------------------------------------------


@wrong_gradient("core", "gradients_are_adjoint")
def gradients_accumulated(gradient: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
    """Gradients are added to zeros rather than gathered, in no fixed order: bits of NaN and -0.0 change."""
    moved = gather(gradient, inverse)
    del index
    return torch.where(moved.isnan(), torch.nan, moved + 0.0) if moved.numel() else moved


@wrong_gradient("core", "gradients_are_adjoint")
def gradients_through_float32(gradient: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
    """The backward computes in float32, whatever the dtype."""
    del index
    return gather(gradient, inverse).float().to(gradient.dtype)


@wrong_gradient("core", "gradients_are_adjoint", "inner_products_agree")
def gradient_averaged_over_slots(gradient: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
    """Gradients are scaled by the ratio of the two widths, as an average over slots would be."""
    moved = gather(gradient, inverse)
    return moved * (inverse.shape[1] / index.shape[1]) if index.shape[1] else moved


# --- rows and strides ----------------------------------------------------------------------------------------------------


@wrong_gradient("core", "gradients_are_adjoint", "inner_products_agree")
def gradient_by_row_zero_map(gradient: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
    """Every row's gradient comes through the first row's map."""
    del index
    return gather(gradient, inverse[:1].expand_as(inverse))


@wrong_gradient("core", "gradients_are_adjoint", "inner_products_agree")
def gradient_of_row_zero(gradient: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
    """Every row reads the first row's upstream gradient."""
    del index
    return gather(gradient[:1].expand_as(gradient), inverse)


@wrong_gradient("core", "gradients_are_adjoint")
def upstream_strides_ignored(gradient: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
    """The upstream gradient is read in the order of memory, so that the expanded gradient of a sum reads past it."""
    del index
    return gather(gradient if gradient.is_contiguous() else read_in_order(gradient), inverse)


# --- second derivatives --------------------------------------------------------------------------------------------------


@wrong_gradient("core", "second_derivatives_are_right")
def backward_is_detached(gradient: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
    """The backward leaves autograd, so that there is no second derivative."""
    del index
    return gather(gradient.detach(), inverse)


@wrong_gradient("core", "second_derivatives_are_right")
def second_backward_takes_no_map(gradient: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
    """The backward's own backward leaves every slot where it stands, right only where nothing moves."""
    moved: torch.Tensor = _WrongTwice.apply(gradient, index, inverse)  # type: ignore[no-untyped-call]
    return moved


class _WrongTwice(torch.autograd.Function):
    """The right backward, whose own backward moves nothing."""

    @staticmethod
    def forward(ctx, gradient, index, inverse):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(index)
        return gather(gradient, inverse)

    @staticmethod
    def backward(ctx, upstream):  # type: ignore[no-untyped-def]
        (index,) = ctx.saved_tensors
        limit = upstream.shape[1] - 1
        straight = torch.arange(index.shape[1]).expand_as(index)
        straight = straight.masked_fill((index < 0) | (straight > limit), -1)
        return gather(upstream, straight), None, None


# --- results -------------------------------------------------------------------------------------------------------------


class _Viewed(torch.autograd.Function):
    """What was moved, as a view of a tensor that is never returned."""

    @staticmethod
    def forward(ctx, moved):  # type: ignore[no-untyped-def]
        del ctx
        return moved.clone().view(moved.shape)

    @staticmethod
    def backward(ctx, upstream):  # type: ignore[no-untyped-def]
        del ctx
        return upstream


@wrong_object("core", "results_are_independent")
class ResultsAreViews(FaultyLayout):
    """A result is a view of the words that it was written as, so autograd forbids changing it in place."""

    def pack(self, values: torch.Tensor, fill: Any = 0, *, backend: BackendName | None = None) -> torch.Tensor:
        """See `PackedSequenceLayout`."""
        viewed: torch.Tensor = _Viewed.apply(super().pack(values, fill, backend=backend))  # type: ignore[no-untyped-call]
        return viewed
