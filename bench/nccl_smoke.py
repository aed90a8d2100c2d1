"""One GPU is enough to see that NCCL takes what the collectives give it: a group of one rank that really communicates.

`gather_sequence` and `halo` only copy in a group of one, so this calls the functions below them.
"""

import tempfile

import torch
import torch.distributed as dist

from alignpack._distributed.agreement import agree, largest_of
from alignpack._distributed.collectives import Ranks, gather_columns, scatter_sum, shift_ranks
from alignpack._inputs.words import WORD_DTYPES


def smoke(backend: str = "nccl", device: str = "cuda") -> int:
    """Run every collective on every dtype and compare with what one rank must get; the number of dtypes."""
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(backend, f"file://{folder}/rendezvous", rank=0, world_size=1)
        try:
            world = dist.group.WORLD
            assert world is not None
            ranks = Ranks(world, 0, 1)
            for dtype in WORD_DTYPES:
                values = torch.arange(24, device=device).remainder(2).reshape(2, 4, 3).to(dtype)
                agree(ranks, "gather_sequence", values, 0, None, check=True)
                assert torch.equal(_bytes(gather_columns(values, ranks)), _bytes(values))
                assert not _bytes(shift_ranks(values, ranks, 1)).any()
                if dtype.is_floating_point or dtype.is_complex:
                    leaf = values.clone().requires_grad_()
                    (gradient,) = torch.autograd.grad(gather_columns(leaf, ranks), leaf, values, create_graph=True)
                    assert torch.equal(_bytes(gradient), _bytes(scatter_sum(values, ranks)))
                    assert torch.equal(_bytes(gradient), _bytes(values))
            assert largest_of(ranks, 12, "length") == 12
        finally:
            dist.destroy_process_group()
    return len(WORD_DTYPES)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().view(torch.uint8)


if __name__ == "__main__":
    print(f"{smoke()} dtypes passed through NCCL")
