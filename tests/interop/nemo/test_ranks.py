"""Ranks that compare NeMo's context parallelism with alignpack in it."""

from pathlib import Path

import pytest
import torch.multiprocessing as processes

from tests.documents import run_blocks
from tests.interop.nemo import ranks
from tests.interop.nemo.swapping import swapped

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("check", "size"),
    [
        ("shards_are_equal", 2),
        ("shards_are_equal", 3),
        ("a_model_trains_alike", 2),
        ("a_model_trains_alike", 3),
        ("two_results_that_look_like_bugs", 2),
    ],
)
def test_ranks(check: str, size: int, tmp_path: Path) -> None:
    store = (tmp_path / "store").as_uri()
    processes.spawn(ranks.run, (size, store, check), nprocs=size)  # type: ignore[attr-defined,no-untyped-call]


def test_the_document_runs() -> None:
    with swapped():
        assert "shard_cp_batch" in run_blocks(ranks.DOCUMENT)
