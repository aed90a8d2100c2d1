"""Checks of `gather_sequence`: order, bits, strides, and derivatives against one process that has everything."""

import pytest
import torch
import torch.distributed as dist
from torch.autograd import forward_ad
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.checkpoint import checkpoint

from alignpack._distributed.agreement import _ROOM
from alignpack._inputs.words import WORD_DTYPES
from alignpack.context_parallel import gather_sequence, halo
from alignpack_fuzz.compare import assert_same_bits
from alignpack_fuzz.payloads import random_bits
from tests.context_parallel.ranks.columns import assert_three_derivatives_agree, normal_numbers, own_columns

COLUMNS = 3


def normal(group: dist.ProcessGroup, *trailing: int, batch: int = 2) -> torch.Tensor:
    """The same float64 numbers on every rank, `[batch, size * COLUMNS, *trailing]`."""
    return normal_numbers((batch, group.size() * COLUMNS, *trailing))


def check_order_is_that_of_the_ranks(group: dist.ProcessGroup) -> None:
    for shape in ((1, 4 * group.size()), (3, 4 * group.size(), 2)):
        full = torch.arange(torch.Size(shape).numel()).reshape(shape)
        gathered = gather_sequence(own_columns(full, group), group)
        assert torch.equal(gathered, full)
        assert gathered.is_contiguous()


def check_every_dtype_travels_bit_for_bit(group: dist.ProcessGroup) -> None:
    for seed, dtype in enumerate(WORD_DTYPES):
        for batch in (1, 2):
            full = random_bits((batch, COLUMNS * group.size(), 2), dtype, seed=seed)
            for check in (True, False):
                assert_same_bits(gather_sequence(own_columns(full, group), group, check=check), full)


def check_sizes_around_the_room_of_a_message(group: dist.ProcessGroup) -> None:
    """Few bytes travel with the header, more after it: the result is the same, also where the ranks' calls differ."""
    for size in (_ROOM - 4, _ROOM, _ROOM + 4):
        for batch in (1, 2):
            full = random_bits((batch, group.size() * 2, size // 8), torch.float32, seed=size)
            local = own_columns(full, group)[:, :2]
            assert_same_bits(gather_sequence(local, group), gather_sequence(local, group, check=False))
            assert_same_bits(gather_sequence(local, group), full)
            assert_same_bits(halo(local, 2, group), halo(local, 2, group, check=False))
        # One rank's data fit and the others' do not.
        with pytest.raises(ValueError, match="the ranks of the group must agree, but the shape is"):
            gather_sequence(torch.zeros(1, 1 + (group.rank() == 1), size // 4), group)


def check_any_strides(group: dist.ProcessGroup) -> None:
    base = normal(group, 4, batch=8)
    column = torch.ones(40)[5:].as_strided((1, 1), (9, 9))  # one number: contiguous, whatever its strides
    odd = {
        "transposed": base.transpose(0, 2),
        "stepped": base[::2, :, ::3],
        "expanded": base[:1, :, :1].expand(5, -1, 7),
        "conjugate": torch.complex(base, -base).conj(),
        "negative": torch.complex(base, -base).conj().imag,
        "negated": torch._neg_view(base)[:1],
    }
    for name, full in odd.items():
        local = own_columns(full, group)
        assert_same_bits(gather_sequence(local, group), full.resolve_conj().resolve_neg().contiguous())
        assert name in ("conjugate", "negative", "negated") or not local.is_contiguous()
    assert gather_sequence(column, group).tolist() == [[1.0] * group.size()]


def check_tensors_without_numbers(group: dist.ProcessGroup) -> None:
    for shape in ((0, 3), (2, 0), (2, 3, 0)):
        local = torch.zeros(shape, requires_grad=True)
        gathered = gather_sequence(local, group)
        assert gathered.shape == (shape[0], shape[1] * group.size(), *shape[2:])
        gathered.sum().backward()
        assert local.grad is not None
        assert local.grad.shape == local.shape


def check_results_are_new_and_may_be_changed(group: dist.ProcessGroup) -> None:
    for batch in (1, 2):
        local = torch.ones(batch, 2, requires_grad=True)
        gathered = gather_sequence(local, group)
        gathered.mul_(3)
        gathered.sum().backward()
        assert local.tolist() == [[1, 1]] * batch
        assert local.grad is not None
        assert local.grad.tolist() == [[3 * group.size()] * 2] * batch


def check_own_and_replicated_losses(group: dist.ProcessGroup) -> None:
    size = group.size()
    weights = 10.0 ** torch.arange(2 * size, dtype=torch.float64).unsqueeze(0)
    local = torch.tensor([[1.0, 2.0]], dtype=torch.float64, requires_grad=True)
    gathered = gather_sequence(local, group)
    own = own_columns(weights * gathered, group).sum()
    (gradient,) = torch.autograd.grad(own, local, retain_graph=True)
    assert torch.equal(gradient, own_columns(weights, group))
    (gradient,) = torch.autograd.grad((weights * gathered).sum(), local)
    assert torch.equal(gradient, size * own_columns(weights, group))


def attend(queries: torch.Tensor, everything: torch.Tensor) -> torch.Tensor:
    """A loss of the queries' rank that looks at the tokens of all ranks, not linear in anything."""
    return torch.softmax(queries @ everything.transpose(1, 2), dim=-1).matmul(everything.sin()).pow(3).sum()


def check_derivatives_of_three_orders(group: dist.ProcessGroup) -> None:
    full = normal(group, 2).requires_grad_()
    local = own_columns(full.detach(), group).clone().requires_grad_()
    loss, own_loss = attend(full, full), attend(local, gather_sequence(local, group))
    assert_three_derivatives_agree(full, loss, local, own_loss, group)


def check_complex_gradients(group: dist.ProcessGroup) -> None:
    for dtype in (torch.complex64, torch.complex128):
        full = torch.complex(normal(group), normal(group).round()).to(dtype)
        upstream = torch.complex(normal(group).round(), -normal(group).round()).to(dtype)
        local = own_columns(full, group).clone().requires_grad_()
        (gradient,) = torch.autograd.grad(gather_sequence(local, group), local, upstream.conj())
        assert torch.equal(gradient, group.size() * own_columns(upstream.conj(), group))


def check_small_floats_are_summed_in_float32(group: dist.ProcessGroup) -> None:
    """One rank has a large gradient and the others small ones, which vanish if every sum is rounded."""
    rank, size = dist.get_rank(group), group.size()
    for dtype in (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2):
        large = float(2 / torch.finfo(dtype).eps)
        small = 0.75 if size > 2 else 3.0
        local = torch.zeros(1, 2).to(dtype).requires_grad_()
        upstream = torch.full((1, 2 * size), small if rank else large).to(dtype)
        (gradient,) = torch.autograd.grad(gather_sequence(local, group), local, upstream)
        expected = torch.full((1, 2), large + (size - 1) * small).to(dtype)
        assert gradient.dtype == dtype
        assert torch.equal(gradient.float(), expected.float()), (dtype, gradient, expected)
        if size > 2:
            assert expected.float().max() > large


def check_sums_run_in_the_order_of_the_ranks(group: dist.ProcessGroup) -> None:
    """In float32 a sum depends on its order; this one is the same wherever its ranks run."""
    size = group.size()
    upstreams = torch.randn(size, 1, size * COLUMNS, generator=torch.Generator().manual_seed(5)) * 10.0 ** torch.arange(
        size
    ).view(-1, 1, 1)
    local = torch.zeros(1, COLUMNS, requires_grad=True)
    (gradient,) = torch.autograd.grad(gather_sequence(local, group), local, upstreams[group.rank()])
    expected = torch.zeros(1, size * COLUMNS)
    for upstream in upstreams:
        expected += upstream
    assert_same_bits(gradient, own_columns(expected, group))


def check_forward_mode(group: dist.ProcessGroup) -> None:
    full, tangent = normal(group), normal(group).cos()
    with forward_ad.dual_level():
        local = forward_ad.make_dual(own_columns(full, group), own_columns(tangent, group))
        gathered = forward_ad.unpack_dual(gather_sequence(local, group).sin())
    assert gathered.tangent is not None
    assert torch.equal(gathered.tangent, tangent * full.cos())


def check_forward_mode_over_backward(group: dist.ProcessGroup) -> None:
    tangent = normal(group).round()
    local = torch.zeros(2, COLUMNS, dtype=torch.float64, requires_grad=True)
    with forward_ad.dual_level():
        upstream = forward_ad.make_dual(normal(group).cos(), tangent)
        (gradient,) = torch.autograd.grad(gather_sequence(local, group), local, upstream)
        found = forward_ad.unpack_dual(gradient).tangent
    assert found is not None
    assert torch.equal(found, group.size() * own_columns(tangent, group))


def check_backward_over_forward_mode(group: dist.ProcessGroup) -> None:
    """A tangent has a gradient, too: of the gather, and of the sum that is its backward."""
    size = group.size()
    primal, tangent = (
        own_columns(numbers, group).clone().requires_grad_()
        for numbers in (normal(group), normal(group).mul(8).round())  # sums of few whole numbers are exact
    )
    with forward_ad.dual_level():
        gathered = forward_ad.unpack_dual(gather_sequence(forward_ad.make_dual(primal, tangent), group)).tangent
        assert gathered is not None
        (gradient,) = torch.autograd.grad((gathered**2).sum(), tangent)
        assert torch.equal(gradient, 2 * size * tangent)
        rates = normal(group).cos().requires_grad_()
        upstream = forward_ad.make_dual(normal(group), rates)
        (summed,) = torch.autograd.grad(gather_sequence(primal, group), primal, upstream, create_graph=True)
        found = forward_ad.unpack_dual(summed).tangent
        assert found is not None
        (gradient,) = torch.autograd.grad((found**2).sum(), rates)
    torch.testing.assert_close(gradient, 2 * size * rates.detach(), rtol=1e-14, atol=0)


def check_negative_views_as_gradients(group: dist.ProcessGroup) -> None:
    """A view that only says that its numbers are to be negated must not be sent as it lies in memory."""
    for dtype, batch in ((torch.float64, 1), (torch.float64, 2), (torch.complex128, 1), (torch.float32, 1)):
        numbers = normal(group, batch=batch).round().to(dtype)
        local = torch.zeros(batch, COLUMNS, dtype=dtype, requires_grad=True)
        (gradient,) = torch.autograd.grad(gather_sequence(local, group), local, torch._neg_view(numbers))
        assert torch.equal(gradient, -group.size() * own_columns(numbers, group))


def check_tensors_that_hold_no_memory(group: dist.ProcessGroup) -> None:
    """A tensor of zeros without memory, as the derivative of `sgn` is, travels as zeros in every direction."""
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.complex64):
        zeros = torch._efficientzerotensor((1, COLUMNS), dtype=dtype)
        assert not halo(zeros, 2, group).count_nonzero()
        whole = gather_sequence(zeros, group)
        assert whole.shape == (1, group.size() * COLUMNS)
        assert not whole.count_nonzero()
        # Only one rank has none: the others must not wait for it.
        mixed = gather_sequence(zeros if group.rank() == 1 else torch.ones(1, COLUMNS, dtype=dtype), group)
        assert mixed.count_nonzero() == (group.size() - 1) * COLUMNS
        local = torch.ones(1, COLUMNS, dtype=dtype, requires_grad=True)
        for moved in (halo(local, 2, group), gather_sequence(local, group)):
            (gradient,) = torch.autograd.grad(torch.sgn(moved).sum().abs(), local)
            assert gradient.shape == local.shape
            assert not gradient.count_nonzero()


def check_recomputation(group: dist.ProcessGroup) -> None:
    full = normal(group, 2)

    def block(local: torch.Tensor) -> torch.Tensor:
        return attend(local, gather_sequence(local, group))

    def gradient(use_reentrant: bool | None) -> torch.Tensor:
        local = own_columns(full, group).clone().requires_grad_()
        loss = block(local) if use_reentrant is None else checkpoint(block, local, use_reentrant=use_reentrant)
        loss.backward()
        assert local.grad is not None
        return local.grad

    plain = gradient(None)
    assert torch.equal(gradient(True), plain)
    assert torch.equal(gradient(False), plain)


def check_gradients_that_nobody_asks_for(group: dist.ProcessGroup) -> None:
    local = torch.ones(1, 2, requires_grad=True)
    with torch.no_grad():
        assert not gather_sequence(local, group).requires_grad
    with torch.inference_mode():
        assert gather_sequence(local, group).shape == (1, 2 * group.size())
    assert not gather_sequence(local.detach(), group).requires_grad


def check_a_device_mesh_of_one_dimension(group: dist.ProcessGroup) -> None:
    mesh = init_device_mesh("cpu", (1, group.size()), mesh_dim_names=("data", "context"))
    full = torch.arange(2 * group.size()).unsqueeze(0)
    assert torch.equal(gather_sequence(own_columns(full, group), mesh["context"]), full)
    alone = mesh["data"]
    local = torch.ones(1, 2)
    assert gather_sequence(local, alone) is local


def check_nothing_is_remembered(group: dist.ProcessGroup) -> None:
    """Shapes and dtypes may change from call to call, with the check and without."""
    for columns, dtype in ((1, torch.int64), (5, torch.bfloat16), (2, torch.bool)):
        full = (torch.arange(columns * group.size()) % 7).to(dtype).unsqueeze(0)
        assert torch.equal(gather_sequence(own_columns(full, group), group), full)
        assert torch.equal(gather_sequence(own_columns(full, group), group, check=False), full)
