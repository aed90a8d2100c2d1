"""Compression-aligned packed layouts: every document of a packed row starts where a compression group starts.

Example:
    >>> import torch
    >>> import alignpack
    >>> layout = alignpack.packed_layout(torch.tensor([[3, 2]]), None, (1, 5), alignment=4)
    >>> layout.pack(torch.tensor([[1, 2, 3, 4, 5]]))
    tensor([[1, 2, 3, 0, 4, 5, 0, 0]])
"""

from alignpack._backends import backends, warmup
from alignpack.groups import CompressionGroups, compression_alignment
from alignpack.layout import PackedSequenceLayout, packed_layout
from alignpack_reference.errors import LayoutError

__version__ = "0.1.0"

__all__ = [
    "CompressionGroups",
    "LayoutError",
    "PackedSequenceLayout",
    "__version__",
    "backends",
    "compression_alignment",
    "packed_layout",
    "warmup",
]
