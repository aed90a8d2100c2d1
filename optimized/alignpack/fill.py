"""The fill rule: which number may stand at padding, and the bits that stand for it.

A fill must mean the same after conversion to the dtype. Integers stay exact; floats are rounded as `torch.full` rounds
them, and a finite number stays finite.
"""

import functools
import math
from typing import TypeAlias

import numpy as np
import torch

from alignpack.values import WORD_DTYPES
from alignpack.watchers import out_of_sight
from alignpack_reference import errors

Fill: TypeAlias = complex | np.number | np.bool_
"""A Python or NumPy number (to type checkers, `complex` includes float, int and bool)."""

_NO_INFINITY = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)


def as_number(fill: Fill, dtype: torch.dtype, name: str = "fill") -> complex:
    """The fill as a Python number that is real where the dtype is.

    Raises:
        TypeError: it is no number, or complex for a real dtype.
    """
    number: complex
    if type(fill) is int:  # the usual case, and quick
        return fill
    if isinstance(fill, np.longdouble | np.clongdouble):  # Python would turn large ones into infinity
        raise errors.fill_not_a_number(name, fill)
    # np.float64 is a float, too, but compares with integers after rounding them; so all become plain numbers.
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
    if type(fill) is int and fill == 0:  # the default; -0.0 is no int and keeps its sign below
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
    with out_of_sight():  # under fake tensors or a tracer, a tensor would have no values
        words: list[int] = torch.full((1,), fill, dtype=dtype, device="cpu").view(WORD_DTYPES[dtype]).tolist()
    return tuple(words)


def zero_words(dtype: torch.dtype) -> tuple[int, ...]:
    """The words of zero: all bits are zero in every dtype that is supported."""
    return (0, 0) if dtype == torch.complex128 else (0,)


@functools.lru_cache(1024)
def fill_pattern(words: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """The words, which make one element of so many bytes, again and again over 16 bytes, as two signed integers.

    All platforms that have kernels are little-endian.

    Example:
        >>> [hex(half) for half in fill_pattern((0x1234,), 2)]
        ['0x1234123412341234', '0x1234123412341234']
        >>> fill_pattern((-1, 5), 16)
        (-1, 5)
    """
    size = itemsize // len(words)
    first, second = (word.to_bytes(size, "little", signed=True) * (8 // size) for word in (words[0], words[-1]))
    return int.from_bytes(first, "little", signed=True), int.from_bytes(second, "little", signed=True)


def _integer_word(fill: complex, dtype: torch.dtype, name: str) -> int:
    info = torch.iinfo(dtype)
    # NaN and infinity fail the comparison, fractions the equation.
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
