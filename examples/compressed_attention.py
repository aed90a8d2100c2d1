"""Attention over compressed entries on packed documents, and the proof that no document sees another.

    python examples/compressed_attention.py

A query looks at the raw tokens of a short window and at pooled entries of its document's past: every `ratio` tokens make
one entry. Dense and small, to be read; the layers of a model differ in their ratios and share one layout. `group` is that
of context parallelism: with it, each rank gives and gets its own columns.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import nn

from alignpack import PackedSequenceLayout, compression_alignment, packed_layout
from alignpack.context_parallel import Group, gather_sequence, halo

WIDTH, WINDOW = 16, 8


class CompressedAttention(nn.Module):
    """One head; an entry and a token are key and value in one. The window is of WINDOW tokens, the query's own included.

    Args:
        ratio: tokens of a group.
        overlap: an entry pools the group before its own as well, by weights of its own.
        top: how many entries a query looks at, those with the highest scores; None: all that it may see.
    """

    def __init__(self, ratio: int, overlap: bool = False, top: int | None = None) -> None:
        super().__init__()
        self.ratio, self.overlap, self.top = ratio, overlap, top
        groups = 2 if overlap else 1
        self.query, self.token, self.output = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.content_and_gates = nn.Linear(WIDTH, groups * 2 * WIDTH)
        self.place_gates = nn.Parameter(torch.randn(groups * ratio, WIDTH))

    def forward(self, hidden: torch.Tensor, layout: PackedSequenceLayout, group: Group = None) -> torch.Tensor:
        """`[batch, slots, WIDTH]` to the same; the slots are those of the layout, a shard if there is a group."""
        groups, positions = layout.groups(self.ratio), layout.position_ids
        queries, tokens = rotated(self.query(hidden), positions), rotated(self.token(hidden), positions)
        tokens = torch.cat([halo(tokens, WINDOW - 1, group), tokens], dim=1)  # with the end of the rank before
        entries = rotated(self.pooled(hidden, groups.first, group), groups.position_ids)
        entries = gather_sequence(entries, group)  # of the whole row: the columns that visible ranges mean

        slots = torch.arange(hidden.shape[1])
        back = slots.unsqueeze(1) + WINDOW - 1 - torch.arange(tokens.shape[1])  # tokens from query to key
        near = (back >= 0) & (back < WINDOW) & (back <= positions.unsqueeze(2))  # its document goes back so far
        columns = torch.arange(entries.shape[1])
        seen = (groups.visible_start.unsqueeze(2) <= columns) & (columns < groups.visible_end.unsqueeze(2))

        of_tokens = (queries @ tokens.mT).masked_fill(~near, -torch.inf)
        of_entries = (queries @ entries.mT).masked_fill(~seen, -torch.inf)
        if self.top is not None:
            # Equal scores are all in or all out, so that nothing depends on how wide the row is.
            least = of_entries.topk(min(self.top, len(columns)), dim=2).values[:, :, -1:]
            of_entries = of_entries.masked_fill(of_entries < least, -torch.inf)
        weights = (torch.cat([of_tokens, of_entries], dim=2) / math.sqrt(WIDTH)).softmax(dim=2)
        attended: torch.Tensor = self.output(weights @ torch.cat([tokens, entries], dim=1))
        return attended

    def pooled(self, hidden: torch.Tensor, first: torch.Tensor, group: Group) -> torch.Tensor:
        """`[batch, slots, WIDTH]` to entries `[batch, slots / ratio, WIDTH]`, each a gated mean; `first` as in groups."""
        members = self.content_and_gates(hidden).unflatten(1, (-1, self.ratio))  # [batch, groups, ratio, features]
        if self.overlap:
            own, before = members.chunk(2, dim=3)
            before = torch.cat([halo(before, 1, group), before], dim=1)[:, :-1]  # of each group, the one before it
            members = torch.cat([before, own], dim=2)
        content, gates = members.chunk(2, dim=3)
        gates = gates + self.place_gates
        if self.overlap:
            before_document = first.unsqueeze(2) & (torch.arange(2 * self.ratio) < self.ratio)
            gates = gates.masked_fill(before_document.unsqueeze(3), -torch.inf)
        entries: torch.Tensor = (gates.softmax(dim=2) * content).sum(dim=2)
        return entries


def rotated(vectors: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """The vectors `[batch, columns, WIDTH]` with a rotary embedding of positions `[batch, columns]` in the document."""
    frequencies = 100.0 ** -torch.linspace(0, 1, WIDTH // 2, dtype=vectors.dtype)
    angles = positions.unsqueeze(2) * frequencies
    pairs = torch.view_as_complex(vectors.unflatten(2, (-1, 2)))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(2)


class Model(nn.Module):
    """Layers one after the other, each added to what it got."""

    def __init__(self, layers: Sequence[CompressedAttention]) -> None:
        super().__init__()
        self.alignment = compression_alignment(layer.ratio for layer in layers)
        self.layers = nn.ModuleList(layers)
        self.to(torch.float64)

    def forward(self, hidden: torch.Tensor, layout: PackedSequenceLayout, group: Group = None) -> torch.Tensor:
        """As the layers."""
        for layer in self.layers:
            hidden = hidden + layer(hidden, layout, group)
        return hidden


MODELS: dict[str, Callable[[], Model]] = {
    "V4: 4 with overlap, 128": lambda: Model([CompressedAttention(4, overlap=True, top=6), CompressedAttention(128)]),
    "V4.1: 2, 1": lambda: Model([CompressedAttention(2, top=6), CompressedAttention(1, top=6)]),
}


def step(
    model: nn.Module, layout: PackedSequenceLayout, values: torch.Tensor, group: Group = None
) -> dict[str, torch.Tensor]:
    """What `values` `[batch, tokens, WIDTH]` give and the gradients of a loss; of a shard, the rank's part of a sum."""
    values = values.detach().requires_grad_()
    outputs = layout.restore(model(layout.pack(values), layout, group))
    model.zero_grad()
    outputs.pow(3).sum().backward()  # a sum over tokens, so that the losses of documents add up
    of_values, *of_parameters = (tensor.grad for tensor in (values, *model.parameters()))
    assert of_values is not None
    flat = torch.cat([gradient.flatten() for gradient in of_parameters if gradient is not None])
    return {"outputs": outputs.detach(), "input gradients": of_values, "parameter gradients": flat}


def each_alone(model: Model, lengths: Sequence[int], values: torch.Tensor) -> dict[str, torch.Tensor]:
    """The same of one row `[1, tokens, WIDTH]`, each of whose documents takes a step of its own."""
    steps = []
    for document in values.split_with_sizes(list(lengths), dim=1):
        # At least as wide as the window, because no halo is wider than a rank.
        tables = torch.tensor([[document.shape[1]]]), None, document.shape[:2], model.alignment, WINDOW
        steps.append(step(model, packed_layout(*tables), document))
    joined = {kind: torch.cat([one[kind] for one in steps], dim=1) for kind in ("outputs", "input gradients")}
    return joined | {"parameter gradients": torch.stack([one["parameter gradients"] for one in steps]).sum(dim=0)}


def main() -> None:
    """Compare packed documents with each document alone."""
    lengths = [300, 5, 131, 1, 64]
    for name, build in MODELS.items():
        torch.manual_seed(0)
        model, values = build(), torch.randn(1, sum(lengths), WIDTH, dtype=torch.float64)
        layout = packed_layout(torch.tensor([lengths]), None, (1, sum(lengths)), model.alignment)
        packed, alone = step(model, layout, values), each_alone(model, lengths, values)
        print(f"{name}: {len(lengths)} documents in {layout.source_indices.shape[1]} slots, and each alone")
        for kind, expected in alone.items():
            difference = (packed[kind] - expected).abs().max() / expected.abs().max()
            print(f"  {kind} differ by {difference:.0e} of the largest")


if __name__ == "__main__":
    main()
