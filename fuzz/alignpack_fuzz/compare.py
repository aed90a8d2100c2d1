"""Exact comparison: bits, not values, so that NaN equals itself and -0.0 does not equal 0.0."""

import torch


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
