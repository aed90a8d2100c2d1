"""What is timed: each case prepares alignpack and what it is held against, on the same tensors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from alignpack import packed_layout
from bench.baselines import ComposedIndices, composed_pack, loop_layout

Results = tuple[torch.Tensor, ...]
Candidates = dict[str, Callable[[], Results]]
"""Each returns fresh tensors; the entry "alignpack" is the one that the case is about."""


@dataclass(frozen=True)
class Sizes:
    """The size of a workload: values are `[batch, sequence, *trailing]`, each row holds so many documents."""

    batch: int
    sequence: int
    documents: int
    trailing: tuple[int, ...] = ()
    dtype: torch.dtype = torch.int64
    alignment: int = 4

    def small(self) -> "Sizes":
        """A size at which every path runs and nothing takes long."""
        trailing = tuple(min(width, 16) for width in self.trailing)
        return Sizes(min(self.batch, 2), 64, min(self.documents, 8), trailing, self.dtype, self.alignment)

    def tables(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Lengths and spans `[batch, documents]`: rows cut at random places, up to an eighth of each part padding."""
        generator = torch.Generator().manual_seed(0)
        cuts = torch.stack(
            [torch.randperm(self.sequence - 1, generator=generator)[: self.documents - 1] for _ in range(self.batch)]
        )
        ends = torch.nn.functional.pad(cuts.sort().values + 1, (0, 1), value=self.sequence)
        spans = ends.diff(dim=1, prepend=ends.new_zeros(self.batch, 1))
        padding = spans.div(8) * torch.rand(spans.shape, generator=generator)
        return spans - padding.to(torch.int64), spans

    def values(self) -> torch.Tensor:
        """`[batch, sequence, *trailing]`, normally distributed floats or token ids."""
        generator = torch.Generator().manual_seed(1)
        shape = (self.batch, self.sequence, *self.trailing)
        if self.dtype.is_floating_point:
            return torch.randn(shape, dtype=self.dtype, generator=generator)
        return torch.randint(0, 32000, shape, dtype=self.dtype, generator=generator)


@dataclass(frozen=True)
class Case:
    """One operation at one size.

    Attributes:
        prepare: makes the candidates for a size and a backend.
        baseline: the candidate that alignpack must equal, before anything is timed, and beat.
        targets: by backend and candidate: how many times faster than the baseline alignpack is to be, at least; how
            many times as long as any other candidate, which are limits, it may take, at most; None is reported only.
    """

    name: str
    sizes: Sizes
    prepare: Callable[[Sizes, str], Candidates]
    baseline: str
    targets: Mapping[str, Mapping[str, float | None]]


def layout(sizes: Sizes, backend: str) -> Candidates:
    """Building a layout from host tables."""
    lengths, spans = sizes.tables()
    shape = (sizes.batch, sizes.sequence)

    def alignpack() -> Results:
        built = packed_layout(lengths, spans, shape, sizes.alignment, backend=backend)
        return built.source_indices, built.input_positions, built.position_ids, built.sequence_ids

    return {"alignpack": alignpack, "loop": lambda: loop_layout(lengths, spans, shape, sizes.alignment)}


def pack(sizes: Sizes, backend: str) -> Candidates:
    """`pack` without gradients; the limits are `clone` for large values and, for small ones, the cost of any call."""
    built = packed_layout(*sizes.tables(), (sizes.batch, sizes.sequence), sizes.alignment, backend=backend)
    indices = ComposedIndices.of(built)
    values = sizes.values()
    return {
        "alignpack": lambda: (built.pack(values, backend=backend),),
        "composed": lambda: (composed_pack(values, indices),),
        "clone": lambda: (values.clone(),),
        "add": lambda: (values.add(1),),
    }


def pack_backward(sizes: Sizes, backend: str) -> Candidates:
    """`pack` and its gradient."""
    built = packed_layout(*sizes.tables(), (sizes.batch, sizes.sequence), sizes.alignment, backend=backend)
    indices = ComposedIndices.of(built)
    values = sizes.values().requires_grad_()
    upstream = torch.randn_like(built.pack(values, backend=backend))

    def with_gradient(packed: torch.Tensor) -> Results:
        return packed, *torch.autograd.grad(packed, values, upstream)

    detached = values.detach()
    return {
        "alignpack": lambda: with_gradient(built.pack(values, backend=backend)),
        "composed": lambda: with_gradient(composed_pack(values, indices)),
        "clone": lambda: (detached.clone(),),
    }
