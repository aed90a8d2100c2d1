"""Values as integers of the same bits.

Moving integers of the same width keeps every bit (NaN payloads, -0.0) on every device and in every compiler, and gives
float8 the operations that PyTorch lacks for it.
"""

import functools

import torch

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
"""Every dtype that moves, and the integer dtype that carries its bits (two integers for complex128)."""


def as_words(values: torch.Tensor) -> torch.Tensor:
    """The same bits as integers, without a copy: `[...]`, or `[..., 2]` for complex128."""
    return words_of(values.resolve_conj().resolve_neg())


def words_of(values: torch.Tensor) -> torch.Tensor:
    """`as_words` of values whose lazy conjugation or negation was carried out first."""
    word = WORD_DTYPES[values.dtype]
    if values.dtype == word:
        return values
    if values.dtype == torch.complex128:
        return torch.view_as_real(values).view(word)
    return values.view(word)


@functools.lru_cache(1024)
def fill_pattern(words: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """The words of one element of `itemsize` bytes, repeated to fill 16 bytes, as two signed integers.

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


def slots_are_dense(values: torch.Tensor) -> bool:
    """Whether each slot is one contiguous block of memory; the slots themselves may be anywhere."""
    expected = 1
    for stride, size in zip(reversed(values.stride()[2:]), reversed(values.shape[2:]), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def byte_strides(values: torch.Tensor) -> tuple[int, int]:
    """Bytes from one row to the next and from one slot to the next; 0 where there is only one."""
    (batch, slots), (row_stride, slot_stride) = values.shape[:2], values.stride()[:2]
    return row_stride * values.itemsize if batch > 1 else 0, slot_stride * values.itemsize if slots > 1 else 0
