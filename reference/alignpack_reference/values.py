"""How values move: `pack`, `restore`, their adjoints, and what a fill may be.

Values are copied bit for bit: NaN payloads and -0.0 arrive as they left. NumPy has no bfloat16 and no float8;
such data can be packed here as the unsigned integers of its bits.
"""

from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from alignpack_reference import errors

Array: TypeAlias = NDArray[Any]
Fill: TypeAlias = complex | np.number | np.bool_
"""A Python or NumPy number (to type checkers, `complex` includes float, int and bool)."""


class IndexMaps(Protocol):
    """The two fields of a `PackedSequenceLayout` that say where values go."""

    @property
    def source_indices(self) -> NDArray[np.int64]:
        """`[batch, padded_sequence]`, the input column of each packed slot; -1 at padding."""

    @property
    def input_positions(self) -> NDArray[np.int64]:
        """`[batch, original_sequence]`, the packed column of each input slot; -1 at padding."""


DTYPES = tuple(
    np.dtype(scalar)
    for scalar in (
        *(np.bool_, np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64),
        *(np.float16, np.float32, np.float64, np.complex64, np.complex128),
    )
)
"""Every dtype that moves."""


def pack(layout: IndexMaps, values: Array, fill: Fill = 0) -> Array:
    """Carry values into the packed rows.

    Args:
        layout: the layout.
        values: `[batch, original_sequence, ...]`, any strides.
        fill: the value at padding; see `fill_value` for what a dtype takes.

    Returns:
        `[batch, padded_sequence, ...]`, a new contiguous array of the same dtype.

    Raises:
        TypeError: `values` is not an array of a supported dtype, or the fill is not a number.
        ValueError: `values` does not fit the layout, or the fill does not fit the dtype.

    Example:
        >>> from alignpack_reference import packed_layout
        >>> layout = packed_layout(np.array([[3, 2]]), np.array([[4, 4]]), (1, 8), 4)
        >>> pack(layout, np.array([[10, 11, 12, 99, 20, 21, 98, 97]]), fill=-100)
        array([[  10,   11,   12, -100,   20,   21, -100, -100]])
    """
    _check_dtype(values)
    number = _number(fill, values.dtype)
    _check_shape(values, layout.input_positions.shape)
    batch, padded_sequence = layout.source_indices.shape
    packed = np.full((batch, padded_sequence, *values.shape[2:]), fill_value(number, values.dtype), values.dtype)
    for row in range(batch):
        for column in range(padded_sequence):
            source = layout.source_indices[row, column]
            if source >= 0:  # -1 is padding, and never an index from the end
                packed[row, column, ...] = values[row, source, ...]
    return packed


def restore(layout: IndexMaps, values: Array) -> Array:
    """Carry packed values `[batch, padded_sequence, ...]` back to `[batch, original_sequence, ...]`.

    Input slots that were padding come back as zero, whatever the packed row holds at its own padding.

    Raises:
        TypeError: `values` is not an array of a supported dtype.
        ValueError: `values` does not fit the layout.

    Example:
        >>> from alignpack_reference import packed_layout
        >>> layout = packed_layout(np.array([[3, 2]]), np.array([[4, 4]]), (1, 8), 4)
        >>> restore(layout, np.array([[10, 11, 12, -100, 20, 21, -100, -100]]))
        array([[10, 11, 12,  0, 20, 21,  0,  0]])
    """
    _check_dtype(values)
    _check_shape(values, layout.source_indices.shape)
    batch, original_sequence = layout.input_positions.shape
    restored = np.zeros((batch, original_sequence, *values.shape[2:]), values.dtype)
    for row in range(batch):
        for slot in range(original_sequence):
            column = layout.input_positions[row, slot]
            if column >= 0:
                restored[row, slot, ...] = values[row, column, ...]
    return restored


def pack_adjoint(layout: IndexMaps, gradient: Array) -> Array:
    """The gradient of `pack`: `[batch, padded_sequence, ...]` to `[batch, original_sequence, ...]`.

    Each gradient goes back the way its value came. No value came from packed padding, so the gradient there (even NaN)
    is dropped; no value of input padding went anywhere, so its gradient is zero.

    Raises:
        TypeError: `gradient` is not an array of a supported dtype.
        ValueError: `gradient` does not fit the layout.

    Example:
        >>> from alignpack_reference import packed_layout
        >>> layout = packed_layout(np.array([[3, 2]]), np.array([[4, 4]]), (1, 8), 4)
        >>> pack_adjoint(layout, np.array([[1, 2, 3, 4, 5, 6, 7, 8]]))
        array([[1, 2, 3, 0, 5, 6, 0, 0]])
    """
    _check_dtype(gradient)
    _check_shape(gradient, layout.source_indices.shape)
    batch, padded_sequence = layout.source_indices.shape
    result = np.zeros(layout.input_positions.shape + gradient.shape[2:], gradient.dtype)
    for row in range(batch):
        for column in range(padded_sequence):
            source = layout.source_indices[row, column]
            if source >= 0:
                result[row, source, ...] = gradient[row, column, ...]
    return result


def restore_adjoint(layout: IndexMaps, gradient: Array) -> Array:
    """The gradient of `restore`: `[batch, original_sequence, ...]` to `[batch, padded_sequence, ...]`.

    The same rule the other way round: the gradient at restored padding is dropped, packed padding gets zero.

    Raises:
        TypeError: `gradient` is not an array of a supported dtype.
        ValueError: `gradient` does not fit the layout.

    Example:
        >>> from alignpack_reference import packed_layout
        >>> layout = packed_layout(np.array([[3]]), np.array([[4]]), (1, 4), 2, minimum_length=6)
        >>> restore_adjoint(layout, np.array([[1, 2, 3, 4]]))
        array([[1, 2, 3, 0, 0, 0]])
    """
    _check_dtype(gradient)
    _check_shape(gradient, layout.input_positions.shape)
    batch, original_sequence = layout.input_positions.shape
    result = np.zeros(layout.source_indices.shape + gradient.shape[2:], gradient.dtype)
    for row in range(batch):
        for slot in range(original_sequence):
            column = layout.input_positions[row, slot]
            if column >= 0:
                result[row, column, ...] = gradient[row, slot, ...]
    return result


def fill_value(fill: complex, dtype: np.dtype[Any]) -> Array:
    """The fill as a 0-dimensional array of `dtype`.

    A fill must mean the same after the conversion, except that floats are rounded.

    Raises:
        ValueError: the dtype cannot hold the fill.

    Example:
        >>> fill_value(-100, np.dtype(np.int64))
        array(-100)
        >>> fill_value(0.5, np.dtype(np.int64))
        Traceback (most recent call last):
            ...
        ValueError: fill must be an integer from -9223372036854775808 to 9223372036854775807 for int64, got 0.5
    """
    if dtype.kind == "b":
        # A mask is true or false; other numbers are mistakes.
        if fill not in (0, 1):
            raise errors.fill_not_boolean("fill", fill)
        return np.array(fill == 1)
    if dtype.kind in "iu":
        # An integer stays what it is: no fraction is cut off and nothing wraps. (NaN and infinity equal no integer.)
        limits = np.iinfo(dtype)
        if not (limits.min <= fill.real <= limits.max and fill == int(fill.real)):
            raise errors.fill_not_in_integers("fill", fill, dtype, limits.min, limits.max)
        return np.array(int(fill.real), dtype)
    # A finite number stays finite. Infinity and NaN are numbers of every dtype here.
    largest = float(np.finfo(dtype).max)
    for part in (fill.real, fill.imag):
        if abs(part) > largest and abs(part) != float("inf"):
            raise errors.fill_not_in_floats("fill", fill, dtype, largest)
    if isinstance(fill, int) and not -(2**63) <= fill < 2**64:
        fill = float(fill)
    exact = np.array(fill)
    # float16 is reached through float32, as torch.full reaches it: two roundings, not one.
    return exact.astype(np.float32).astype(dtype) if dtype == np.float16 else exact.astype(dtype)


def _number(fill: Fill, dtype: np.dtype[Any]) -> complex:
    """The fill as a plain Python number."""
    number: complex
    if isinstance(fill, np.longdouble | np.clongdouble):
        # Python would turn large ones into infinity.
        raise errors.fill_not_a_number("fill", fill)
    if isinstance(fill, bool | np.bool_):
        number = bool(fill)
    elif isinstance(fill, int | np.integer):
        number = int(fill)
    elif isinstance(fill, float | np.floating):
        number = float(fill)
    elif isinstance(fill, complex | np.complexfloating):
        number = complex(fill)
    else:
        raise errors.fill_not_a_number("fill", fill)
    if isinstance(number, complex) and dtype.kind != "c":
        raise errors.fill_not_real("fill", number, dtype)
    return number


def _check_dtype(array: Array) -> None:
    if not isinstance(array, np.ndarray):
        raise errors.not_an_array("values", "numpy.ndarray", array)
    if array.dtype not in DTYPES:
        raise errors.unsupported_dtype("values", array.dtype)


def _check_shape(array: Array, leading: tuple[int, ...]) -> None:
    # Values have exactly the layout's rows and slots: nothing is broadcast.
    if array.shape[:2] != leading:
        raise errors.bad_values_shape("values", array.shape, leading)
