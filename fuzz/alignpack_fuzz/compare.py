"""Exact comparison: bits, not values, so that NaN equals itself and -0.0 does not equal 0.0."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

FIELDS = ("source_indices", "input_positions", "position_ids", "sequence_ids")

GROUP_FIELDS = ("sequence_ids", "position_ids", "complete", "first", "visible_start", "visible_end")


def assert_same_bits(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Fail unless both tensors have the same dtype, shape, device and bits; name the first place that differs.

    Example:
        >>> assert_same_bits(torch.tensor([0.0, float("nan")]), torch.tensor([0.0, float("nan")]))
        >>> assert_same_bits(torch.tensor([1.0, 0.0]), torch.tensor([1.0, -0.0]))
        Traceback (most recent call last):
            ...
        AssertionError: first difference at [1]: 0.0 is not -0.0
    """
    for fact in ("dtype", "shape", "device"):
        got, wanted = getattr(actual, fact), getattr(expected, fact)
        assert got == wanted, f"{fact} {got} is not {wanted}"
    differs = (bytes_of(actual) != bytes_of(expected)).any(dim=-1)
    if differs.any():
        place = differs.nonzero()[0].tolist()
        got, wanted = actual[tuple(place)].item(), expected[tuple(place)].item()
        raise AssertionError(f"first difference at {place}: {got!r} is not {wanted!r}")


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """`[...]` of any dtype as `[..., itemsize]` uint8."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if plain.dtype.is_complex and plain.dtype.itemsize == 16:
        return torch.view_as_real(plain).contiguous().unsqueeze(-1).view(torch.uint8).flatten(-2)
    return plain.unsqueeze(-1).view(torch.uint8)


def bytes_of_storage(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of the memory that a tensor lives in."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


def assert_same_fields(actual: Any, expected: Any) -> None:
    """Fail unless the four fields of two layouts are the same."""
    for name in FIELDS:
        with named(name):
            assert_same_bits(getattr(actual, name), getattr(expected, name))


def assert_same_layout(actual: Any, expected: Any) -> None:
    """Fail unless fields, padding mask and integers are the same, and the fields contiguous."""
    assert_same_fields(actual, expected)
    for name in ("padding_mask", "token_counts"):
        with named(name):
            assert_same_bits(getattr(actual, name), getattr(expected, name))
    for name in FIELDS:
        assert getattr(actual, name).is_contiguous(), f"{name} is not contiguous"
    for name in ("alignment", "offset", "row_length"):
        got, wanted = getattr(actual, name), getattr(expected, name)
        assert got == wanted, f"{name} {got} is not {wanted}"


def assert_same_groups(actual: Any, expected: Any) -> None:
    """Fail unless two compression groups are the same in all fields, and the actual ones contiguous."""
    assert actual.ratio == expected.ratio, f"ratio {actual.ratio} is not {expected.ratio}"
    for name in GROUP_FIELDS:
        with named(name):
            assert_same_bits(getattr(actual, name), getattr(expected, name))
            assert getattr(actual, name).is_contiguous(), "not contiguous"


@contextmanager
def named(name: str) -> Iterator[None]:
    """Put a name in front of what fails inside."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{name}: {error}") from None


def outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    """What the call gives, or the TypeError or ValueError with which it refuses."""
    try:
        return call(*arguments)
    except (TypeError, ValueError) as error:
        return error


def described(result: Any) -> tuple[Any, ...] | str:
    """An error as class, text, row and document; anything else as "not an error"."""
    if isinstance(result, Exception):
        return type(result), str(result), getattr(result, "row", None), getattr(result, "document", None)
    return "no error"
