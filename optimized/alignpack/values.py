"""What may be packed: checks of the tensors that are moved, and their bits as integers.

Moving integers of the same width keeps every bit (NaN payloads, -0.0) on every device and in every compiler, and gives
float8 the operations that PyTorch lacks for it.
"""

import sys

import torch

from alignpack_reference import errors

_WORD_OF_SIZE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}

WORD_DTYPES = {
    dtype: _WORD_OF_SIZE[dtype.itemsize]
    for dtype in (
        torch.bool,
        torch.uint8,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float8_e4m3fn,
        torch.float8_e4m3fnuz,
        torch.float8_e5m2,
        torch.float8_e5m2fnuz,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.complex64,
        torch.complex128,
    )
}
"""Every dtype that moves, and the integer dtype that carries its bits (two of them for complex128)."""


def check_values(values: torch.Tensor, name: str) -> None:
    """Refuse, under the argument's name, what is no plain tensor of a supported dtype.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(values, torch.Tensor):
        raise errors.not_an_array(name, "torch.Tensor", values)
    if (kind := not_plain(values)) is not None:
        raise errors.not_dense(name, kind)
    if values.dtype not in WORD_DTYPES:
        raise errors.unsupported_dtype(name, values.dtype)


def check_fit(values: torch.Tensor, like: torch.Tensor, name: str) -> None:
    """Refuse values that do not have the rows, the slots and the device of the map `like`.

    Raises:
        ValueError: they do not.
    """
    if values.shape[:2] != like.shape:
        raise errors.bad_values_shape(name, tuple(values.shape), tuple(like.shape))
    if values.device != like.device:
        raise errors.other_device(name, values.device, like.device)


def not_plain(tensor: torch.Tensor) -> str | None:
    """What kind of tensor it is, when it is not one strided block of memory."""
    if tensor.is_nested:
        return errors.NESTED
    if tensor.layout is not torch.strided:
        return errors.of_layout(tensor.layout)
    if type(tensor) is not torch.Tensor and isinstance(tensor, loaded_class("torch.distributed.tensor", "DTensor")):
        return errors.DTENSOR
    return None


def slots_are_dense(values: torch.Tensor) -> bool:
    """Whether each slot is one block of memory, its axes in their order; where the slots are does not matter."""
    expected = 1
    for stride, size in zip(reversed(values.stride()[2:]), reversed(values.shape[2:]), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def byte_strides(values: torch.Tensor) -> tuple[int, int]:
    """Bytes from one row and from one slot to the next; 0 where there is one only, whose stride may be any number."""
    (batch, slots), (row_stride, slot_stride) = values.shape[:2], values.stride()[:2]
    return row_stride * values.itemsize if batch > 1 else 0, slot_stride * values.itemsize if slots > 1 else 0


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether it is what tracers put in a tensor's place, which holds no values."""
    fake = loaded_class("torch._subclasses.fake_tensor", "FakeTensor")
    return type(tensor) is not torch.Tensor and isinstance(tensor, fake)


def loaded_class(module: str, name: str) -> type | tuple[()]:
    """A class of a module that is costly to import: where nobody imported it, nothing is an instance of it."""
    found: type | tuple[()] = getattr(sys.modules.get(module), name, ())
    return found


def as_words(values: torch.Tensor) -> torch.Tensor:
    """The same bits as integers, without a copy: `[...]`, or `[..., 2]` for complex128."""
    return words_of(values.resolve_conj().resolve_neg())


def words_of(values: torch.Tensor) -> torch.Tensor:
    """`as_words` of values whose memory is what they say: no view that only promises to conjugate or to negate."""
    word = WORD_DTYPES[values.dtype]
    if values.dtype == word:
        return values
    if values.dtype == torch.complex128:
        return torch.view_as_real(values).view(word)
    return values.view(word)
