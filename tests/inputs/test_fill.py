"""The fill rule: what a fill may be, and which bits it becomes."""

from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from alignpack._inputs.arguments import fill_words
from alignpack._inputs.words import WORD_DTYPES
from alignpack_fuzz import strategies
from alignpack_fuzz.compare import assert_same_bits
from alignpack_fuzz.targets import Target


def packed_fill(target: Target, fill: Any, dtype: torch.dtype) -> torch.Tensor:
    """The one slot of padding of a packed row."""
    layout = target.packed_layout(torch.tensor([[1]]), None, (1, 1), 2)
    packed: torch.Tensor = layout.pack(torch.zeros(1, 1, dtype=dtype), fill)
    return packed[:, 1]


@pytest.mark.parametrize(
    ("fill", "dtype", "bits"),
    [
        (-100, torch.int64, -100),
        (2**64 - 1, torch.uint64, -1),
        (2**63, torch.uint64, -(2**63)),
        (255, torch.uint8, -1),
        (-100, torch.bfloat16, 0xC2C8 - 2**16),
        (-0.0, torch.float32, -(2**31)),
        (0.0, torch.float32, 0),
        (0, torch.float32, 0),
        (-0.0, torch.float8_e4m3fn, 0x80 - 2**8),
        (-0.0, torch.float8_e4m3fnuz, 0),  # this format has one zero only
        (True, torch.bool, 1),
        (1.0, torch.bool, 1),
        (-0.0, torch.bool, 0),
        (float("nan"), torch.float8_e4m3fn, 0x7F),
        (float("inf"), torch.float8_e5m2, 0x7C),
        (448, torch.float8_e4m3fn, 0x7E),
        (2**64, torch.float32, 0x5F800000),
        (-(2**63) - 1, torch.float32, 0x5F000000 - 2**31),
        (2**60 + 2**36 + 1, torch.float32, 0x5D800001),  # rounded once: through a double it would be even
        (-(2**60) - 2**36 - 1, torch.float32, 0x5D800001 - 2**31),
        (1 + 2**-11 + 2**-40, torch.float16, 0x3C00),  # through float32, so rounded twice
    ],
)
def test_bits(fast: Target, fill: Any, dtype: torch.dtype, bits: int) -> None:
    assert packed_fill(fast, fill, dtype).view(WORD_DTYPES[dtype]).tolist() == [bits]


def test_a_default_device_moves_no_fill() -> None:
    with torch.device("meta"):
        assert fill_words(0.5, torch.float32) == (0x3F000000,)


def test_complex_bits() -> None:
    assert fill_words(complex(1.0, -0.0), torch.complex128) == (0x3FF0 << 48, -(2**63))
    assert fill_words(complex(-0.0, 1.0), torch.complex64) == ((0x3F800000 << 32) + 2**31,)
    assert fill_words(0, torch.complex128) == (0, 0)


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        *((dtype, fill) for dtype in (torch.float8_e4m3fn, torch.float8_e4m3fnuz) for fill in (float("inf"), 449)),
        (torch.float8_e5m2fnuz, -float("inf")),
        (torch.float8_e5m2, 57345),
        (torch.bfloat16, 3.4e38),
        (torch.complex64, 1e39j),
    ],
)
def test_what_the_dtype_lacks_is_refused(fast: Target, dtype: torch.dtype, fill: Any) -> None:
    with pytest.raises(ValueError, match=r"^fill must be .*torch.finfo\(values.dtype\).min and .max are the limits"):
        packed_fill(fast, fill, dtype)


@given(data=st.data(), dtype=st.sampled_from([dtype for dtype in strategies.DTYPES if dtype.is_floating_point]))
@example(data=None, dtype=torch.float16)
def test_floats_are_rounded_as_torch_full_rounds(fast: Target, data: Any, dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    fill = 1 + 2**-11 + 2**-40 if data is None else data.draw(st.floats(-largest, largest), label="fill")
    assert_same_bits(packed_fill(fast, fill, dtype), torch.full((1,), fill, dtype=dtype))
