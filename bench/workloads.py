"""What is timed: each operation prepares alignpack, its rivals and its limits on the same tensors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from alignpack import PackedSequenceLayout, packed_layout
from alignpack._backends import BackendName
from bench.baselines import ComposedIndices, composed_groups, composed_pack, composed_shift, loop_layout
from bench.peers import JaggedRows, compiled, without_compiler

Results = tuple[torch.Tensor, ...]
Candidate = Callable[[], Results]
View = Callable[[Results], Results]


@dataclass(frozen=True)
class Sizes:
    """The size of a workload: values are `[batch, sequence, *trailing]`, with `documents` in each row."""

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

    def layout(self, backend: BackendName, *, length_multiple: int | None = None) -> PackedSequenceLayout:
        """The layout of `tables()`."""
        shape = (self.batch, self.sequence)
        return packed_layout(*self.tables(), shape, self.alignment, length_multiple=length_multiple, backend=backend)

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
class Contest:
    """The candidates of one case; each call returns fresh tensors.

    Attributes:
        alignpack: the one that the case is about.
        rivals: other ways to the same results; the first is what people write today.
        limits: other work, which shows what memory or a call costs.
        views: for a rival whose results are laid out differently: what must be equal, of alignpack's and of its own.
    """

    alignpack: Candidate
    rivals: Mapping[str, Candidate]
    limits: Mapping[str, Candidate]
    views: Mapping[str, tuple[View, View]] = field(default_factory=dict)

    def check(self) -> None:
        """Every rival gives what alignpack gives, bit for bit."""
        results = self.alignpack()
        for name, rival in self.rivals.items():
            mine, theirs = self.views.get(name, (tuple, tuple))
            for own, other in zip(mine(results), theirs(rival()), strict=True):
                if not torch.equal(_bits(own), _bits(other)):
                    raise AssertionError(f"{name} and alignpack give different results")

    def candidates(self) -> dict[str, Candidate]:
        """All of them by name, alignpack first."""
        return {"alignpack": self.alignpack, **self.rivals, **self.limits}


Prepare = Callable[[Sizes, BackendName], Contest]


def layout(sizes: Sizes, backend: BackendName) -> Contest:
    """Building a layout from host tables."""
    lengths, spans = sizes.tables()
    shape = (sizes.batch, sizes.sequence)

    def alignpack() -> Results:
        return _fields(packed_layout(lengths, spans, shape, sizes.alignment, backend=backend))

    shapes = [field.shape for field in alignpack()]
    return Contest(
        alignpack,
        {"loop": lambda: loop_layout(lengths, spans, shape, sizes.alignment)},
        {"zeros": lambda: tuple(torch.zeros(shape, dtype=torch.int64) for shape in shapes)},
    )


def pack(sizes: Sizes, backend: BackendName) -> Contest:
    """`pack` without gradients."""
    return _pack(sizes, backend, peers=False)


def pack_with_peers(sizes: Sizes, backend: BackendName) -> Contest:
    """`pack` without gradients, also against what else PyTorch offers."""
    return _pack(sizes, backend, peers=True)


def _pack(sizes: Sizes, backend: BackendName, *, peers: bool) -> Contest:
    built = sizes.layout(backend)
    indices = ComposedIndices.of(built.source_indices)
    values = sizes.values()
    existing = torch.empty_like(values)
    rivals: dict[str, Candidate] = {"composed": lambda: (composed_pack(values, indices),)}
    views: dict[str, tuple[View, View]] = {}
    if peers:
        if without_compiler() is None:
            inductor = compiled(composed_pack)
            rivals["compiled"] = lambda: (inductor(values, indices),)
        jagged = JaggedRows(*sizes.tables())
        rivals["jagged"] = lambda: (jagged.pack(values),)
        real = ~built.padding_mask
        views["jagged"] = (lambda own: (own[0][real],), lambda other: (jagged.tokens(other[0]),))
    limits: dict[str, Candidate] = {
        "clone": lambda: (values.clone(),),
        "copy": lambda: (existing.copy_(values),),
        "add": lambda: (values.add(1),),
    }
    return Contest(lambda: (built.pack(values, backend=backend),), rivals, limits, views)


def restore(sizes: Sizes, backend: BackendName) -> Contest:
    """`restore` without gradients."""
    built = sizes.layout(backend)
    indices = ComposedIndices.of(built.input_positions)
    packed = built.pack(sizes.values(), backend=backend)
    return Contest(
        lambda: (built.restore(packed, backend=backend),),
        {"composed": lambda: (composed_pack(packed, indices),)},
        {"clone": lambda: (packed.clone(),)},
    )


def pack_backward(sizes: Sizes, backend: BackendName) -> Contest:
    """`pack` and its gradient; the limit is two copies."""
    return _pack_backward(sizes, backend, peers=False)


def pack_backward_with_peers(sizes: Sizes, backend: BackendName) -> Contest:
    """`pack` and its gradient, also against PyTorch's compiler."""
    return _pack_backward(sizes, backend, peers=True)


def _pack_backward(sizes: Sizes, backend: BackendName, *, peers: bool) -> Contest:
    built = sizes.layout(backend)
    indices = ComposedIndices.of(built.source_indices)
    return _with_backward(lambda values: built.pack(values, backend=backend), sizes.values(), indices, peers=peers)


def restore_backward(sizes: Sizes, backend: BackendName) -> Contest:
    """`restore` and its gradient; the limit is two copies."""
    built = sizes.layout(backend)
    indices = ComposedIndices.of(built.input_positions)
    packed = built.pack(sizes.values(), backend=backend)
    return _with_backward(lambda packed: built.restore(packed, backend=backend), packed, indices, peers=False)


def _with_backward(
    move: Callable[[torch.Tensor], torch.Tensor], values: torch.Tensor, indices: ComposedIndices, *, peers: bool
) -> Contest:
    """A move and its gradient against the same move composed."""
    leaf = values.detach().requires_grad_()
    upstream = torch.randn_like(move(values))

    def with_gradient(moved: torch.Tensor) -> Results:
        return moved, *torch.autograd.grad(moved, leaf, upstream)

    rivals: dict[str, Candidate] = {"composed": lambda: with_gradient(composed_pack(leaf, indices))}
    if peers and without_compiler() is None:
        inductor = compiled(composed_pack)
        rivals["compiled"] = lambda: with_gradient(inductor(leaf, indices))
    return Contest(
        lambda: with_gradient(move(leaf)), rivals, {"two clones": lambda: (values.clone(), upstream.clone())}
    )


def pack_batch(sizes: Sizes, backend: BackendName) -> Contest:
    """What a collator packs: ids, labels with another fill, a mask."""
    built = sizes.layout(backend)
    indices = ComposedIndices.of(built.source_indices)
    ids = sizes.values()
    batch = {"input_ids": ids, "labels": ids + 1, "loss_mask": ids % 2 == 0}
    fills = {"labels": -100}

    def alignpack() -> Results:
        return tuple(built.pack_batch(batch, fills, backend=backend).values())

    return Contest(
        alignpack,
        {"composed": lambda: tuple(composed_pack(batch[name], indices, fills.get(name, 0)) for name in batch)},
        {"clone": lambda: tuple(values.clone() for values in batch.values())},
    )


def shard_pack(sizes: Sizes, backend: BackendName) -> Contest:
    """One rank of eight makes its part of the layout and packs it; by hand the whole row is packed and cut."""
    size, rank = 8, 3
    built = sizes.layout(backend, length_multiple=size * sizes.alignment)
    indices = ComposedIndices.of(built.source_indices)
    values = sizes.values()
    width = built.source_indices.shape[1] // size
    local = slice(rank * width, (rank + 1) * width)
    part = built.shard(rank, size).pack(values, backend=backend)
    return Contest(
        lambda: (built.shard(rank, size).pack(values, backend=backend),),
        {"composed": lambda: (composed_pack(values, indices)[:, local].contiguous(),)},
        {"clone": lambda: (part.clone(),)},
    )


def packing_a_shard(sizes: Sizes, backend: BackendName) -> Contest:
    """One rank of eight packs with a part of the layout that it has; the limit is packing the whole rows."""
    size, rank = 8, 3
    built = sizes.layout(backend, length_multiple=size * sizes.alignment)
    shard = built.shard(rank, size)
    indices = ComposedIndices.of(shard.source_indices)
    values = sizes.values()
    return Contest(
        lambda: (shard.pack(values, backend=backend),),
        {"composed": lambda: (composed_pack(values, indices),)},
        {"full pack": lambda: (built.pack(values, backend=backend),)},
    )


def groups(sizes: Sizes, backend: BackendName) -> Contest:
    """The groups of `alignment` slots; no backend is named, so the environment says which."""
    built = sizes.layout(backend)
    ratio = sizes.alignment

    def alignpack() -> Results:
        made = built.groups(ratio)
        return (
            made.sequence_ids,
            made.position_ids,
            made.complete,
            made.first,
            made.visible_start,
            made.visible_end,
        )

    return Contest(
        alignpack,
        {"composed": lambda: composed_groups(built.sequence_ids, built.position_ids, ratio)},
        {"zeros": _zeros_like(alignpack())},
    )


def shift(sizes: Sizes, backend: BackendName) -> Contest:
    """The layout of the next tokens; no backend is named, so the environment says which."""
    built = sizes.layout(backend)

    def alignpack() -> Results:
        shifted = built.shift(1)
        return shifted.source_indices, shifted.input_positions

    return Contest(
        alignpack,
        {"composed": lambda: composed_shift(built.source_indices, built.sequence_ids, sizes.sequence, 1)},
        {"zeros": _zeros_like(alignpack())},
    )


def _zeros_like(results: Results) -> Candidate:
    """Writing those results."""
    kinds = [(result.shape, result.dtype) for result in results]
    return lambda: tuple(torch.zeros(shape, dtype=dtype) for shape, dtype in kinds)


def _bits(values: torch.Tensor) -> torch.Tensor:
    """Floating-point values as bytes, so that NaN payloads and -0.0 are compared; other values unchanged."""
    return values.contiguous().view(torch.uint8) if values.dtype.is_floating_point else values


def _fields(built: PackedSequenceLayout) -> Results:
    return built.source_indices, built.input_positions, built.position_ids, built.sequence_ids
