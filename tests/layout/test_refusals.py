"""What methods of a layout refuse, how `LayoutError` travels, and that a refusal allocates nothing."""

import copy
import pickle

import pytest
import torch

import alignpack
from alignpack import LayoutError
from alignpack_fuzz.targets import Target
from tests.calls import arguments, table
from tests.torch_version import PROFILER_WARNS


def test_shards(target: Target) -> None:
    layout = target.packed_layout(**arguments(length_multiple=8))
    for rank, size, error, message in (
        (2, 2, ValueError, "rank must be at least 0 and below size, got rank=2 of size=2"),
        (-1, 2, ValueError, "rank must be at least 0, got -1"),
        (0, 0, ValueError, "size must be at least 1, got 0"),
        (0.0, 2, TypeError, "rank must be an integer, got 0.0"),
        (
            *(0, 4, ValueError),
            (
                "a packed row of 8 slots cannot be cut into size=4 shards of whole groups of 4; build the layout with "
                "length_multiple=16"
            ),
        ),
        (  # Python refuses to write such integers
            *(0, 10**5000, ValueError),
            (
                "a packed row of 8 slots cannot be cut into size=an integer of 16610 bits shards of whole groups of 4; "
                "build the layout with length_multiple=an integer of 16612 bits"
            ),
        ),
        (
            *(10**5000, 10**5000, ValueError),
            (
                "rank must be at least 0 and below size, got rank=an integer of 16610 bits of size=an integer of "
                "16610 bits"
            ),
        ),
    ):
        with pytest.raises(error) as caught:
            layout.shard(rank, size)
        assert str(caught.value) == message
    with pytest.raises(ValueError, match=r"length_multiple=16$"):
        layout.shard(1, 2).shard(0, 2)


def test_a_layout_is_sliced_by_rows_only(target: Target) -> None:
    layout = target.packed_layout(**arguments())
    for key in (0, (slice(None), 1), [0], slice("a", None), slice(None, 1.0), slice(None, None, "a")):
        with pytest.raises(TypeError) as caught:
            layout[key]
        assert str(caught.value) == f"a layout is sliced by rows, layout[i:j], got {key!r}"
    for step, shown in ((-1, "-1"), (0, "0"), (-(10**5000), "an integer of 16610 bits")):
        with pytest.raises(ValueError, match=rf"^a layout is sliced forward, .* got {shown}$"):
            layout[::step]


def test_layout_error_is_a_plain_exception() -> None:
    bare = LayoutError("only a message")  # as a DataLoader worker raises it again
    assert (str(bare), bare.row, bare.document) == ("only a message", None, None)
    with pytest.raises(LayoutError) as caught:
        alignpack.packed_layout(**arguments(seq_lens=table([[3, 9]])))
    for duplicate in (pickle.loads(pickle.dumps(caught.value)), copy.copy(caught.value)):
        assert type(duplicate) is LayoutError
        assert (str(duplicate), duplicate.row, duplicate.document) == (str(caught.value), 0, 1)


@PROFILER_WARNS
def test_nothing_is_allocated_before_a_refusal(fast: Target) -> None:
    """A row of 2**31 - 1 slots is legal; were anything of its size allocated, 16 GiB would be touched."""
    wrong = arguments(seq_lens=table([[-1, 2]]), input_shape=(1, 2**31 - 1), minimum_length=2**30)
    with torch.profiler.profile(profile_memory=True) as run, pytest.raises(LayoutError):
        fast.packed_layout(**wrong)
    assert sum(event.self_cpu_memory_usage for event in run.key_averages()) == 0
