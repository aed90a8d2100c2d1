"""Gradients through `pack` and `restore`: every order, every odd upstream, every mode of torch that meets them."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch.autograd import forward_ad

from alignpack import PackedSequenceLayout
from alignpack_fuzz.compare import assert_same_bits
from alignpack_fuzz.targets import Target

Move = Callable[[torch.Tensor], torch.Tensor]


@pytest.fixture
def layout(fast: Target) -> PackedSequenceLayout:
    built: PackedSequenceLayout = fast.packed_layout(
        torch.tensor([[3, 2], [1, -1000]]), torch.tensor([[4, 2], [5, 0]]), (2, 7), 4
    )
    return built


@pytest.fixture(params=["pack", "restore"])
def move(request: pytest.FixtureRequest, layout: PackedSequenceLayout) -> tuple[Move, torch.Size, torch.Size]:
    """A move and the leading shapes of what it takes and gives."""
    input_shape, packed_shape = layout.input_positions.shape, layout.source_indices.shape
    if request.param == "pack":
        return layout.pack, input_shape, packed_shape
    return layout.restore, packed_shape, input_shape


@pytest.mark.parametrize("trailing", [(), (2, 1)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_gradcheck(move: tuple[Move, torch.Size, torch.Size], trailing: tuple[int, ...], dtype: torch.dtype) -> None:
    function, taken, _ = move
    values = torch.randn(*taken, *trailing, dtype=dtype, requires_grad=True)
    assert torch.autograd.gradcheck(function, values, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda values: function(values).pow(2), values, check_fwd_over_rev=True)


def test_fill_has_no_gradient(layout: PackedSequenceLayout) -> None:
    values = torch.ones(2, 7, requires_grad=True)
    layout.pack(values, math.inf).nan_to_num(posinf=0.0).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [[1, 1, 1, 0, 1, 1, 0], [1, 0, 0, 0, 0, 0, 0]]


@pytest.mark.parametrize("kind", ["dense", "expanded", "transposed", "sliced", "nan at padding"])
@pytest.mark.parametrize("trailing", [(), (5,)])
def test_odd_upstream_gradients(
    move: tuple[Move, torch.Size, torch.Size], layout: PackedSequenceLayout, kind: str, trailing: tuple[int, ...]
) -> None:
    function, taken, given = move
    values = torch.zeros(*taken, *trailing, requires_grad=True)
    dense = torch.arange(1.0, 1 + math.prod((*given, *trailing))).reshape(*given, *trailing)
    padding = layout.source_indices == -1 if given == layout.source_indices.shape else layout.input_positions == -1
    upstream = {
        "dense": dense,
        "expanded": torch.ones(()).expand(dense.shape),
        "transposed": dense.transpose(0, 1).contiguous().transpose(0, 1),
        "sliced": dense.repeat_interleave(2, 1)[:, ::2],
        "nan at padding": dense.masked_fill(padding.view(*padding.shape, *[1] * len(trailing)), math.nan),
    }[kind]
    (gradient,) = torch.autograd.grad(function(values), values, upstream)
    inverse = layout.restore if function == layout.pack else layout.pack
    assert_same_bits(gradient, inverse(upstream.nan_to_num().contiguous()))


def test_forward_mode(move: tuple[Move, torch.Size, torch.Size]) -> None:
    function, taken, _ = move
    values, tangent = torch.randn(*taken, 3), torch.randn(*taken, 3)
    with forward_ad.dual_level():
        result = function(forward_ad.make_dual(values, tangent))
        primal, moved = forward_ad.unpack_dual(result)
    assert_same_bits(primal, function(values))
    assert moved is not None
    assert_same_bits(moved, function(tangent))


def test_tangents_can_be_differentiated(move: tuple[Move, torch.Size, torch.Size]) -> None:
    function, taken, given = move
    tangent, upstream = torch.randn(*taken, 3, requires_grad=True), torch.randn(*given, 3)
    with forward_ad.dual_level():
        moved = forward_ad.unpack_dual(function(forward_ad.make_dual(torch.ones(*taken, 3), tangent))).tangent
        assert moved is not None
        (gradient,) = torch.autograd.grad(moved, tangent, upstream)
    values = torch.ones(*taken, 3, requires_grad=True)
    assert_same_bits(gradient, torch.autograd.grad(function(values), values, upstream)[0])


def test_forward_mode_of_the_fill_is_zero(layout: PackedSequenceLayout) -> None:
    values = torch.ones(2, 7)
    with forward_ad.dual_level():
        moved = forward_ad.unpack_dual(layout.pack(forward_ad.make_dual(values, values), -100)).tangent
    assert moved is not None
    assert_same_bits(moved, layout.pack(values))


def test_integers_and_constants_have_no_gradient(layout: PackedSequenceLayout) -> None:
    assert not layout.pack(torch.zeros(2, 7)).requires_grad
    assert not layout.pack(torch.zeros(2, 7, dtype=torch.int64)).requires_grad
    with torch.no_grad():
        assert not layout.pack(torch.zeros(2, 7, requires_grad=True)).requires_grad


@pytest.mark.parametrize("trailing", [(), (1,), (5,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex128])
def test_results_may_be_changed_in_place(
    move: tuple[Move, torch.Size, torch.Size], trailing: tuple[int, ...], dtype: torch.dtype
) -> None:
    function, taken, given = move
    values = torch.ones(*taken, *trailing, dtype=dtype, requires_grad=True)
    moved = function(values)
    assert moved._base is None
    moved.mul_(2)[:, 0] = 0
    upstream = torch.ones(*given, *trailing, dtype=dtype)
    (gradient,) = torch.autograd.grad(moved, values, upstream)
    upstream[:, 0] = 0
    (expected,) = torch.autograd.grad(function(values), values, 2 * upstream)
    assert_same_bits(gradient, expected)


def test_gradients_repeat_bit_for_bit(move: tuple[Move, torch.Size, torch.Size]) -> None:
    function, taken, given = move
    torch.use_deterministic_algorithms(True)
    try:
        values, upstream = torch.randn(*taken, 17, requires_grad=True), torch.randn(*given, 17)
        first, second = (torch.autograd.grad(function(values), values, upstream)[0] for _ in range(2))
    finally:
        torch.use_deterministic_algorithms(False)
    assert_same_bits(first, second)


@pytest.mark.parametrize("place", ["built", "rebuilt", "rebuilt in part", "moved", "sharded", "sliced"])
def test_a_layout_made_under_inference_mode_can_be_trained_with(fast: Target, place: str) -> None:
    def build() -> PackedSequenceLayout:
        built: PackedSequenceLayout = fast.packed_layout(torch.tensor([[3]]), None, (1, 3), 4)
        return built

    outside = build()
    with torch.inference_mode():
        makers: dict[str, Callable[[], PackedSequenceLayout]] = {
            "built": build,
            "rebuilt": lambda: PackedSequenceLayout(*(tensor.clone() for tensor in outside._tensors()), alignment=4),
            "rebuilt in part": lambda: replace(outside, input_positions=outside.input_positions.clone()),
            "moved": lambda: outside.to("cpu"),
            "sharded": lambda: outside.shard(0, 1),
            "sliced": lambda: outside[::1],
        }
        layout = makers[place]()
        if "rebuilt" not in place:  # what the library makes needs no copy later
            assert not any(tensor.is_inference() for tensor in layout._tensors())
        assert layout.pack(torch.ones(1, 3)).tolist() == [[1, 1, 1, 0]]
    values = torch.ones(1, 3, requires_grad=True)
    layout.pack(values).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [[1, 1, 1]]


def test_only_the_maps_are_saved(layout: PackedSequenceLayout) -> None:
    saved: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        layout.pack(torch.zeros(2, 7, 64, requires_grad=True))
    pointers = {tensor.data_ptr() for tensor in saved}
    assert pointers == {layout.source_indices.data_ptr(), layout.input_positions.data_ptr()}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.complex64])
def test_every_differentiable_dtype(layout: PackedSequenceLayout, dtype: torch.dtype) -> None:
    values = torch.ones(2, 7, 2).to(dtype).requires_grad_()
    packed = layout.pack(values)
    upstream = torch.ones(packed.shape).to(dtype)
    (gradient,) = torch.autograd.grad(packed, values, upstream)
    assert gradient.dtype == dtype
    assert_same_bits(gradient, layout.restore(upstream))


def test_conjugated_and_negated_views(layout: PackedSequenceLayout) -> None:
    values = torch.randn(2, 7, 3, dtype=torch.complex64)
    for view in (values.conj(), values.conj().imag, torch._neg_view(values.real)):
        assert view.is_conj() or view.is_neg()
        assert_same_bits(layout.pack(view), layout.pack(view.resolve_conj().resolve_neg().clone()))
