"""Deliberate faults in how `pack` and `restore` move values."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

import torch

from alignpack_fuzz.targets import Target
from tests.faults.wrapping import Call, MovingLayout, as_class, fault, wrong_move


def flat(values: torch.Tensor) -> torch.Tensor:
    """The elements in memory from the first one on, as a kernel sees them that looks at no strides."""
    elements = values.untyped_storage().nbytes() // values.itemsize - values.storage_offset()
    return values.detach().as_strided((elements,), (1,))


def read_in_order(values: torch.Tensor) -> torch.Tensor:
    """Values read from memory one after the other, and zeros where that ends."""
    memory = flat(values)[: values.numel()]
    missing = values.numel() - memory.numel()
    return torch.cat((memory, memory.new_zeros(missing))).view(values.shape)


def with_state(call_with: Callable[[dict[Any, Any], Call], torch.Tensor]) -> Callable[[Target], Callable[..., Any]]:
    """The wrapper of a move that remembers something, afresh for each target."""

    @wraps(call_with)
    def wrap(right: Target) -> Callable[..., Any]:
        state: dict[Any, Any] = {}

        def transfer(call: Call) -> torch.Tensor:
            return call_with(state, call)

        return lambda *args, **kwargs: as_class(MovingLayout, right.packed_layout(*args, **kwargs), move=transfer)

    return wrap


# --- rows and slots ------------------------------------------------------------------------------------------------------


@wrong_move("core", "values_are_moved")
def row_zero_index_for_all(call: Call) -> torch.Tensor:
    """Every row of the batch is moved by the first row's map."""
    return call.through(call.index[:1].expand_as(call.index).contiguous())


@wrong_move("core", "values_are_moved")
def row_zero_values_for_all(call: Call) -> torch.Tensor:
    """Indices of flattened rows lack the row's own offset, so that all rows read the first."""
    return call.right(call.values[:1].expand_as(call.values))


@wrong_move("core", "values_are_moved")
def minus_one_reads_the_last_slot(call: Call) -> torch.Tensor:
    """Where a row ends in padding, -1 is used as an index: the last slot of the input appears there."""
    if call.values.shape[1] == 0:
        return call.right()
    index = call.index.clone()
    ends = index[:, -1] == -1
    index[ends, -1] = call.values.shape[1] - 1
    return call.through(index)


@wrong_move("core", "values_are_moved", "restore_undoes_pack")
def slot_zero_is_padding(call: Call) -> torch.Tensor:
    """The test for padding is `index > 0`, which takes the first token for padding."""
    return call.through(torch.where(call.index > 0, call.index, -1))


@wrong_move("core", "restore_undoes_pack", "values_are_moved")
def restore_trims_the_tail(call: Call) -> torch.Tensor:
    """`restore` drops padding and puts what is left at the row's front: right only where the input has no gaps."""
    if call.name == "pack":
        return call.right()
    order = call.index.masked_fill(call.index == -1, 2**40).sort(dim=1).values
    return call.through(torch.where(order < 2**40, order, -1))


@wrong_move("core", "restore_undoes_pack", "values_are_moved")
def restore_keeps_slot_zero_in_padding(call: Call) -> torch.Tensor:
    """`restore` clamps its index and fills nothing: the row's first slot stands at input padding."""
    return call.right() if call.name == "pack" else call.through(call.index.clamp_min(0))


@wrong_move("core", "values_are_moved", "garbage_in_padding_reaches_nothing")
def padding_masked_by_product(call: Call) -> torch.Tensor:
    """Padding is made zero by a product with the mask, which leaves NaN where the slot that was read is NaN."""
    if call.values.shape[1] == 0 or not call.values.is_floating_point():
        return call.right()
    clamped = call.through(torch.where(call.index < 0, call.values.shape[1] - 1, call.index))
    return torch.where(call.padding, clamped * 0 + call.fill, clamped)


# --- strides -------------------------------------------------------------------------------------------------------------


@wrong_move("core", "values_are_moved")
def transposed_read_as_contiguous(call: Call) -> torch.Tensor:
    """Values whose elements lie densely in another order are read in the order of memory."""
    dense = not call.values.is_contiguous() and 0 not in call.values.stride()
    dense = dense and flat(call.values).numel() == call.values.numel()
    return call.right(read_in_order(call.values)) if dense else call.right()


@wrong_move("core", "values_are_moved")
def expanded_read_as_contiguous(call: Call) -> torch.Tensor:
    """Axes of stride 0 are read as if their elements existed."""
    return call.right(read_in_order(call.values)) if 0 in call.values.stride() else call.right()


@wrong_move("core", "values_are_moved")
def row_stride_ignored(call: Call) -> torch.Tensor:
    """Slots are looked up by the product of the trailing sizes, wrong where only every second slot is taken."""
    skips = call.values.ndim > 1 and call.values.stride(1) > max(call.values.shape[2:].numel(), 1)
    return call.right(read_in_order(call.values)) if skips and call.values.shape[0] == 1 else call.right()


@wrong_move("core", "values_are_moved")
def storage_offset_ignored(call: Call) -> torch.Tensor:
    """Views are read from where their memory begins, not from where they begin."""
    values = call.values.detach()
    if values.storage_offset() == 0 or values.numel() == 0:
        return call.right()
    return call.right(values.as_strided(values.shape, values.stride(), 0))


@wrong_move("core", "results_are_independent")
def result_keeps_strides(call: Call) -> torch.Tensor:
    """The result has the strides of transposed values instead of being contiguous."""
    moved = call.right()
    turned = call.values.ndim > 1 and not call.values.is_contiguous() and call.values.transpose(0, 1).is_contiguous()
    return moved.transpose(0, 1).contiguous().transpose(0, 1) if turned else moved


# --- widths of rows ------------------------------------------------------------------------------------------------------


@wrong_move("core", "values_are_moved")
def last_bytes_of_wide_rows_lost(call: Call) -> torch.Tensor:
    """Rows wider than 16 bytes are moved in whole 16-byte pieces; what is left over is zero."""
    elements = max(16 // call.values.itemsize, 1)
    width = call.values.shape[2:].numel()
    moved = call.right()
    if width > elements and width % elements:
        moved = moved.flatten(2).index_fill(2, torch.arange(width - width % elements, width), 0).view(moved.shape)
    return moved


@wrong_move("core", "values_are_moved")
def empty_rows_divide_by_zero(call: Call) -> torch.Tensor:
    """Values of width 0 are divided by their width."""
    rows = call.values.numel() // call.values.shape[2:].numel()
    return call.right(call.values if rows else call.values[:])


@wrong_move("core", "values_are_moved")
def rows_without_slots_crash(call: Call) -> torch.Tensor:
    """Where the input has no slot, a clamped index points at slot 0, which does not exist."""
    if call.index.numel() and call.values.shape[1] == 0:
        raise IndexError("index 0 is out of bounds for dimension 1 with size 0")
    return call.right()


# --- bits ----------------------------------------------------------------------------------------------------------------


@wrong_move("core", "values_are_moved")
def nan_payloads_lost(call: Call) -> torch.Tensor:
    """Every NaN of a 16-bit float becomes the same NaN on its way through float32."""
    narrow = call.values.is_floating_point() and call.values.itemsize == 2
    return torch.where(moved.isnan(), torch.nan, moved) if narrow and (moved := call.right()).numel() else call.right()


@wrong_move("core", "values_are_moved")
def negative_zero_lost(call: Call) -> torch.Tensor:
    """Values are added to a result of zeros, which turns -0.0 into 0.0."""
    return torch.where(moved == 0, 0, moved) if (moved := call.right()).is_floating_point() else moved


@wrong_move("core", "values_are_moved")
def subnormals_flushed(call: Call) -> torch.Tensor:
    """Numbers below a float's smallest normal one become zero."""
    moved = call.right()
    if not moved.is_floating_point():
        return moved
    return torch.where((moved.abs() < torch.finfo(moved.dtype).tiny) & (moved != 0), 0, moved)


@wrong_move("core", "values_are_moved")
def integers_through_float(call: Call) -> torch.Tensor:
    """int64 passes through float64, which holds only 53 bits."""
    moved = call.right()
    return moved.double().long() if moved.dtype == torch.int64 else moved


@wrong_move("core", "values_are_moved")
def fill_promotes_bool(call: Call) -> torch.Tensor:
    """`where` with the number 0 turns a mask into integers."""
    moved = call.right()
    return moved.long() if moved.dtype == torch.bool else moved


@wrong_move("core", "values_are_moved", "restore_undoes_pack")
def fill_at_sentinel_values(call: Call) -> torch.Tensor:
    """Padding is marked by the value -1 in the result, so that a real -1 becomes fill, too."""
    moved = call.right()
    return moved if moved.dtype == torch.bool else moved.masked_fill(moved == -1, 0)


@wrong_move("core", "values_are_moved")
def fill_over_real_zeros(call: Call) -> torch.Tensor:
    """Real tokens that are 0 get the fill, as padding is recognised by its zeros."""
    moved = replace(call, fill=0).right()
    zero = moved == 0
    return torch.where(zero | call.padding, torch.full((), call.fill, dtype=moved.dtype), moved) if call.fill else moved


@wrong_move("strict", "every_dtype_is_moved")
def float8_is_refused(call: Call) -> torch.Tensor:
    """float8 has no `index_select` on this device."""
    if "float8" in str(call.values.dtype):
        raise NotImplementedError(f"index_select is not implemented for {call.values.dtype}")
    return call.right()


@wrong_move("strict", "every_dtype_is_moved")
def float8_fill_is_nan(call: Call) -> torch.Tensor:
    """Padding of the float8 dtypes without a negative zero gets the bits of -0.0, which mean NaN there."""
    moved = call.right()
    if "fnuz" not in str(moved.dtype):
        return moved
    return moved.view(torch.uint8).masked_fill(call.padding, 0x80).view(moved.dtype)


@wrong_move("strict", "every_dtype_is_moved")
def uint16_cannot_be_restored(call: Call) -> torch.Tensor:
    """uint16 is packed, but the way back lacks it."""
    if call.name == "restore" and call.values.dtype == torch.uint16:
        raise NotImplementedError("gather is not implemented for uint16")
    return call.right()


@wrong_move("strict", "every_dtype_is_moved")
def complex128_is_one_word(call: Call) -> torch.Tensor:
    """complex128 is moved in words of 8 bytes, of which the second stays zero."""
    moved = call.right()
    return torch.complex(moved.real, torch.zeros_like(moved.real)) if moved.dtype == torch.complex128 else moved


# --- memory --------------------------------------------------------------------------------------------------------------


@wrong_move("core", "results_are_independent")
def identity_gives_the_input(call: Call) -> torch.Tensor:
    """Where nothing moves, the values themselves come back, and writing to the result changes them."""
    same = call.index.shape == call.inverse.shape and bool((call.index == torch.arange(call.index.shape[1])).all())
    call.right()
    return call.values if same and call.values.is_contiguous() else call.right()


@wrong_move("core", "results_are_independent")
def maps_clamped_in_place(call: Call) -> torch.Tensor:
    """The index is clamped in place after the padding was found, so that the next call finds none."""
    moved = call.right()
    call.index.clamp_min_(0)
    return moved


@wrong_move("core", "results_are_independent")
def input_padding_cleaned_in_place(call: Call) -> torch.Tensor:
    """Input padding is made zero in the caller's values before they are read."""
    moved = call.right()
    if call.values.is_contiguous() and not call.values.requires_grad:
        call.values[call.inverse == -1] = torch.zeros((), dtype=call.values.dtype)
    return moved


@fault("core", "results_are_independent")
@with_state
def results_share_a_workspace(state: dict[Any, Any], call: Call) -> torch.Tensor:
    """Results of one shape and dtype are written into the same memory."""
    moved = call.right()
    if moved.requires_grad or not moved.numel():
        return moved
    kept: torch.Tensor = state.setdefault((call.name, moved.shape, moved.dtype), moved)
    return kept if kept is moved else kept.copy_(moved)


@fault("core", "layouts_are_independent")
@with_state
def map_cached_by_shape(state: dict[Any, Any], call: Call) -> torch.Tensor:
    """The map of the first layout of a shape serves all layouts of that shape."""
    return call.through(state.setdefault((call.name, call.index.shape, call.inverse.shape), call.index))


@fault("core", "restore_undoes_pack")
@with_state
def restore_reads_the_last_pack(state: dict[Any, Any], call: Call) -> torch.Tensor:
    """Padding that `restore` should make zero keeps what stood there when the row was packed."""
    moved = call.right()
    if call.name == "pack":
        state["packed"] = call.values
        return moved
    before = state.get("packed", moved)
    if before.shape != moved.shape or before.dtype != moved.dtype:
        return moved
    return torch.where(call.padding, before, moved)


@fault("strict", "runs_repeat")
@with_state
def padding_unwritten(state: dict[Any, Any], call: Call) -> torch.Tensor:
    """Padding is not written, so that what was left there shows: a number of the call, as memory is used again."""
    state["calls"] = state.get("calls", 0) + 1
    moved = call.right()
    return torch.where(call.padding, moved.new_full((), state["calls"] % 100), moved)


@fault("strict", "threads_do_not_meet")
@with_state
def scratch_shared_by_threads(state: dict[Any, Any], call: Call) -> torch.Tensor:
    """Values pass through one scratch buffer, into which other threads write at the same time."""
    moved = call.right()
    if moved.requires_grad or threading.current_thread() is threading.main_thread():
        return moved
    scratch = state.get(moved.dtype)
    if scratch is None or scratch.numel() < moved.numel():
        scratch = state[moved.dtype] = moved.new_empty(moved.numel())
    scratch[: moved.numel()] = moved.flatten()
    time.sleep(0.0002)  # where a wide payload would still be on its way
    return scratch[: moved.numel()].view(moved.shape).clone()
