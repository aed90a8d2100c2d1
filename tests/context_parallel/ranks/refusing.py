"""Checks of what is refused: by every rank, in the same words, and the group goes on."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from alignpack import packed_layout
from alignpack.context_parallel import agree_on_length, gather_sequence, halo, shard_batch


def refused(call: Callable[[], object], group: dist.ProcessGroup) -> str:
    """What every rank raises, after a look that it is the same and that the group still works."""
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    text = f"{type(caught.value).__name__}: {caught.value}"
    texts: list[str] = [""] * group.size()
    dist.all_gather_object(texts, text, group=group)
    assert texts == [text] * group.size()
    rank = torch.tensor([[dist.get_rank(group)]])
    assert gather_sequence(rank, group).tolist() == [list(range(group.size()))]
    return text


def disagree(difference: str) -> str:
    return f"ValueError: the ranks of the group must agree, but {difference}"


def others(size: int) -> str:
    return "rank 1" if size == 2 else f"ranks {list(range(1, size))}"


def check_different_tensors(group: dist.ProcessGroup) -> None:
    first, rest = dist.get_rank(group) == 0, others(group.size())
    like = torch.zeros(1, 8)
    cases: list[tuple[torch.Tensor, torch.Tensor, str]] = [
        (like, torch.zeros(1, 12), f"the shape is [1, 8] on rank 0, [1, 12] on {rest}"),
        (like, torch.zeros(2, 8), f"the shape is [1, 8] on rank 0, [2, 8] on {rest}"),
        (like, torch.zeros(1, 8, 1), f"the shape is [1, 8] on rank 0, [1, 8, 1] on {rest}"),
        (like, like.double(), f"the dtype is float32 on rank 0, float64 on {rest}"),
        (like, like.clone().requires_grad_(), f"requires_grad is False on rank 0, True on {rest}"),
        (
            *(like.int(), torch.zeros(1, 4, dtype=torch.int64)),  # as many bytes
            f"the dtype is int32 on rank 0, int64 on {rest}; the shape is [1, 8] on rank 0, [1, 4] on {rest}",
        ),
    ]
    for on_first, on_rest, difference in cases:
        local = on_first if first else on_rest
        assert refused(lambda: gather_sequence(local, group), group) == disagree(difference)  # noqa: B023
        assert refused(lambda: halo(local, 1, group), group) == disagree(difference)  # noqa: B023


def check_different_ranks_are_listed(group: dist.ProcessGroup) -> None:
    last = group.size() - 1
    local = torch.zeros(1, 1 + (dist.get_rank(group) == last))
    rest = "rank 0" if last == 1 else f"ranks {list(range(last))}"
    text = refused(lambda: gather_sequence(local, group), group)
    assert text == disagree(f"the shape is [1, 1] on {rest}, [1, 2] on rank {last}")


def check_gradients_only_on_some_ranks(group: dist.ProcessGroup) -> None:
    local = torch.zeros(1, 2, requires_grad=True)

    def call() -> None:
        with torch.set_grad_enabled(dist.get_rank(group) == 0):
            gather_sequence(local, group)

    assert refused(call, group) == disagree(f"requires_grad is True on rank 0, False on {others(group.size())}")


def check_tangents_only_on_some_ranks(group: dist.ProcessGroup) -> None:
    with forward_ad.dual_level():
        local = torch.zeros(1, 2)
        if dist.get_rank(group) == 0:
            local = forward_ad.make_dual(local, torch.ones(1, 2))
        text = refused(lambda: gather_sequence(local, group), group)
    assert text == disagree(f"having a forward-mode tangent is True on rank 0, False on {others(group.size())}")


def check_different_calls(group: dist.ProcessGroup) -> None:
    first, rest = dist.get_rank(group) == 0, others(group.size())
    local = torch.zeros(1, 8)
    text = refused(lambda: halo(local, 2 + first, group), group)
    assert text == disagree(f"width is 3 on rank 0, 2 on {rest}")
    text = refused(lambda: gather_sequence(local, group) if first else halo(local, 0, group), group)
    assert text == disagree(f"the function is gather_sequence on rank 0, halo on {rest}")


@pytest.mark.filterwarnings("ignore")
def check_what_one_rank_refuses(group: dist.ProcessGroup) -> None:
    last = group.size() - 1
    good = torch.zeros(1, 8)
    wrong: list[tuple[Any, str]] = [
        ([[1.0]], "TypeError: rank {}: tensor must be a torch.Tensor, got list"),
        (
            good.to_sparse(),
            "TypeError: rank {}: tensor must be a plain dense tensor, got a tensor of layout torch.sparse_coo",
        ),
        (torch.zeros(8), "ValueError: rank {}: tensor must have shape [batch, columns, ...], got [8]"),
        (torch.zeros([1] * 65), "ValueError: rank {}: tensor.ndim must be at most 64, got 65"),
        (
            torch.zeros(1, 8, device="meta"),
            "ValueError: rank {}: tensor must be on a device that the group serves, cpu or cuda, got meta",
        ),
    ]
    for value, text in wrong:
        local = value if dist.get_rank(group) == last else good
        assert refused(lambda: gather_sequence(local, group), group) == text.format(last)  # noqa: B023
        assert refused(lambda: halo(local, 1, group), group) == text.format(last)  # noqa: B023
    local = good.to(torch.complex32) if dist.get_rank(group) == last else good
    text = refused(lambda: gather_sequence(local, group), group)
    assert text.startswith(f"TypeError: rank {last}: tensor has dtype complex32, which is not supported: use bool, ")
    assert text.endswith(" complex64 or complex128")


def check_tensors_that_hold_no_values_of_their_own(group: dist.ProcessGroup) -> None:
    """A tracer's tensor, and what a transform leaves behind: sent, they would end the other ranks from within gloo."""
    left: list[torch.Tensor] = []

    def leave(tensor: torch.Tensor) -> torch.Tensor:
        left.append(tensor)
        return tensor.sum()

    torch.func.vmap(leave)(torch.ones(2, 1, 8))
    torch.func.grad(leave)(torch.ones(1, 8))
    good = torch.zeros(1, 8)
    outside = (
        "TypeError: rank 1: tensor must be outside of torch.func transforms (vmap, grad and others): no collective"
    )
    for wrong, text in (
        (left[0], f"{outside} goes there"),
        (left[1], f"{outside} goes there"),
        (
            FakeTensorMode().from_tensor(good),
            "TypeError: rank 1: tensor must be a plain dense tensor, got a fake tensor, which holds no values",
        ),
    ):
        local = wrong if dist.get_rank(group) == 1 else good
        assert refused(lambda: gather_sequence(local, group), group) == text  # noqa: B023
        assert refused(lambda: halo(local, 1, group), group) == text  # noqa: B023


def check_the_default_device_is_not_asked(group: dist.ProcessGroup) -> None:
    """What travels for the checks is where the group can move it, also where a model is built without memory."""
    first, good = dist.get_rank(group) == 0, torch.zeros(1, 8)

    def call() -> None:
        with torch.device("meta"):
            halo(good, -1 if first else 1, group)

    with torch.device("meta"):
        assert agree_on_length(dist.get_rank(group), group) == group.size() - 1
    assert refused(call, group) == "ValueError: rank 0: width must be at least 0, got -1"


def check_words_that_cannot_be_encoded(group: dist.ProcessGroup) -> None:
    class Odd:
        def __repr__(self) -> str:
            return "half a letter, \ud800"

    width: Any = Odd() if dist.get_rank(group) == 1 else 1
    text = refused(lambda: halo(torch.zeros(1, 8), width, group), group)
    assert text == "TypeError: rank 1: width must be an integer, got half a letter, \\ud800"


def check_what_all_ranks_refuse(group: dist.ProcessGroup) -> None:
    rest = others(group.size())
    local = torch.zeros(1, 8)
    text = refused(lambda: halo(local, 9, group), group)
    assert text == (
        f"ValueError: rank 0: width must be at most the 8 columns of a rank, got 9 (and refused on {rest}, too)"
    )
    text = refused(lambda: halo(local, -1, group), group)
    assert text == f"ValueError: rank 0: width must be at least 0, got -1 (and refused on {rest}, too)"
    text = refused(lambda: halo(local, 1.0, group), group)  # type: ignore[arg-type]
    assert text == f"TypeError: rank 0: width must be an integer, got 1.0 (and refused on {rest}, too)"


def check_a_long_refusal_is_cut(group: dist.ProcessGroup) -> None:
    width: Any = "ä" * 2000 if dist.get_rank(group) == 1 else 1
    text = refused(lambda: halo(torch.zeros(1, 8), width, group), group)
    assert text.startswith("TypeError: rank 1: width must be an integer, got 'ää")
    assert 400 < text.count("ä") < 2000


def check_transforms(group: dist.ProcessGroup) -> None:
    outside = torch.zeros(1, 8)
    for call in (lambda local: gather_sequence(local, group), lambda _: halo(outside, 1, group)):
        for transform in (torch.func.vmap, torch.func.grad):

            def transformed() -> None:
                if dist.get_rank(group) == 0:
                    transform(call)(torch.zeros(3, 1, 8))  # noqa: B023
                else:
                    gather_sequence(outside, group)

            text = refused(transformed, group)
            assert text == (
                "TypeError: rank 0: tensor must be outside of torch.func transforms (vmap, grad and others): no collective "
                "goes there"
            )


def check_lengths(group: dist.ProcessGroup) -> None:
    rank = dist.get_rank(group)
    cases: list[tuple[Any, str]] = [
        (-5, "ValueError: rank 1: length must be at least 0, got -5"),
        (2**31, "ValueError: rank 1: length must be at most 2147483647, got 2147483648"),
        (-(2**70), "ValueError: rank 1: length must be at least 0, got -1180591620717411303424"),
        (2**70, "ValueError: rank 1: length must be at most 2147483647, got 1180591620717411303424"),
        (None, "TypeError: rank 1: length must be an integer, got None"),
        (8.0, "TypeError: rank 1: length must be an integer, got 8.0"),
        (True, "TypeError: rank 1: length must be an integer, got True"),
    ]
    for wrong, text in cases:
        assert refused(lambda: agree_on_length(wrong if rank == 1 else 8, group), group) == text  # noqa: B023


def calls(group: Any) -> list[Callable[[], object]]:
    layout = packed_layout(torch.tensor([[3]]), None, (1, 3), 4, length_multiple=32)
    return [
        lambda: agree_on_length(4, group),
        lambda: shard_batch(layout, {}, group),
        lambda: gather_sequence(torch.zeros(1, 4), group),
        lambda: gather_sequence(torch.zeros(1, 4), group, check=False),
        lambda: halo(torch.zeros(1, 4), 1, group),
    ]


def check_a_closed_group(group: dist.ProcessGroup) -> None:
    closed = dist.new_group()
    assert isinstance(closed, dist.ProcessGroup)
    name = closed.group_name
    dist.destroy_process_group(closed)
    for call in calls(closed):
        assert refused(call, group) == (
            f"ValueError: group must be open, but process group {name!r} is closed; make a new one, or close it after the "
            "last step (backward included)"
        )


def check_a_group_closed_before_backward(group: dist.ProcessGroup) -> None:
    closed = dist.new_group()
    assert isinstance(closed, dist.ProcessGroup)
    local = torch.ones(1, 2, requires_grad=True)
    results = gather_sequence(local, closed), halo(local, 1, closed)
    dist.destroy_process_group(closed)
    for result in results:
        text = refused(lambda: result.sum().backward(), group)  # noqa: B023
        assert text.startswith("ValueError: group must be open, but process group")


def check_a_closed_mesh(group: dist.ProcessGroup) -> None:
    closed = dist.new_group()
    mesh = DeviceMesh.from_group(closed, "cpu")
    dist.destroy_process_group(closed)
    for call in calls(mesh):
        text = refused(call, group)
        assert text.startswith("ValueError: group must be open, but DeviceMesh(")


def check_a_mesh_of_two_dimensions(group: dist.ProcessGroup) -> None:
    mesh = init_device_mesh("cpu", (1, group.size()), mesh_dim_names=("data", "context"))
    for call in calls(mesh):
        assert refused(call, group) == (
            f"ValueError: group must be a one-dimensional DeviceMesh, got one of shape [1, {group.size()}] with the "
            f"dimensions ['data', 'context']; pass one of them, such as mesh['context']"
        )
    text = refused(calls(init_device_mesh("cpu", (1, group.size())))[0], group)
    assert text.endswith("with dimensions without names; pass one of them, such as mesh.get_group(dimension)")


def check_a_group_without_this_rank(group: dist.ProcessGroup) -> None:
    first = dist.get_rank(group) == 0
    for alone in (dist.new_group([0]), DeviceMesh("cpu", [0])):
        for call in calls(alone):
            if first:
                call()
            else:
                with pytest.raises(
                    ValueError, match=r"^this process is not in group: .*; call it only on the ranks of the group$"
                ):
                    call()


def check_no_group(group: dist.ProcessGroup) -> None:
    for wrong in ("gloo", 3, [0, 1], dist.group):
        for call in calls(wrong):
            text = refused(call, group)
            assert text == (
                "TypeError: group must be a ProcessGroup, a one-dimensional DeviceMesh or None (this process alone), "
                f"got {wrong!r}"
            )
