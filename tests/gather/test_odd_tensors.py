"""Tensors without plain dense storage, and calls from inside the modes that replace tensors."""

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from alignpack import PackedSequenceLayout
from alignpack_fuzz.compare import assert_same_bits
from alignpack_fuzz.targets import Target


class Traced(torch.Tensor):
    """A subclass that sees every operation and holds its memory elsewhere."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "Traced":  # noqa: PYI034, D102 - as PyTorch has them
        traced: Traced = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
        traced.held = inner
        return traced

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run on what is inside."""
        inner = [arg.held if isinstance(arg, cls) else arg for arg in args]
        return cls(func(*inner, **(kwargs or {})))


def test_tensors_that_hold_their_memory_elsewhere(move: Any) -> None:
    values = torch.randn(*move.taken, 3)
    moved = move(Traced(values))
    assert isinstance(moved, Traced)
    assert_same_bits(moved.held, move(values))
    maps = (Traced(field) for field in move.layout._tensors())
    moved = move.apply(PackedSequenceLayout(*maps), values)
    assert isinstance(moved, Traced)
    assert_same_bits(moved.held, move(values))


def test_values_without_memory(move: Any) -> None:
    zeros = torch._efficientzerotensor((*move.taken, 3))
    assert_same_bits(move(zeros), move(torch.zeros(*move.taken, 3)))


@pytest.mark.parametrize("transform", ["grad", "jvp"])
@pytest.mark.parametrize("watched", [True, False])
def test_wrappers_that_outlive_their_transform(move: Any, transform: str, watched: bool) -> None:
    kept: list[torch.Tensor] = []

    def loss(values: torch.Tensor) -> torch.Tensor:
        kept.append(values)
        return values.sum()

    values = torch.randn(*move.taken, 3)
    if transform == "grad":
        torch.func.grad(loss)(values)
    else:
        torch.func.jvp(loss, (values,), (values,))
    with torch.set_grad_enabled(watched):
        assert_same_bits(move(kept[0]) * 1, move(values))


def test_batched_gradients_that_are_differentiated_again(move: Any) -> None:
    values = torch.randn(*move.taken, 2, dtype=torch.float64, requires_grad=True)

    def second(function: Any, vectorize: bool) -> torch.Tensor:
        def sums(values: torch.Tensor) -> torch.Tensor:
            total: torch.Tensor = (function(values).pow(3).sum() + values.pow(3).sum()).view(1)
            return total

        jacobian: Any = torch.autograd.functional.jacobian(sums, values, vectorize=vectorize, create_graph=True)
        return torch.autograd.grad(jacobian.sum(), values)[0]

    torch.testing.assert_close(second(move, vectorize=True), second(move.plainly, vectorize=False))


@pytest.mark.parametrize("place", ["func.grad", "func.jvp", "functionalize", "make_fx", "fake"])
def test_a_layout_is_built_from_numbers_wherever_it_is_built(fast: Target, place: str) -> None:
    lengths = torch.tensor([[3, 2]])
    expected = fast.packed_layout(lengths, None, (1, 5), 4)
    built: list[PackedSequenceLayout] = []

    def packed(values: torch.Tensor) -> torch.Tensor:
        built.append(fast.packed_layout(lengths, None, (1, 5), 4))
        if place.startswith("func."):  # elsewhere a new tensor has no numbers
            built.append(fast.packed_layout(torch.tensor([[3, 2]]), torch.tensor([[3, 2]]), (1, 5), 4))
        return values.sum()

    values = torch.ones(1, 5)
    if place == "func.grad":
        torch.func.grad(packed)(values)
    elif place == "func.jvp":
        torch.func.jvp(packed, (values,), (values,))
    elif place == "functionalize":
        torch.func.functionalize(packed)(values)
    elif place == "make_fx":
        make_fx(packed)(values)
    else:
        with FakeTensorMode(allow_non_fake_inputs=True):
            packed(torch.ones(1, 5))
    assert all(layout.equal(expected) for layout in built)


def test_tables_may_be_arguments_of_nested_derivatives(fast: Target) -> None:
    def total(values: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed: torch.Tensor = fast.packed_layout(lengths, lengths, (1, 5), 4).pack(values)
        return packed.pow(3).sum()

    values = torch.arange(5.0).view(1, 5)
    gradient = torch.func.grad(lambda *both: torch.func.grad(total)(*both).sum())(values, torch.tensor([[3, 2]]))
    assert_same_bits(gradient, 6 * values)


def test_batched_tables_are_refused(fast: Target) -> None:
    with pytest.raises(TypeError, match=r"^seq_lens must be .*torch\.func batches or replaces"):
        torch.vmap(lambda lengths: fast.packed_layout(lengths, None, (1, 5), 4).source_indices)(
            torch.ones(3, 1, 2).int()
        )


def test_tables_that_hold_their_memory_elsewhere_are_refused(fast: Target) -> None:
    lengths = torch.tensor([[3, 2]])
    for tables in ((Traced(lengths), None), (lengths, Traced(lengths))):
        with pytest.raises(TypeError, match=r"got a Traced, a subclass that may hold its values elsewhere$"):
            fast.packed_layout(*tables, (1, 5), 4)


def test_tables_of_a_subclass_make_plain_layouts(fast: Target) -> None:
    class Named(torch.Tensor):
        """It changes nothing."""

    lengths = torch.tensor([[3, 2]])
    layout = fast.packed_layout(lengths.as_subclass(Named), None, (1, 5), 4)
    assert {type(field) for field in layout._tensors()} == {torch.Tensor}
    assert layout.equal(fast.packed_layout(lengths, None, (1, 5), 4))


class Waiting(Traced):
    """What collectives give: any operation waits, and gives a plain tensor."""

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run on what is inside."""
        return func(*[arg.held if isinstance(arg, cls) else arg for arg in args], **(kwargs or {}))


def test_tables_that_are_still_on_their_way_are_waited_for(fast: Target) -> None:
    lengths = torch.tensor([[3, 2]])
    assert fast.packed_layout(Waiting(lengths), None, (1, 5), 4).equal(fast.packed_layout(lengths, None, (1, 5), 4))


def test_another_default_device_changes_nothing(fast: Target) -> None:
    def everything() -> list[torch.Tensor]:
        layout = fast.packed_layout(torch.tensor([[3, 2]], device="cpu"), None, (1, 5), 4)
        values = torch.arange(5.0, device="cpu").view(1, 5).requires_grad_()
        packed = layout.pack(values, 0.5)
        (gradient,) = torch.autograd.grad(packed.sum(), values)
        derived = layout.groups(2)._tensors() + layout.shift(1)._tensors() + layout.shard(0, 2)._tensors()
        return [*layout._tensors(), packed.detach(), gradient, layout.token_counts, *derived]

    expected = everything()
    with torch.device("meta"):
        actual = everything()
    for mine, wanted in zip(actual, expected, strict=True):
        assert_same_bits(mine, wanted)


def test_empty_batches(fast: Target) -> None:
    layout = fast.packed_layout(torch.empty(0, 2, dtype=torch.int64), None, (0, 5), 4)
    values = torch.zeros(0, 5, 2)
    assert torch.vmap(layout.pack, in_dims=2, out_dims=2)(values).shape == (0, 4, 2)
    none = PackedSequenceLayout(*(torch.zeros(0, 1, width, dtype=torch.int64) for width in (4, 5, 4, 4)))
    assert torch.vmap(lambda layout, values: layout.pack(values))(none, torch.zeros(0, 1, 5)).shape == (0, 1, 4)
