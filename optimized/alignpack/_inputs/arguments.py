"""Checks of integers, values and fills. Each returns the checked form, or raises an error that names the argument."""

import math
import operator
import sys
from collections.abc import Mapping
from typing import SupportsIndex, TypeAlias

import numpy as np
import torch

from alignpack._inputs.words import WORD_DTYPES
from alignpack._torch_state import without_modes_and_transforms
from alignpack_reference import errors

Fill: TypeAlias = complex | np.number | np.bool_
"""A Python or NumPy number (to type checkers, `complex` includes float, int and bool)."""

_NO_INFINITY = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)


# --- integers ---------------------------------------------------------------------------------------------------------


def read_integer(name: str, value: SupportsIndex) -> int:
    """The value as an int; the error names the argument when it is not an integer."""
    # Reading a tensor on an accelerator would make the host wait, unnoticed.
    if isinstance(value, (bool, torch.Tensor)):
        raise errors.not_an_integer(name, value)
    try:
        return operator.index(value)
    except TypeError:
        raise errors.not_an_integer(name, value) from None


def integer_at_least(name: str, value: SupportsIndex, minimum: int) -> int:
    """The value as an int; the error names the argument when it is not an integer or too small."""
    integer = value if type(value) is int else read_integer(name, value)  # the usual case, fast
    if integer < minimum:
        raise errors.too_small(name, integer, minimum)
    return integer


# --- values -----------------------------------------------------------------------------------------------------------


def check_values(values: torch.Tensor, name: str) -> None:
    """Refuse anything but a plain tensor of a supported dtype; the error names the argument."""
    if not isinstance(values, torch.Tensor):
        raise errors.not_an_array(name, "torch.Tensor", values)
    if (kind := not_plain(values)) is not None:
        raise not_dense(name, kind)
    if values.dtype not in WORD_DTYPES:
        raise errors.unsupported_dtype(name, values.dtype)


def check_fit(values: torch.Tensor, like: torch.Tensor, name: str) -> None:
    """Refuse values that do not have the rows, the slots and the device of the map `like`."""
    if values.shape[:2] != like.shape:
        raise errors.bad_values_shape(name, tuple(values.shape), tuple(like.shape))
    if values.device != like.device:
        raise ValueError(f"{name} must be on the device of the layout, {like.device}, got {values.device}")


def not_dense(name: str, kind: str) -> TypeError:
    """The error for a tensor of another kind, which `kind` describes."""
    return TypeError(f"{name} must be a plain dense tensor, got {kind}")


def not_plain(tensor: torch.Tensor) -> str | None:
    """The kind of a tensor that is not one strided block of memory."""
    ordinary = type(tensor) is torch.Tensor
    if not ordinary and isinstance(tensor, loaded_class("torch.masked.maskedtensor.core", "MaskedTensor")):
        return "a MaskedTensor; pack .get_data() and .get_mask()"  # it answers none of the questions below
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {tensor.layout}"
    if not ordinary and isinstance(tensor, loaded_class("torch.distributed.tensor", "DTensor")):
        return "a DTensor; use the local tensor, .to_local()"
    return None


FAKE = "a fake tensor, which holds no values"
"""What `not_dense` says of a tensor that `is_fake`."""


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether it is a tracer's stand-in for a tensor, which holds no values."""
    fake = loaded_class("torch._subclasses.fake_tensor", "FakeTensor")
    return type(tensor) is not torch.Tensor and isinstance(tensor, fake)


def loaded_class(module: str, name: str) -> type | tuple[()]:
    """A class of a module that is slow to import. Until it is imported, nothing is an instance of the class."""
    found: type | tuple[()] = getattr(sys.modules.get(module), name, ())
    return found


def check_mapping(batch: object) -> None:
    """Refuse a batch that is not a mapping."""
    if not isinstance(batch, Mapping):
        raise TypeError(f"batch must be a mapping from names to tensors, got {type(batch).__name__}")


# --- fills ------------------------------------------------------------------------------------------------------------

# A fill must mean the same after conversion to the dtype. Integers stay exact; floats are rounded as `torch.full` rounds
# them, and a finite number stays finite.


def as_number(fill: Fill, dtype: torch.dtype, name: str = "fill") -> complex:
    """The fill as a Python number that is real where the dtype is."""
    number: complex
    if type(fill) is int:  # the usual case, fast
        return fill
    if isinstance(fill, (np.longdouble, np.clongdouble)):  # Python would turn large ones into infinity
        raise errors.fill_not_a_number(name, fill)
    # np.float64 is a float too, but rounds integers before comparing with them; so all become plain numbers.
    match fill:
        case bool() | np.bool_():
            number = bool(fill)
        case int() | np.integer():
            number = int(fill)
        case float() | np.floating():
            number = float(fill)
        case complex() | np.complexfloating():
            number = complex(fill)
        case _:
            raise errors.fill_not_a_number(name, fill)
    if isinstance(number, complex) and not dtype.is_complex:
        raise errors.fill_not_real(name, number, dtype)
    return number


def fill_words(fill: complex, dtype: torch.dtype, name: str = "fill") -> tuple[int, ...]:
    """The integers of `WORD_DTYPES[dtype]` whose bits are the fill: two for complex128, one for any other dtype.

    Raises:
        ValueError: the dtype cannot hold the fill.

    Example:
        >>> fill_words(-100, torch.int64)
        (-100,)
        >>> fill_words(-0.0, torch.bfloat16)
        (-32768,)
        >>> fill_words(2**64 - 1, torch.uint64)
        (-1,)
    """
    if type(fill) is int and fill == 0:  # the default; -0.0 is a float and keeps its sign below
        return zero_words(dtype)
    if dtype == torch.bool:
        if fill not in (0, 1):
            raise errors.fill_not_boolean(name, fill)
        return (int(fill == 1),)
    if not (dtype.is_floating_point or dtype.is_complex):
        return (_integer_word(fill, dtype, name),)
    _check_float(fill, dtype, name)
    if isinstance(fill, int) and not -(2**63) <= fill < 2**64:
        fill = float(fill)  # torch.full takes no larger integers
    with without_modes_and_transforms():  # under fake tensors or a tracer, a tensor would have no values
        words: list[int] = torch.full((1,), fill, dtype=dtype, device="cpu").view(WORD_DTYPES[dtype]).tolist()
    return tuple(words)


def zero_words(dtype: torch.dtype) -> tuple[int, ...]:
    """The words of zero: in every supported dtype, all bits are zero."""
    return (0, 0) if dtype == torch.complex128 else (0,)


def _integer_word(fill: complex, dtype: torch.dtype, name: str) -> int:
    info = torch.iinfo(dtype)
    # NaN and infinity fail the comparison, fractions the equality.
    if isinstance(fill, complex) or not (info.min <= fill <= info.max and fill == int(fill)):
        raise errors.fill_not_in_integers(name, fill, dtype, info.min, info.max)
    value = int(fill)
    return value if value < 2 ** (info.bits - 1) else value - 2**info.bits


def _check_float(fill: complex, dtype: torch.dtype, name: str) -> None:
    info = torch.finfo(dtype)
    for part in (fill.real, fill.imag):
        infinite = abs(part) == math.inf
        if (infinite and dtype in _NO_INFINITY) or (abs(part) > info.max and not infinite):
            raise errors.fill_not_in_floats(name, fill, dtype, info.max, dtype not in _NO_INFINITY)
