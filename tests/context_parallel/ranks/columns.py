"""What the checks share: numbers that every rank knows, the columns of them that a rank owns, and derivatives of both."""

import torch
import torch.distributed as dist


def own_columns(full: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    width = full.shape[1] // group.size()
    return full[:, dist.get_rank(group) * width :][:, :width]


def normal_numbers(shape: tuple[int, ...]) -> torch.Tensor:
    """The same float64 numbers on every rank."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def assert_three_derivatives_agree(
    full: torch.Tensor, loss: torch.Tensor, local: torch.Tensor, own_loss: torch.Tensor, group: dist.ProcessGroup
) -> None:
    """The derivatives of `loss` by `full` in one process, and of the ranks' own losses by their columns of it."""
    direction = normal_numbers(tuple(full.shape)).cos()
    expected, found = full, local
    for _ in range(3):
        (expected,) = torch.autograd.grad(loss, full, create_graph=True)
        (found,) = torch.autograd.grad(own_loss, local, create_graph=True)
        assert expected.abs().max() > 0.1
        torch.testing.assert_close(found, own_columns(expected, group), rtol=1e-10, atol=1e-10)
        loss, own_loss = (expected.sin() * direction).sum(), (found.sin() * own_columns(direction, group)).sum()
