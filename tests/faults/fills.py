"""Deliberate faults in which values and fills are refused, and in what fills are rounded to."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tests.faults.wrapping import Call, wrong_move

# --- values that should be refused ---------------------------------------------------------------------------------------


@wrong_move("strict", "wrong_values_are_refused")
def one_row_of_values_for_all(call: Call) -> torch.Tensor:
    """Values of one row are broadcast over the batch."""
    values, rows = call.values, call.inverse.shape[0]
    fits = isinstance(values, torch.Tensor) and values.ndim > 1 and values.shape[0] == 1 and rows > 1
    return call.right(values.expand(rows, *values.shape[1:]) if fits else values)


@wrong_move("strict", "wrong_values_are_refused")
def one_slot_of_values_for_all(call: Call) -> torch.Tensor:
    """Values of one slot are broadcast over the row."""
    values, slots = call.values, call.inverse.shape[1]
    fits = isinstance(values, torch.Tensor) and values.ndim > 1 and values.shape[1] == 1 and slots > 1
    return call.right(values.expand(-1, slots, *values.shape[2:]) if fits else values)


@wrong_move("strict", "wrong_values_are_refused")
def surplus_slots_are_cut(call: Call) -> torch.Tensor:
    """Values with more slots than the layout lose the rest."""
    values = call.values
    fits = isinstance(values, torch.Tensor) and values.ndim > 1
    return call.right(values[:, : call.inverse.shape[1]] if fits else values)


@wrong_move("strict", "wrong_values_are_refused")
def surplus_rows_are_cut(call: Call) -> torch.Tensor:
    """Values with more rows than the layout lose the rest."""
    values = call.values
    fits = isinstance(values, torch.Tensor) and values.ndim > 1
    return call.right(values[: call.inverse.shape[0]] if fits else values)


@wrong_move("strict", "wrong_values_are_refused")
def restore_takes_longer_rows(call: Call) -> torch.Tensor:
    """`restore` reads the front of values that are wider than the packed row; `pack` refuses them."""
    fits = call.name == "restore" and isinstance(call.values, torch.Tensor) and call.values.ndim > 1
    return call.right(call.values[:, : call.inverse.shape[1]] if fits else call.values)


@wrong_move("strict", "wrong_values_are_refused")
def lists_are_converted(call: Call) -> torch.Tensor:
    """Lists of numbers are turned into tensors."""
    return call.right(torch.tensor(call.values) if isinstance(call.values, list) else call.values)


@wrong_move("strict", "wrong_values_are_refused")
def other_devices_are_copied(call: Call) -> torch.Tensor:
    """Values of another device are brought to the layout's, unasked."""
    values = call.values
    if isinstance(values, torch.Tensor) and values.device.type == "meta":
        values = torch.zeros(values.shape, dtype=values.dtype)
    return call.right(values)


@wrong_move("strict", "wrong_values_are_refused")
def unknown_dtype_is_a_value_error(call: Call) -> torch.Tensor:
    """A dtype outside the contract is refused with a ValueError instead of a TypeError."""
    if not isinstance(call.values, torch.Tensor):
        return call.right()
    try:
        return call.right()
    except TypeError as error:
        raise ValueError(str(error)) from None


# --- fills that should be refused, or rounded otherwise ------------------------------------------------------------------


def with_fill(call: Call, fill: Any) -> torch.Tensor:
    """What another fill gives."""
    return replace(call, fill=fill).right()


@wrong_move("strict", "fills_are_exact_or_refused")
def fractions_are_cut(call: Call) -> torch.Tensor:
    """A fraction as the fill of an integer dtype is cut to the integer below."""
    whole = not (call.values.is_floating_point() or call.values.is_complex())
    cut = whole and isinstance(call.fill, float) and math.isfinite(call.fill)
    return with_fill(call, int(call.fill) if cut else call.fill)


@wrong_move("strict", "fills_are_exact_or_refused")
def integers_wrap(call: Call) -> torch.Tensor:
    """A fill out of an integer dtype's range is taken modulo its size."""
    dtype = call.values.dtype
    if dtype == torch.bool or dtype.is_floating_point or dtype.is_complex or type(call.fill) is not int:
        return call.right()
    return with_fill(call, (call.fill - torch.iinfo(dtype).min) % 2 ** torch.iinfo(dtype).bits + torch.iinfo(dtype).min)


@wrong_move("strict", "fills_are_exact_or_refused")
def any_number_is_true(call: Call) -> torch.Tensor:
    """For bool, every fill but 0 is True."""
    return with_fill(
        call, bool(call.fill) if call.values.dtype == torch.bool and isinstance(call.fill, float | int) else call.fill
    )


@wrong_move("strict", "fills_are_exact_or_refused")
def large_fills_become_infinite(call: Call) -> torch.Tensor:
    """A finite fill beyond a float dtype's largest becomes infinity."""
    dtype, fill = call.values.dtype, call.fill
    if dtype.is_floating_point and isinstance(fill, float) and abs(fill) > torch.finfo(dtype).max:
        fill = math.copysign(math.inf, fill)
    return with_fill(call, fill)


@wrong_move("strict", "fills_are_exact_or_refused")
def negative_zero_fill_lost(call: Call) -> torch.Tensor:
    """A quick path for a fill that equals 0 takes -0.0, too."""
    return with_fill(call, 0 if isinstance(call.fill, float) and call.fill == 0 else call.fill)


@wrong_move("strict", "fills_are_exact_or_refused")
def fills_rounded_twice(call: Call) -> torch.Tensor:
    """A fill for float16 is rounded to float32 on its way, and so rounded twice."""
    if call.values.dtype != torch.float16 or not isinstance(call.fill, float):
        return call.right()
    single = torch.tensor(float(call.fill), dtype=torch.float64).float()
    return with_fill(call, single.item() if bool(single.isfinite()) else call.fill)


@wrong_move("strict", "fills_are_exact_or_refused")
def large_unsigned_fills_overflow(call: Call) -> torch.Tensor:
    """Fills of uint64 from 2**63 on do not fit the signed integer that they pass through."""
    if call.values.dtype == torch.uint64 and isinstance(call.fill, int) and 2**63 <= call.fill < 2**64:
        raise OverflowError("the fill does not fit int64")
    return call.right()


@wrong_move("strict", "fills_are_exact_or_refused")
def numpy_fills_compared_as_floats(call: Call) -> torch.Tensor:
    """A NumPy float is compared with an integer limit after rounding the limit, so that 2**63 passes for int64."""
    edge = isinstance(call.fill, np.float64) and call.values.dtype == torch.int64 and float(call.fill) == 2.0**63
    return with_fill(call, 2**63 - 1 if edge else call.fill)


@wrong_move("strict", "fills_are_exact_or_refused")
def tensor_fills_are_read(call: Call) -> torch.Tensor:
    """A 0-dim tensor passes for a number, which makes the host wait for an accelerator."""
    return with_fill(call, call.fill.item() if isinstance(call.fill, torch.Tensor) else call.fill)
