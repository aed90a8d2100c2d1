"""A rank that dies, for launches of their own: the others end with an error, and in time."""

import os
import time

import pytest
import torch
import torch.distributed as dist

from alignpack.context_parallel import gather_sequence


def check_a_rank_that_dies(group: dist.ProcessGroup) -> None:
    """It leaves between forward and backward."""
    local = torch.ones(1, 4, requires_grad=True)
    gathered = gather_sequence(local, group)
    if dist.get_rank(group) == 1:
        os._exit(7)
    started = time.monotonic()
    with pytest.raises(RuntimeError):
        gathered.sum().backward()
    with pytest.raises(RuntimeError):
        gather_sequence(local, group)
    assert time.monotonic() - started < 60  # two calls of at most 20 seconds
