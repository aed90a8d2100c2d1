"""The cases of the suite and what each must reach, by backend."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import get_args

import torch

import alignpack
from alignpack._backends import BackendName
from bench import workloads
from bench.workloads import Prepare, Sizes

CPU = torch.device("cpu")
RUNNING: list[BackendName] = [name for name in get_args(BackendName) if alignpack.backends()["cpu"][name] is None]
"""The backends that run here, the fastest first."""

Targets = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Case:
    """One operation at one size.

    Attributes:
        against: the rivals and limits that are timed; all rivals are compared with alignpack.
        targets: by backend: how many times as fast as a rival alignpack is to be, at least, and how many times as long as
            a limit it may take, at most. What has no target is reported, not judged.
        memory: the most memory of results plus temporaries, as a multiple of the results; None is not judged.
    """

    name: str
    sizes: Sizes
    prepare: Prepare
    against: tuple[str, ...]
    targets: Targets = field(default_factory=dict)
    memory: float | None = None


ROW = Sizes(1, 512, 4, (64,), torch.float32)
WIDE = Sizes(4, 8192, 16, (1024,), torch.bfloat16)
IDS = Sizes(8, 8192, 16)
HUGE = Sizes(64, 131072, 1024)
TINY = Sizes(1, 64, 2, (8,), torch.float32)


def _layout_case(documents: int, **loop: float) -> Case:
    unit = "document" if documents == 1 else "documents"
    targets = {backend: {"loop": least} for backend, least in loop.items()}
    name = f"layout, 8 x 8192, {documents} {unit} a row"
    return Case(name, Sizes(8, 8192, documents), workloads.layout, ("loop", "zeros"), targets)


def _groups_case(sizes: Sizes) -> Case:
    name = f"groups of {sizes.alignment}, {sizes.batch} x {sizes.sequence}"
    targets = {"numba": {"zeros": 1.5}, "torch": {"zeros": 4.0}}
    return Case(name, sizes, workloads.groups, ("composed", "zeros"), targets)


def _shift_case(sizes: Sizes) -> Case:
    targets = {name: {"zeros": 3.0} for name in ("numba", "torch")}
    return Case(f"shift, {sizes.batch} x {sizes.sequence}", sizes, workloads.shift, ("composed", "zeros"), targets)


def _packing_a_shard_case(sizes: Sizes, shape: str, memory: float | None = None) -> Case:
    targets = {name: {"full pack": 0.2} for name in ("numba", "torch")}
    name = f"pack with shard 3 of 8, {shape}"
    return Case(name, sizes, workloads.packing_a_shard, ("composed", "full pack"), targets, memory)


CASES = (
    Case("layout, 1 x 512, 4 documents a row", ROW, workloads.layout, ("loop", "zeros")),
    _layout_case(8, numba=20),
    _layout_case(64, numba=150, torch=8),
    _layout_case(512, numba=500, torch=60),
    Case(
        "layout, 64 x 131072, 1024 documents a row",
        HUGE,
        workloads.layout,
        ("loop", "zeros"),
        {"numba": {"zeros": 1.3}},
    ),
    Case(
        "pack, [1, 64, 8] float32",
        TINY,
        workloads.pack,
        ("composed", "add"),
        {"numba": {"add": 5}, "torch": {"add": 12}},
    ),
    Case("pack, [1, 512, 64] float32", ROW, workloads.pack, ("composed", "clone")),
    Case(
        "pack, [8, 8192] int64",
        IDS,
        workloads.pack_with_peers,
        ("composed", "compiled", "jagged", "copy"),
        {"numba": {"composed": 5}, "torch": {"composed": 2.5}},
    ),
    Case("pack, [64, 131072] int64", HUGE, workloads.pack, ("composed", "clone", "copy")),
    Case(
        "pack, [4, 8192, 1024] bfloat16",
        WIDE,
        workloads.pack_with_peers,
        ("composed", "compiled", "jagged", "clone"),
        {"numba": {"clone": 1.1}, "torch": {"clone": 1.25}},
        memory=1.05,
    ),
    Case("restore, [8, 8192] int64", IDS, workloads.restore, ("composed", "clone")),
    Case("restore, [4, 8192, 1024] bfloat16", WIDE, workloads.restore, ("composed", "clone")),
    Case("pack + backward, [1, 512, 64] float32", ROW, workloads.pack_backward, ("composed", "two clones")),
    Case(
        "pack + backward, [4, 8192, 1024] bfloat16",
        WIDE,
        workloads.pack_backward_with_peers,
        ("composed", "compiled", "two clones"),
        # 2.5 times one clone is 1.25 times two.
        {name: {"composed": 3, "two clones": 1.25} for name in ("numba", "torch")},
        memory=1.05,
    ),
    Case("restore + backward, [4, 8192, 1024] bfloat16", WIDE, workloads.restore_backward, ("composed", "two clones")),
    Case("pack_batch, 3 of [8, 8192]", IDS, workloads.pack_batch, ("composed", "clone")),
    Case("shard 3 of 8 and pack, [8, 8192] int64", IDS, workloads.shard_pack, ("composed", "clone")),
    Case("shard 3 of 8 and pack, [4, 8192, 1024] bfloat16", WIDE, workloads.shard_pack, ("composed", "clone")),
    # Its results are an eighth of those of a full pack.
    _packing_a_shard_case(IDS, "[8, 8192] int64"),
    _packing_a_shard_case(WIDE, "[4, 8192, 1024] bfloat16", memory=1.05),
    _groups_case(IDS),
    _groups_case(replace(IDS, alignment=128)),
    _groups_case(HUGE),
    _groups_case(replace(HUGE, alignment=128)),
    _shift_case(IDS),
    _shift_case(HUGE),
)
