"""Checks of the example of compressed attention among ranks; what they share with the tests of one process stands here."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from alignpack import PackedSequenceLayout, packed_layout
from alignpack_fuzz.lookup import load_file
from tests.paths import ROOT

Row = Sequence[int]
Result = dict[str, torch.Tensor]

ROWS = [[5, 131, 300, 1, 64], [0, 3, 0, 0, 140]]
"""Lengths of documents; two of them go on from rank to rank, on 2 and on 4 ranks, for alignments 128 and 2."""

MOSTLY_PADDING = [[9, 2], [0, 0], [0, 3]]
"""With `LONG_ROW`: on the first rank stands everything."""

LONG_ROW = 1024


example = load_file(ROOT / "examples" / "compressed_attention.py")


def seeded(build: Callable[[], Any]) -> Any:
    torch.manual_seed(0)
    return build()


def values_of(rows: Sequence[Row]) -> torch.Tensor:
    """`[batch, tokens, WIDTH]` float64, the same on every rank; documents stand directly one after the other."""
    shape = len(rows), max(map(sum, rows)), example.WIDTH
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def packed(
    model: nn.Module,
    rows: Sequence[Row],
    values: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    minimum_length: int = 0,
    change: Callable[[PackedSequenceLayout], PackedSequenceLayout] = lambda layout: layout,
) -> Result:
    """The step of packed rows, summed over ranks; `change` makes another layout of the right one."""
    rank, size = (0, 1) if group is None else (group.rank(), group.size())
    alignment: Any = model.alignment
    tables = torch.tensor(rows), None, tuple(values.shape[:2]), alignment, minimum_length
    layout = change(packed_layout(*tables, length_multiple=alignment * size))
    result: Result = example.step(model, layout.shard(rank, size), values, group)
    if group is not None:
        for part in result.values():
            dist.all_reduce(part, group=group)
    return result


def alone(model: nn.Module, rows: Sequence[Row], values: torch.Tensor) -> Result:
    """The same from each document by itself, on this process."""
    outputs, gradients = torch.zeros_like(values), torch.zeros_like(values)
    total = torch.zeros(sum(parameter.numel() for parameter in model.parameters()), dtype=values.dtype)
    for number, row in enumerate(rows):
        if lengths := [length for length in row if length > 0]:
            tokens = sum(lengths)
            found = example.each_alone(model, lengths, values[number : number + 1, :tokens])
            outputs[number, :tokens], gradients[number, :tokens] = found["outputs"][0], found["input gradients"][0]
            total += found["parameter gradients"]
    return {"outputs": outputs, "input gradients": gradients, "parameter gradients": total}


def differences(found: Result, expected: Result) -> dict[str, float]:
    """Of each kind the largest difference, as a part of the largest expected value."""
    return {
        kind: float((found[kind] - of_kind).abs().max() / of_kind.abs().max()) for kind, of_kind in expected.items()
    }


def assert_parity(found: Result, expected: Result) -> None:
    assert all(expected[kind].abs().max() > 0.1 for kind in ("outputs", "input gradients", "parameter gradients"))
    assert max(differences(found, expected).values()) <= 1e-10, differences(found, expected)


def assert_far(found: Result, expected: Result) -> None:
    assert min(differences(found, expected).values()) > 1e-3, differences(found, expected)


def assert_nothing_else_changes(step: Callable[[torch.Tensor], Result]) -> None:
    """A finite change of one document changes no bit of what the others give and get."""
    values = values_of(ROWS)
    before = step(values)
    for row, start, end in ((0, 0, 5), (0, 136, 436), (0, 436, 437), (1, 3, 143)):
        changed = values.clone()
        changed[row, start:end] *= -1000
        mine = torch.zeros(values.shape, dtype=torch.bool)
        mine[row, start:end] = True
        after = step(changed)
        for kind in ("outputs", "input gradients"):
            assert not torch.equal(after[kind][mine], before[kind][mine])
            different = after[kind].view(torch.int64) != before[kind].view(torch.int64)
            assert not different[~mine].any(), (kind, different[~mine].sum())


class Recomputed(nn.Module):
    """A layer that computes its forward again in backward."""

    def __init__(self, layer: nn.Module, use_reentrant: bool) -> None:
        super().__init__()
        self.layer, self.use_reentrant = layer, use_reentrant

    def forward(self, hidden: torch.Tensor, layout: PackedSequenceLayout, group: Any) -> torch.Tensor:
        """As the layer."""
        out: torch.Tensor = checkpoint(self.layer, hidden, layout, group, use_reentrant=self.use_reentrant)
        return out


def recomputing(build: Callable[[], Any], use_reentrant: bool) -> nn.Module:
    model: nn.Module = seeded(build)
    model.layers = nn.ModuleList(Recomputed(layer, use_reentrant) for layer in model.layers)  # type: ignore[union-attr]
    return model


# --- among ranks -----------------------------------------------------------------------------------------------------


@contextmanager
def without_halo(dropped: Callable[[int], bool]) -> Iterator[None]:
    """Halos of some widths hold zeros."""
    right = example.halo

    def faulty(tensor: torch.Tensor, width: int, group: Any) -> torch.Tensor:
        found = right(tensor, width, group)
        return torch.zeros_like(found) if dropped(width) else found

    example.halo = faulty  # type: ignore[attr-defined]
    try:
        yield
    finally:
        example.halo = right  # type: ignore[attr-defined]


def check_ranks_give_what_documents_alone_give(group: dist.ProcessGroup) -> None:
    for build in example.MODELS.values():
        model, values = seeded(build), values_of(ROWS)
        assert_parity(packed(model, ROWS, values, group), alone(model, ROWS, values))


def check_documents_go_on_from_rank_to_rank(group: dist.ProcessGroup) -> None:
    """Otherwise the other checks would show little."""
    for alignment in (128, 2):
        layout = packed_layout(torch.tensor(ROWS), None, (2, 501), alignment, length_multiple=alignment * group.size())
        starts = layout.position_ids.unflatten(1, (group.size(), -1))[:, 1:, 0]
        assert (starts > 100).any()


def check_recomputation_by_ranks(group: dist.ProcessGroup) -> None:
    for build in example.MODELS.values():
        values = values_of(ROWS)
        plain = packed(seeded(build), ROWS, values, group)
        for use_reentrant in (True, False):
            assert_parity(packed(recomputing(build, use_reentrant), ROWS, values, group), plain)


def check_ranks_of_padding_only(group: dist.ProcessGroup) -> None:
    for build in example.MODELS.values():
        model, values = seeded(build), values_of(MOSTLY_PADDING)
        found = packed(model, MOSTLY_PADDING, values, group, LONG_ROW)
        assert_parity(found, alone(model, MOSTLY_PADDING, values))


def check_nothing_else_changes_on_ranks(group: dist.ProcessGroup) -> None:
    for build in example.MODELS.values():
        assert_nothing_else_changes(partial(packed, seeded(build), ROWS, group=group))


def check_without_halo_documents_break_at_ranks(group: dist.ProcessGroup) -> None:
    """Without any, and without that of overlapping groups only."""
    for name, build in example.MODELS.items():
        model, values = seeded(build), values_of(ROWS)
        expected = alone(model, ROWS, values)
        with without_halo(lambda width: width > 0):
            assert_far(packed(model, ROWS, values, group), expected)
        with without_halo(lambda width: width == 1):
            found = packed(model, ROWS, values, group)
        if "overlap" in name:
            assert_far(found, expected)
        else:
            assert_parity(found, expected)
