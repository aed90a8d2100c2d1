"""Grids and blocks of the kernels. Any would be right; these are chosen for speed.

Neighbouring threads touch neighbouring words, so a warp reads whole lines of memory, and each thread has several loads in
flight, so their latencies overlap.
"""

Shape = tuple[int, int]

THREADS = 256
"""The most threads of a block; the compiler is told, so that registers suffice."""

IN_FLIGHT = 4
"""Words that a thread of a gather loads before it stores the first; the kernels are written out for it."""

LARGEST_GRID_Y = 65535
"""The most blocks along y; kernels loop over further rows. Along x no tensor reaches the limit."""

_NARROWEST = {16: 8, 8: 16, 4: 32, 2: 32, 1: 32}
"""By bytes of a word: the least threads that share a slot, whose words fill a line of memory or a warp."""


def layout_shape(batch: int, columns: int) -> tuple[Shape, Shape]:
    """Grid and block for writing a layout: one thread for each slot.

    Args:
        batch: rows.
        columns: slots of a row, of the input or packed, whichever has more.
    """
    return (_ceil(columns, THREADS), min(batch, LARGEST_GRID_Y)), (THREADS, 1)


def gather_shape(batch: int, columns: int, width: int, word: int) -> tuple[Shape, Shape]:
    """Grid and block of a gather: each thread moves `IN_FLIGHT` words, or more where slots are very wide.

    Args:
        batch: rows.
        columns: slots of a row of the output.
        width: words of a slot.
        word: bytes of a word.

    Example:
        >>> gather_shape(4, 8192, 128, 16)  # 2048 bytes a slot: a warp for each, 8 slots a block
        ((1024, 4), (32, 8))
    """
    if width == 1:
        threads = min(THREADS, max(32, _power_of_two(_ceil(columns, IN_FLIGHT))))
        return (_ceil(columns, IN_FLIGHT * threads), min(batch, LARGEST_GRID_Y)), (threads, 1)
    lanes = max(_power_of_two(_ceil(width, IN_FLIGHT)), min(_NARROWEST[word], _power_of_two(width)))
    lanes = min(lanes, THREADS)
    together = min(THREADS // lanes, _power_of_two(columns))
    return (_ceil(columns, together), min(batch, LARGEST_GRID_Y)), (lanes, together)


def _ceil(size: int, part: int) -> int:
    return -(-size // part)


def _power_of_two(size: int) -> int:
    """The smallest power of two that is not below it."""
    return 1 << (size - 1).bit_length()
