"""The error class and the words of every refusal.

Both implementations raise what this module builds, so a message can be tested once and holds everywhere. Only words
are shared: when to refuse is decided in each implementation by itself.
"""

import numpy as np


class LayoutError(ValueError):
    """A length table that describes no layout.

    Attributes:
        row: the row of the table, from 0; None when the error was built from its message alone.
        document: the column of the table, from 0; None likewise.

    Example:
        >>> import numpy as np
        >>> from alignpack_reference import packed_layout
        >>> packed_layout(np.array([[4, 5]]), None, (1, 8), 4)
        Traceback (most recent call last):
            ...
        alignpack_reference.errors.LayoutError: row 0, document 1: seq_lens is 5, so the document that starts at \
slot 4 ends at slot 9 of a row of 8
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
        f"row {row}, document {document}: seq_lens_padded is {span}, which is less than seq_lens, {length}",
        row,
        document,
    )


def absent_with_span(row: int, document: int, length: int, span: int) -> LayoutError:
    """An absent document that occupies slots."""
    return LayoutError(
        f"row {row}, document {document}: seq_lens is {length} (no document) but seq_lens_padded is {span}; it must "
        f"be 0 or -1000",
        row,
        document,
    )


def past_row(row: int, document: int, table: str, start: int, span: int, original_sequence: int) -> LayoutError:
    """A span that ends behind the end of its row; `table` is the argument that held the span."""
    return LayoutError(
        f"row {row}, document {document}: {table} is {span}, so the document that starts at slot {start} ends at slot "
        f"{start + span} of a row of {original_sequence}",
        row,
        document,
    )


# --- arguments -------------------------------------------------------------------------------------------------------


def not_an_integer(name: str, value: object) -> TypeError:
    """An argument that counts something and is no integer."""
    return TypeError(f"{name} must be an integer, got {value!r}")


def too_small(name: str, value: int, minimum: int) -> ValueError:
    """An integer argument below its minimum."""
    return ValueError(f"{name} must be at least {minimum}, got {_shown(value)}")


def too_large(name: str, value: int, maximum: int) -> ValueError:
    """An integer argument above its maximum."""
    return ValueError(f"{name} must be at most {maximum}, got {_shown(value)}")


def not_a_shape(value: object) -> TypeError:
    """An input shape that is no sequence, as the values themselves are none."""
    shown = f"{type(value).__name__}; pass values.shape[:2]" if getattr(value, "ndim", 0) > 1 else repr(value)
    return TypeError(f"input_shape must be (batch, original_sequence), got {shown}")


def bad_input_shape(value: tuple[object, ...]) -> ValueError:
    """An input shape that is no pair."""
    hint = "; pass values.shape[:2]" if len(value) > 2 else ""
    return ValueError(f"input_shape must be (batch, original_sequence), got {value!r}{hint}")


def too_wide(
    padded_sequence: int, maximum: int, alignment: int, minimum_length: int, length_multiple: int | None
) -> ValueError:
    """A packed row of more slots than are supported."""
    return ValueError(
        f"padded_sequence would be {_shown(padded_sequence)}, it must be at most {maximum} "
        f"(alignment={_shown(alignment)}, minimum_length={_shown(minimum_length)}, "
        f"length_multiple={_shown(length_multiple)})"
    )


def bad_table_dtype(name: str, dtype: object) -> ValueError:
    """A table that does not hold 32-bit or 64-bit integers."""
    return ValueError(f"{name} must be int32 or int64, got {_dtype_name(dtype)}")


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
    return ValueError(f"rank must be at least 0 and below size, got rank={_shown(rank)} of size={_shown(size)}")


def uneven_shards(padded_sequence: int, size: int, alignment: int, length_multiple: int) -> ValueError:
    """A packed row that cannot be cut into shards without cutting a group."""
    return ValueError(
        f"a packed row of {padded_sequence} slots cannot be cut into size={_shown(size)} shards of whole groups of "
        f"{alignment}; build the layout with length_multiple={_shown(length_multiple)}"
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
        f"ratio={_shown(ratio)} does not divide the alignment, {alignment}, so that a group could hold two documents; "
        f"build the layout with alignment={_shown(needed)}"
    )


def not_ratios(value: object) -> TypeError:
    """Compression ratios that are no series."""
    return TypeError(f"ratios must be an iterable of integers, got {value!r}")


def not_rows(key: object) -> TypeError:
    """A subscript that is no slice of rows."""
    return TypeError(f"a layout is sliced by rows, layout[i:j], got {key!r}")


def not_forward(step: int) -> ValueError:
    """Rows in another order than that of the layout."""
    return ValueError(f"a layout is sliced forward, layout[i:j:step] with a step of at least 1, got {_shown(step)}")


def not_a_mapping(value: object) -> TypeError:
    """A batch that has no names."""
    return TypeError(f"batch must be a mapping from names to tensors, got {type(value).__name__}")


def not_a_name(value: object) -> TypeError:
    """A backend that is given as something else than its name."""
    return TypeError(f"backend must be a name or None, got {value!r}")


def no_backend_runs(device: object, overview: str) -> RuntimeError:
    """A device that nothing serves; `overview` says of every backend why it does or does not run."""
    return RuntimeError(f"no backend runs on {device}: {overview}")


def unknown_backend(origin: str, name: str, device: object, overview: str) -> ValueError:
    """A name that no backend has; `origin` is the argument or the variable that held it."""
    return ValueError(f"{origin}={name!r} is no backend; on {device}: {overview}")


def unavailable_backend(origin: str, name: str, device: object, reason: str, overview: str) -> RuntimeError:
    """A backend that cannot run where it is to."""
    return RuntimeError(f"{origin}={name!r} does not run on {device}: {reason}; on {device}: {overview}")


def not_warmed_up(kernel: str, device: object) -> RuntimeError:
    """A kernel that is needed first while a CUDA graph is being captured, when no code can be loaded."""
    return RuntimeError(
        f"a CUDA graph is being captured and the kernel {kernel} is not loaded on {device}: call "
        f"alignpack.warmup({str(device)!r}) before the capture"
    )


# --- context parallelism ----------------------------------------------------------------------------------------------


def not_a_group(value: object) -> TypeError:
    """Something else where a group of ranks belongs."""
    return TypeError(
        f"group must be a ProcessGroup, a one-dimensional DeviceMesh or None (this process alone), got {value!r}"
    )


def not_one_dimensional(names: tuple[str, ...] | None, shape: tuple[int, ...]) -> ValueError:
    """A device mesh of several dimensions, where one is meant."""
    dimensions = f"the dimensions {list(names)}" if names else "dimensions without names"
    example = f"mesh[{names[-1]!r}]" if names else "mesh.get_group(dimension)"
    return ValueError(
        f"group must be a one-dimensional DeviceMesh, got one of shape {list(shape)} with {dimensions}; pass one of "
        f"them, such as {example}"
    )


def not_in_group(reason: str) -> ValueError:
    """A group of other processes than this one."""
    return ValueError(f"this process is not in group: {reason}; call it only on the ranks of the group")


def closed_group(name: str) -> ValueError:
    """A group that was destroyed, or that was never made known."""
    return ValueError(
        f"group must be open, but {name} is closed; make a new one, or close it after the last step (backward included)"
    )


def not_a_layout(value: object) -> TypeError:
    """Something else where a layout belongs."""
    return TypeError(f"layout must be a PackedSequenceLayout, got {type(value).__name__}")


def already_a_shard(slots: int, row_length: int | None) -> ValueError:
    """A shard that would be cut again."""
    return ValueError(
        f"layout must be that of the whole rows, got a shard of {slots} of the {row_length} slots of each row"
    )


def taken_names(names: list[str]) -> ValueError:
    """A batch that has names which the layout fills."""
    return ValueError(f"batch may not hold {names}, which come from the layout")


def inside_transform(name: str) -> TypeError:
    """A collective within a transform that it does not know."""
    return TypeError(
        f"{name} must be outside of torch.func transforms (vmap, grad and others): no collective goes there"
    )


def no_columns(name: str, shape: tuple[int, ...]) -> ValueError:
    """A tensor without rows and columns."""
    return ValueError(f"{name} must have shape [batch, columns, ...], got {list(shape)}")


def unserved_device(name: str, device: object, served: list[str]) -> ValueError:
    """A tensor that no backend of the group can move."""
    return ValueError(f"{name} must be on a device that the group serves, {' or '.join(served)}, got {device}")


def wide_halo(width: int, columns: int) -> ValueError:
    """A halo that the neighbour does not have."""
    return ValueError(f"width must be at most the {columns} columns of a rank, got {_shown(width)}")


def no_integer(name: str) -> TypeError:
    """What other ranks say where one was given no integer."""
    return TypeError(f"{name} must be an integer")


def refused_on_ranks(refusals: dict[int, TypeError | ValueError]) -> TypeError | ValueError:
    """What every rank raises when some ranks were given something wrong: the words and the kind of the first of them."""
    rank, first = next(iter(refusals.items()))
    others = list(refusals)[1:]
    also = f" (and refused on {_ranks(others)}, too)" if others else ""
    kind = TypeError if isinstance(first, TypeError) else ValueError
    return kind(f"rank {rank}: {first}{also}")


def ranks_disagree(differences: list[tuple[str, dict[str, list[int]]]]) -> ValueError:
    """What every rank raises when the ranks do not mean the same; each difference with the ranks of each value."""
    shown = "; ".join(
        f"{name} is " + ", ".join(f"{value} on {_ranks(holders)}" for value, holders in values.items())
        for name, values in differences
    )
    return ValueError(f"the ranks of the group must agree, but {shown}")


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks}"


# --- values ----------------------------------------------------------------------------------------------------------


def not_an_array(name: str, expected: str, value: object) -> TypeError:
    """Something else where an array or a tensor belongs."""
    return TypeError(f"{name} must be a {expected}, got {type(value).__name__}")


NESTED = "a nested tensor"
DTENSOR = "a DTensor; use the local tensor, .to_local()"
META = "a meta tensor, which holds no values"
FAKE = "a fake tensor, which holds no values"
WRAPPED = "a tensor that torch.func batches or replaces; build the layout outside of the transform"


def of_layout(layout: object) -> str:
    """What a tensor is that does not lie in memory by strides."""
    return f"a tensor of layout {layout}"


def held_elsewhere(kind: type) -> str:
    """What a tensor is that only knows where its values are."""
    return f"a {kind.__name__}, a subclass that may hold its values elsewhere"


def not_dense(name: str, kind: str) -> TypeError:
    """A tensor that is not one plain block of numbers; `kind` is one of the words above."""
    return TypeError(f"{name} must be a plain dense tensor, got {kind}")


def unsupported_dtype(name: str, dtype: object) -> TypeError:
    """Values of a dtype outside the contract."""
    return TypeError(
        f"{name} has dtype {_dtype_name(dtype)}, which is not supported: use bool, an integer, float8 (e4m3, e5m2), "
        f"float16, bfloat16, float32, float64, complex64 or complex128"
    )


def bad_values_shape(name: str, shape: tuple[int, ...], leading: tuple[int, ...]) -> ValueError:
    """Values that do not belong to the layout's rows and slots."""
    expected = ", ".join(str(size) for size in leading)
    return ValueError(f"{name} must have shape [{expected}, ...] to fit the layout, got {list(shape)}")


def no_such_slot(row: int, column: int, index: int, slots: int) -> IndexError:
    """An index map that was made by hand and leads out of its row."""
    return IndexError(f"the layout's map holds {index} at row {row}, column {column}; it must be -1 or below {slots}")


def other_device(name: str, device: object, expected: object) -> ValueError:
    """Values on another device than the layout."""
    return ValueError(f"{name} must be on the device of the layout, {expected}, got {device}")


def fill_not_a_number(name: str, fill: object) -> TypeError:
    """A fill that is no Python or NumPy number."""
    hint = f"; pass {name}.item()" if getattr(fill, "ndim", None) == 0 and not isinstance(fill, np.generic) else ""
    return TypeError(f"{name} must be a Python or NumPy number (no long double), got {type(fill).__name__}{hint}")


def fill_not_real(name: str, fill: complex, dtype: object) -> TypeError:
    """A complex fill for a real dtype."""
    return TypeError(f"{name} must be real for {_dtype_name(dtype)}, got {_shown(fill)}")


def fill_not_boolean(name: str, fill: object) -> ValueError:
    """A fill for a mask that is neither true nor false."""
    return ValueError(f"{name} must be 0 or 1 for bool, got {_shown(fill)}")


def fill_not_in_integers(name: str, fill: object, dtype: object, smallest: int, largest: int) -> ValueError:
    """A fill that an integer dtype cannot hold exactly."""
    return ValueError(
        f"{name} must be an integer from {smallest} to {largest} for {_dtype_name(dtype)}, got {_shown(fill)}"
    )


def fill_not_in_floats(name: str, fill: object, dtype: object, largest: float, infinity: bool = True) -> ValueError:
    """A fill that a float dtype could only hold as something else."""
    alternative = "infinite or " if infinity else ""
    return ValueError(
        f"{name} must be {alternative}from {-largest} to {largest} for {_dtype_name(dtype)}, got {_shown(fill)}; "
        f"torch.finfo(values.dtype).min and .max are the limits"
    )


def unknown_fills(unknown: list[str], keys: list[str]) -> ValueError:
    """Fills for tensors that are not there."""
    return ValueError(f"fill has no tensor to fill for {unknown}; the batch holds {keys}")


def _shown(value: object) -> str:
    """The value as written, but for integers of hundreds of digits, some of which Python refuses to write."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    return repr(value)


def _dtype_name(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")
