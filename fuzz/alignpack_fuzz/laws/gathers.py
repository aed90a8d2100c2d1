"""Laws of the gather of context parallelism on one process; tests/context_parallel/ranks checks it among ranks."""

import torch

from alignpack_fuzz import strategies
from alignpack_fuzz.cases import WholeNumbers
from alignpack_fuzz.compare import assert_same_bits, named
from alignpack_fuzz.laws.registry import law
from alignpack_fuzz.targets import Target


@law("strict", strategies.whole_numbers())
def gathers_have_their_derivatives(target: Target, case: WholeNumbers) -> None:
    """A gather over one process is a copy, with the derivatives of one; a target without `gather_sequence` is not asked.

    Catches a backward that leaves autograd: the tensor is multiplied with what was gathered of it, as in attention, so
    that a second derivative is there, but not all of it.
    """
    if target.gather_sequence is None:
        return
    _, start = case.tensors
    point = start.clone().requires_grad_()
    whole = target.gather_sequence(point, None)
    with named("values"):
        assert_same_bits(whole.detach(), start)
    (first,) = torch.autograd.grad((point * whole**2).sum(), point, create_graph=True)
    assert torch.equal(first, 3 * start**2), "first derivative"
    (second,) = torch.autograd.grad(first.sum(), point)
    assert torch.equal(second, 6 * start), "second derivative"
