"""Laws of derivatives."""

import torch

from alignpack_fuzz import strategies
from alignpack_fuzz.cases import (
    Move,
    WholeNumbers,
)
from alignpack_fuzz.compare import (
    assert_same_bits,
    named,
)
from alignpack_fuzz.laws.registry import law
from alignpack_fuzz.targets import REFERENCE, Target


@law("core", strategies.moves(strategies.CORE_FLOATS))
def gradients_are_adjoint(target: Target, case: Move) -> None:
    """Gradients are the reference's explicit adjoints, bit for bit, for upstream gradients of any bits and strides.

    Catches clamped indices, accumulation, an upstream whose strides are ignored, a gradient in the wrong row.
    """
    layout, reference = case.tables.build(target), case.tables.reference
    with named("gradient of pack"):
        assert_same_bits(target.pack_gradient(layout, case.packed), REFERENCE.pack_gradient(reference, case.packed))
    with named("gradient of restore"):
        upstream = case.values
        assert_same_bits(target.restore_gradient(layout, upstream), REFERENCE.restore_gradient(reference, upstream))


@law("core", strategies.whole_numbers())
def inner_products_agree(target: Target, case: WholeNumbers) -> None:
    """<pack(x), y> = <x, adjoint(y)>, and so for restore; exact, as all numbers are small: said without the reference."""
    layout = case.tables.build(target)
    values, packed = case.tensors
    moved, back = layout.pack(values), target.pack_gradient(layout, packed)
    assert (moved * packed).sum() == (values * back).sum(), "pack and its gradient"
    moved, back = layout.restore(packed), target.restore_gradient(layout, values)
    assert (moved * values).sum() == (packed * back).sum(), "restore and its gradient"


@law("core", strategies.whole_numbers())
def second_derivatives_are_right(target: Target, case: WholeNumbers) -> None:
    """The second derivative of the cubes of what was moved, exact in small numbers: catches detached backwards."""
    if target is REFERENCE:
        return  # its adjoints are plain functions
    layout, reference = case.tables.build(target), case.tables.reference
    values, packed = case.tensors
    for move, start, weight, adjoint in (
        (layout.pack, values, packed, REFERENCE.pack_gradient),
        (layout.restore, packed, values, REFERENCE.restore_gradient),
    ):
        point = start.clone().requires_grad_()
        (first,) = torch.autograd.grad((move(point) ** 3 * weight).sum(), point, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), point)
        assert torch.equal(second, 6 * start * adjoint(reference, weight))
