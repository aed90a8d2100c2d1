"""What else PyTorch offers for ragged rows: its compiler on the composed form, and nested tensors."""

import shutil
from collections.abc import Callable
from functools import cache
from typing import Any

import torch


@cache
def without_compiler() -> str | None:
    """Why Inductor cannot compile for the CPU here, or None when it can."""
    if any(shutil.which(name) for name in ("g++", "clang++", "c++")):
        return None
    return "torch.compile was left out: no C++ compiler"


def compiled(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The function under Inductor for static shapes, with nothing kept from earlier compilations of it."""
    torch.compiler.reset()
    result: Callable[..., torch.Tensor] = torch.compile(function, fullgraph=True, dynamic=False)
    return result


class JaggedRows:
    """Documents as a jagged nested tensor, padded to the longest: one document a row.

    Nested tensors cannot put several documents into one row at aligned starts. This is the nearest that they offer; it carries the
    same tokens, and more padding.
    """

    def __init__(self, seq_lens: torch.Tensor, seq_lens_padded: torch.Tensor) -> None:
        """Takes lengths and spans `[batch, documents]`, int64; the spans of each row fill it."""
        spans = seq_lens_padded.flatten()
        self._offsets = torch.nn.functional.pad(spans.cumsum(0), (1, 0))
        self._longest = int(spans.max())
        # A nested tensor with padding between its documents cannot be padded, so the padding is carried along.
        self._real = torch.arange(self._longest) < seq_lens.flatten().unsqueeze(1)

    def pack(self, values: torch.Tensor) -> torch.Tensor:
        """`[batch, sequence, ...]` -> `[batch * documents, longest, ...]`."""
        nested: Any = torch.nested.nested_tensor_from_jagged(
            values.flatten(0, 1), self._offsets, max_seqlen=self._longest
        )
        padded: torch.Tensor = torch.nested.to_padded_tensor(nested, 0)
        return padded

    def tokens(self, padded: torch.Tensor) -> torch.Tensor:
        """The real tokens, in order."""
        return padded[self._real]
