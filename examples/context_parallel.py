"""Train one step with every row cut across ranks, and check that it is the step that one process takes.

    torchrun --nproc-per-node 4 examples/context_parallel.py

A token looks at the few tokens before it in its own document. Each rank holds a contiguous slice of the row, so at its left
edge the window reaches into the rank before: that is what `halo` brings. Without torchrun the same code runs as one process.
"""

import os

import torch
import torch.distributed as dist
from torch import nn

from alignpack import packed_layout
from alignpack.context_parallel import Group, agree_on_length, halo, packed_length, shard_batch

ALIGNMENT, WINDOW, WIDTH, WORDS = 4, 3, 16, 50
IGNORED_LABEL = -100  # cross-entropy leaves it out
LENGTHS, IDS = torch.tensor([[13, 2, 30, 7]]), torch.arange(52).remainder(WORDS).unsqueeze(0)


class Model(nn.Module):
    """An embedding, the mean over a causal window within the document, and a prediction."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, batch: dict[str, torch.Tensor], group: Group) -> torch.Tensor:
        """`[batch, columns, WORDS]` for this rank's columns."""
        hidden = self.embedding(batch["ids"])
        columns = hidden.shape[1]
        seen = torch.cat([halo(hidden, WINDOW, group), hidden], dim=1)
        total = torch.zeros_like(hidden)
        for back in range(WINDOW + 1):
            looked_at = seen[:, WINDOW - back :][:, :columns]
            inside = batch["position_ids"] >= back  # the document goes back so far: no other document is seen
            total = total + torch.where(inside.unsqueeze(-1), looked_at, 0)
        logits: torch.Tensor = self.head(total.tanh())
        return logits


def step(group: Group, size: int) -> dict[str, torch.Tensor]:
    """The gradients of one step on the rows, which every rank of the group knows."""
    torch.manual_seed(0)
    model = Model().to(torch.float64)
    multiple = size * ALIGNMENT
    length = agree_on_length(packed_length(LENGTHS, None, (1, 52), ALIGNMENT, length_multiple=multiple), group)
    layout = packed_layout(LENGTHS, None, (1, 52), ALIGNMENT, length, length_multiple=multiple)
    local = shard_batch(layout, {"ids": IDS}, group)
    # Shifted before it is cut: the next token of a rank's last one may be on the next rank.
    labels = shard_batch(layout.shift(1), {"labels": IDS}, group, fill=IGNORED_LABEL)["labels"]

    logits = model(local, group)
    # A sum over own columns, divided by the tokens of the whole row: the rank's losses add up to the loss. A rank of
    # padding only has the loss 0, and joins backward all the same.
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    (loss / layout.token_counts.sum()).backward()
    gradients = {}
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        if size > 1:
            dist.all_reduce(parameter.grad)  # each rank has the part that its columns gave
        gradients[name] = parameter.grad
    return gradients


def main() -> None:
    """One step among ranks, and the same on this process alone."""
    alone = step(group=None, size=1)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        group, size, rank = dist.group.WORLD, dist.get_world_size(), dist.get_rank()
        together = step(group, size)
        dist.destroy_process_group()
        difference = max(float((together[name] - alone[name]).abs().max()) for name in alone)
        largest = max(float(gradient.abs().max()) for gradient in alone.values())
        assert difference <= 1e-12 * largest, f"the gradients differ by {difference}"
        if rank == 0:
            print(
                f"{size} ranks took the step of one process: gradients of up to {largest:.2g} differ by {difference:.0e}"
            )
    else:
        print(f"one process, {sum(gradient.numel() for gradient in alone.values())} gradients; start it with torchrun")


if __name__ == "__main__":
    main()
