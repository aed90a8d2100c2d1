"""The error class, and the text of every refusal that both implementations raise.

Only the texts are shared: each implementation decides by itself when to refuse.
"""

import numpy as np


class LayoutError(ValueError):
    """A length table that no layout fits.

    Attributes:
        row: the row of the table, from 0; None when the error was built from its message alone.
        document: the column of the table, from 0; None likewise.

    Example:
        >>> import numpy as np
        >>> from alignpack_reference import packed_layout
        >>> packed_layout(np.array([[4, 5]]), None, (1, 8), 4)
        Traceback (most recent call last):
            ...
        alignpack_reference.errors.LayoutError: row 0, document 1: seq_lens is 5 from slot 4 on, so the \
physical spans end at slot 9 of a row of 8
    """

    def __init__(self, message: str, row: int | None = None, document: int | None = None) -> None:
        super().__init__(message)
        self.row = row
        self.document = document


# --- documents -------------------------------------------------------------------------------------------------------


def bad_length(row: int, document: int, length: int) -> LayoutError:
    """A length that is neither positive nor an absent marker."""
    return LayoutError(
        f"row {row}, document {document}: seq_lens is {length}; a length is positive, or 0 or -1000 where there is no "
        f"document",
        row,
        document,
    )


def short_span(row: int, document: int, length: int, span: int) -> LayoutError:
    """A span that does not hold its document."""
    return LayoutError(
        f"row {row}, document {document}: seq_lens_padded is {span}, a physical span shorter than the document, "
        f"whose seq_lens is {length}",
        row,
        document,
    )


def absent_with_span(row: int, document: int, length: int, span: int) -> LayoutError:
    """An absent document that occupies slots."""
    return LayoutError(
        f"row {row}, document {document}: seq_lens is {length} (no document) but seq_lens_padded is {span}; without a "
        f"document the physical span must be 0 or -1000",
        row,
        document,
    )


def past_row(row: int, document: int, table: str, start: int, span: int, original_sequence: int) -> LayoutError:
    """A span that ends past the end of its row; `table` is the argument that held the span."""
    return LayoutError(
        f"row {row}, document {document}: {table} is {span} from slot {start} on, so the physical spans end at slot "
        f"{start + span} of a row of {original_sequence}",
        row,
        document,
    )


# --- arguments -------------------------------------------------------------------------------------------------------


def not_an_integer(name: str, value: object) -> TypeError:
    """An argument that counts something and is not an integer."""
    return TypeError(f"{name} must be an integer, got {value!r}")


def too_small(name: str, value: int, minimum: int) -> ValueError:
    """An integer argument below its minimum."""
    return ValueError(f"{name} must be at least {minimum}, got {shown(value)}")


def too_large(name: str, value: int, maximum: int) -> ValueError:
    """An integer argument above its maximum."""
    return ValueError(f"{name} must be at most {maximum}, got {shown(value)}")


def not_a_shape(value: object) -> TypeError:
    """An input shape that is not a sequence of integers, such as the values themselves."""
    shown = f"{type(value).__name__}; pass values.shape[:2]" if getattr(value, "ndim", 0) > 1 else repr(value)
    return TypeError(f"input_shape must be (batch, original_sequence), got {shown}")


def bad_input_shape(value: tuple[object, ...]) -> ValueError:
    """An input shape that is not a pair."""
    hint = "; pass values.shape[:2]" if len(value) > 2 else ""
    return ValueError(f"input_shape must be (batch, original_sequence), got {value!r}{hint}")


def too_wide(
    padded_sequence: int, maximum: int, alignment: int, minimum_length: int, length_multiple: int | None
) -> ValueError:
    """A packed row of more slots than are supported."""
    return ValueError(
        f"padded_sequence would be {shown(padded_sequence)}, it must be at most {maximum} "
        f"(alignment={shown(alignment)}, minimum_length={shown(minimum_length)}, "
        f"length_multiple={shown(length_multiple)})"
    )


def bad_table_dtype(name: str, dtype: object) -> ValueError:
    """A table that does not hold 32-bit or 64-bit integers."""
    return ValueError(f"{name} must be int32 or int64, got {dtype_name(dtype)}")


def bad_table_shape(name: str, shape: tuple[int, ...], batch: int) -> ValueError:
    """A table that does not have one row for each row of the input."""
    return ValueError(
        f"{name} must have shape [{batch}, documents] (or [documents] when the batch is 1) to fit input_shape, got "
        f"{list(shape)}"
    )


def different_tables(shape: tuple[int, ...], padded_shape: tuple[int, ...]) -> ValueError:
    """Two tables that do not describe the same documents."""
    return ValueError(
        f"seq_lens_padded must have the shape of seq_lens, got {list(padded_shape)} for a seq_lens of {list(shape)}"
    )


def bad_shard(rank: int, size: int) -> ValueError:
    """A rank that does not exist."""
    return ValueError(f"rank must be at least 0 and below size, got rank={shown(rank)} of size={shown(size)}")


def uneven_shards(padded_sequence: int, size: int, alignment: int, length_multiple: int) -> ValueError:
    """A packed row that cannot be cut into shards without cutting a group."""
    return ValueError(
        f"a packed row of {padded_sequence} slots cannot be cut into size={shown(size)} shards of whole groups of "
        f"{alignment}; build the layout with length_multiple={shown(length_multiple)}"
    )


def shifted_shard(offset: int, slots: int, row_length: int) -> ValueError:
    """A shift of a part of a row."""
    return ValueError(
        f"slots {offset} to {offset + slots - 1} of a packed row of {row_length} are a shard, which cannot be shifted, "
        f"because tokens would come from other ranks; shift the whole layout, then cut it: "
        f"layout.shift(k).shard(rank, size)"
    )


def bad_ratio(ratio: int, alignment: int, needed: int) -> ValueError:
    """A compression ratio whose groups could hold tokens of two documents."""
    return ValueError(
        f"ratio={shown(ratio)} does not divide the alignment, {alignment}, so that a group could hold two documents; "
        f"build the layout with alignment={shown(needed)}"
    )


def not_ratios(value: object) -> TypeError:
    """Compression ratios that are not iterable."""
    return TypeError(f"ratios must be an iterable of integers, got {value!r}")


def not_rows(key: object) -> TypeError:
    """A subscript that is not a slice of rows."""
    return TypeError(f"a layout is sliced by rows, layout[i:j], got {key!r}")


def not_forward(step: int) -> ValueError:
    """A slice that would reverse the rows."""
    return ValueError(f"a layout is sliced forward, layout[i:j:step] with a step of at least 1, got {shown(step)}")


# --- values ----------------------------------------------------------------------------------------------------------


def not_an_array(name: str, expected: str, value: object) -> TypeError:
    """Something else where an array or a tensor belongs."""
    return TypeError(f"{name} must be a {expected}, got {type(value).__name__}")


def unsupported_dtype(name: str, dtype: object) -> TypeError:
    """Values of a dtype outside the contract."""
    return TypeError(
        f"{name} has dtype {dtype_name(dtype)}, which is not supported: use bool, an integer, float8 (e4m3, e5m2), "
        f"float16, bfloat16, float32, float64, complex64 or complex128"
    )


def bad_values_shape(name: str, shape: tuple[int, ...], leading: tuple[int, ...]) -> ValueError:
    """Values that do not belong to the layout's rows and slots."""
    expected = ", ".join(str(size) for size in leading)
    turned = len(shape) == 3 and shape[1:] == leading  # such as rotary positions, [3, batch, sequence]
    hint = "; its last two axes would fit, so move the first to the end: movedim(0, -1)" if turned else ""
    return ValueError(f"{name} must have shape [{expected}, ...] to fit the layout, got {list(shape)}{hint}")


def fill_not_a_number(name: str, fill: object) -> TypeError:
    """A fill that is not a Python or NumPy number."""
    hint = f"; pass {name}.item()" if getattr(fill, "ndim", None) == 0 and not isinstance(fill, np.generic) else ""
    return TypeError(f"{name} must be a Python or NumPy number (no long double), got {type(fill).__name__}{hint}")


def fill_not_real(name: str, fill: complex, dtype: object) -> TypeError:
    """A complex fill for a real dtype."""
    return TypeError(f"{name} must be real for {dtype_name(dtype)}, got {shown(fill)}")


def fill_not_boolean(name: str, fill: object) -> ValueError:
    """A fill for a mask that is neither true nor false."""
    return ValueError(f"{name} must be 0 or 1 for bool, got {shown(fill)}")


def fill_not_in_integers(name: str, fill: object, dtype: object, smallest: int, largest: int) -> ValueError:
    """A fill that an integer dtype cannot hold exactly."""
    return ValueError(
        f"{name} must be an integer from {smallest} to {largest} for {dtype_name(dtype)}, got {shown(fill)}"
    )


def fill_not_in_floats(name: str, fill: object, dtype: object, largest: float, infinity: bool = True) -> ValueError:
    """A finite fill that would be infinite in the float dtype."""
    alternative = "infinite or " if infinity else ""
    return ValueError(
        f"{name} must be {alternative}from {-largest} to {largest} for {dtype_name(dtype)}, got {shown(fill)}; "
        f"torch.finfo(values.dtype).min and .max are the limits"
    )


def shown(value: object) -> str:
    """The value's `repr`; an integer of hundreds of digits, which Python may refuse to write, by its size."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    return repr(value)


def dtype_name(dtype: object) -> str:
    """The name of a dtype of NumPy or PyTorch, as messages write it."""
    return str(dtype).removeprefix("torch.")
