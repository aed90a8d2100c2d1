"""`torch.func` and its kin: every transform gives what it gives for the plain formula.

`move` is `pack` or `restore`, see `conftest.py`: `move(values)` is the library, `move.plainly(values)` the formula.
"""

from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

from alignpack import PackedSequenceLayout
from alignpack_fuzz.compare import assert_same_bits
from alignpack_fuzz.targets import Target

TRAILING = [(), (3,)]


def values_for(move: Any, *trailing: int, copies: int = 0) -> torch.Tensor:
    leading = (copies,) if copies else ()
    return torch.randn(*leading, *move.taken, *trailing, dtype=torch.float64)


@pytest.mark.parametrize("trailing", TRAILING)
def test_gradcheck_in_every_mode(move: Any, trailing: tuple[int, ...]) -> None:
    values = values_for(move, *trailing).requires_grad_()
    assert torch.autograd.gradcheck(
        move, values, check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True
    )
    assert torch.autograd.gradgradcheck(
        lambda values: move(values).pow(3), values, check_fwd_over_rev=True, check_batched_grad=True
    )


@pytest.mark.parametrize("trailing", TRAILING)
def test_batched_gradients(move: Any, trailing: tuple[int, ...]) -> None:
    values = values_for(move, *trailing).requires_grad_()
    upstream = torch.randn(3, *move.given, *trailing, dtype=torch.float64)
    (batched,) = torch.autograd.grad(move(values), values, upstream, is_grads_batched=True)
    for gradient, of_one in zip(batched, upstream, strict=True):
        assert_same_bits(gradient, torch.autograd.grad(move.plainly(values), values, of_one)[0])


@pytest.mark.parametrize("trailing", TRAILING)
@pytest.mark.parametrize("transform", [torch.func.jacrev, torch.func.jacfwd])
def test_jacobians(move: Any, trailing: tuple[int, ...], transform: Any) -> None:
    values = values_for(move, *trailing)
    assert_same_bits(transform(move)(values), transform(move.plainly)(values))


def test_grad_vjp_jvp_hessian(move: Any) -> None:
    values, tangent, upstream = values_for(move, 2), values_for(move, 2), torch.randn(*move.given, 2).double()

    def cubes(function: Any) -> Any:
        return lambda values: function(values).pow(3).sum()

    assert_same_bits(torch.func.grad(cubes(move))(values), torch.func.grad(cubes(move.plainly))(values))
    # The formula computes some zeros with the other sign.
    assert torch.equal(torch.func.hessian(cubes(move))(values), torch.func.hessian(cubes(move.plainly))(values))
    results: Any = [
        (torch.func.jvp(function, (values,), (tangent,)), torch.func.vjp(function, values))
        for function in (move, move.plainly)
    ]
    ((moved, moved_tangent), (pulled, pull)), ((expected, expected_tangent), (_, expected_pull)) = results
    assert_same_bits(moved, expected)
    assert_same_bits(pulled, expected)
    assert_same_bits(moved_tangent, expected_tangent)
    assert_same_bits(pull(upstream)[0], expected_pull(upstream)[0])


@pytest.mark.parametrize("trailing", TRAILING)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_vmap_over_values(move: Any, trailing: tuple[int, ...], dim: int) -> None:
    values = values_for(move, *trailing, copies=4)
    batched = torch.vmap(move, in_dims=dim, out_dims=1)(values.movedim(0, dim))
    expected = torch.stack([move.plainly(of_one) for of_one in values], 1)
    assert_same_bits(batched.contiguous(), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool, torch.complex128])
def test_vmap_moves_every_kind_of_values(layout: PackedSequenceLayout, dtype: torch.dtype) -> None:
    values = torch.arange(3 * 2 * 7).reshape(3, 2, 7).remainder(2).to(dtype)
    batched = torch.vmap(layout.pack)(values)
    assert_same_bits(batched.contiguous(), torch.stack([layout.pack(of_one) for of_one in values]))


def layouts(fast: Target) -> tuple[list[PackedSequenceLayout], PackedSequenceLayout]:
    """Three layouts of one shape, and the stack of them as one pytree."""
    tables = torch.tensor([[[3, 2], [1, -1000]], [[5, 2], [0, 3]], [[1, 6], [7, 0]]])
    single = [fast.packed_layout(table, None, (2, 7), 4, minimum_length=12) for table in tables]
    fields = zip(*(layout._tensors() for layout in single), strict=True)
    return single, PackedSequenceLayout(*map(torch.stack, fields), alignment=4)


@pytest.mark.parametrize("in_dims", [(0, 0), (0, None), (None, 0)])
def test_vmap_over_layouts_and_over_both(fast: Target, move: Any, in_dims: Any) -> None:
    """`(layouts, values)`: over both, over the layouts alone, over the values alone."""
    single, stacked = layouts(fast)
    assert {tuple(layout.source_indices.shape) for layout in single} == {(2, 12)}
    values = torch.randn(3, 2, 7 if move.name == "pack" else 12, 4)
    of_layouts, of_values = (dim == 0 for dim in in_dims)
    arguments = stacked if of_layouts else single[0], values if of_values else values[0]
    batched = torch.vmap(move.apply, in_dims=in_dims)(*arguments)
    for i in range(3):
        expected = move.formula(single[i if of_layouts else 0], values[i if of_values else 0])
        assert_same_bits(batched[i].contiguous(), expected)


def test_vmap_of_grad_over_both(fast: Target) -> None:
    single, stacked = layouts(fast)
    values = torch.randn(3, 2, 7, 4)

    def loss(values: torch.Tensor, layout: PackedSequenceLayout) -> torch.Tensor:
        return layout.restore(layout.pack(values).pow(2)).sin().sum()

    batched = torch.vmap(torch.func.grad(loss))(values, stacked)
    for gradient, of_one, layout in zip(batched, values, single, strict=True):
        torch.testing.assert_close(gradient, torch.func.grad(loss)(of_one, layout), rtol=1e-6, atol=1e-6)


def test_vmap_of_vmap(move: Any) -> None:
    values = torch.randn(2, 3, *move.taken, 2)
    batched = torch.vmap(torch.vmap(move))(values)
    expected = torch.stack([torch.stack([move.plainly(one) for one in some]) for some in values])
    assert_same_bits(batched.contiguous(), expected)


def test_transforms_meet_autograd_outside(move: Any) -> None:
    values = values_for(move, 2, copies=3).requires_grad_()
    batched = torch.vmap(move)(values).pow(2).sum()
    (gradient,) = torch.autograd.grad(batched, values)
    expected = torch.stack([move.plainly(of_one) for of_one in values]).pow(2).sum()
    assert_same_bits(gradient, torch.autograd.grad(expected, values)[0])


def test_tangents_without_gradients(move: Any) -> None:
    values, tangent = values_for(move, 2), values_for(move, 2)
    with torch.no_grad(), forward_ad.dual_level():
        moved = forward_ad.unpack_dual(move(forward_ad.make_dual(values, tangent))).tangent
    assert moved is not None
    with forward_ad.dual_level():
        expected = forward_ad.unpack_dual(move.plainly(forward_ad.make_dual(values, tangent))).tangent
    assert_same_bits(moved, expected)
