"""The specification of alignpack in plain NumPy loops: read it to learn what the library does, run it to check your own.

It imports neither torch nor numba, and it is slow on purpose. `alignpack` is the fast implementation of the same contract.
"""

from alignpack_reference.errors import LayoutError
from alignpack_reference.groups import CompressionGroups, compression_alignment
from alignpack_reference.layout import PackedSequenceLayout, packed_layout
from alignpack_reference.values import fill_value, pack, pack_adjoint, restore, restore_adjoint

__all__ = [
    "CompressionGroups",
    "LayoutError",
    "PackedSequenceLayout",
    "compression_alignment",
    "fill_value",
    "pack",
    "pack_adjoint",
    "packed_layout",
    "restore",
    "restore_adjoint",
]
