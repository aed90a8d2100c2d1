"""What each rank of a launch compares; `test_ranks.py` starts them. Ranks are spawned, so they import this file alone."""

from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from nemo_automodel.components.models.deepseek_v41 import cp
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from tests.documents import run_blocks
from tests.interop.nemo.model import LENGTHS, VOCABULARY, tiny_model
from tests.interop.nemo.swapping import swapped
from tests.paths import ROOT

BATCHES = 60
DOCUMENT = ROOT / "docs" / "nemo.md"


def run(rank: int, size: int, store: str, check: str) -> None:
    """One check on one rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size, timeout=timedelta(seconds=60))
    try:
        globals()[check](init_device_mesh("cpu", (size,), mesh_dim_names=("cp",)))
    finally:
        dist.destroy_process_group()


def random_batch(seed: int, alignment: int) -> dict[str, Any]:
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 12, (2, 4), generator=random)
    lengths[torch.rand(2, 4, generator=random) < 0.2] = -1000
    spans = torch.where(lengths > 0, lengths + torch.randint(0, 3, (2, 4), generator=random), 0)
    shape = 2, int(spans.sum(dim=1).max()) + alignment
    ids = torch.randint(1, VOCABULARY, shape, generator=random)
    return {"input_ids": ids, "labels": ids + 100, "seq_lens": lengths, "seq_lens_padded": spans}


def shards_are_equal(mesh: DeviceMesh) -> None:
    """NeMo's `shard_cp_batch`, the same with alignpack's layout in it, and the one of docs/nemo.md."""
    with swapped():
        documented = run_blocks(DOCUMENT)["shard_cp_batch"]
    for seed in range(BATCHES):
        for synchronised in (False, True):
            alignment = (2, 4)[seed % 2]
            # With one width for all, ranks may hold different rows.
            batch = random_batch(seed + 1000 * synchronised * mesh.get_local_rank(), alignment)
            options: dict[str, Any] = {
                "padding_token_id": 5,
                "pad_multiple": alignment,
                "packed_alignment": alignment,
                "sync_packed_length": synchronised,
            }
            _, theirs, their_layout = cp.shard_cp_batch(mesh, None, dict(batch), **options)
            with swapped():
                _, ours, our_layout = cp.shard_cp_batch(mesh, None, dict(batch), **options)
            same_batch(ours, theirs)
            assert our_layout.padded_seq_len == their_layout.padded_seq_len
            assert torch.equal(our_layout.input_token_stream_positions, their_layout.input_token_stream_positions)

            rewritten, layout = documented(mesh, batch, **options)
            assert torch.equal(layout.input_positions, their_layout.input_token_stream_positions)
            # NeMo's positions go on counting in the padding that context parallelism adds.
            theirs["position_ids"] = theirs["position_ids"] * theirs["attention_mask"]
            same_batch(rewritten, theirs)


def same_batch(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert set(ours) == set(theirs)
    for name, value in theirs.items():
        if isinstance(value, torch.Tensor):
            assert ours[name].dtype == value.dtype, name
            assert torch.equal(ours[name], value), name
        else:
            assert ours[name] is value, name


def a_model_trains_alike(mesh: DeviceMesh) -> None:
    """Local logits and gradients with NeMo's gather and with alignpack's."""
    ids = torch.randint(0, VOCABULARY, (1, sum(LENGTHS)), generator=torch.Generator().manual_seed(2))
    batch = {"input_ids": ids, "labels": ids, "seq_lens": torch.tensor([LENGTHS])}
    found = []
    for swap in (nullcontext(), swapped()):
        model = tiny_model(seed=0)
        with swap:
            _, local, _ = cp.shard_cp_batch(mesh, None, dict(batch), pad_multiple=2, packed_alignment=2)
            labels = local.pop("labels")
            logits = model(**local).logits
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum").backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
        found.append(gradients | {"logits": logits.detach()})
    theirs, ours = found
    assert list(ours) == list(theirs)
    assert len(ours) > 50
    for name, tensor in theirs.items():
        if mesh.size() == 2 or name == "logits":  # a sum of two has one order
            assert torch.equal(ours[name], tensor), name
        else:
            torch.testing.assert_close(ours[name], tensor)


def two_results_that_look_like_bugs(mesh: DeviceMesh) -> None:
    """The smallest cases of docs/nemo.md, whose table holds these rows."""
    assert mesh.size() == 2
    ids = torch.tensor([[1, 2, 3, 4, 5, 0]])
    batch = {"input_ids": ids, "seq_lens": torch.tensor([[3, 2]]), "loss_mask": torch.ones_like(ids), "labels": ids}
    options = {"pad_multiple": 2, "packed_alignment": 2}
    _, theirs, _ = cp.shard_cp_batch(mesh, None, dict(batch), **options)
    with swapped():
        ours, _ = run_blocks(DOCUMENT)["shard_cp_batch"](mesh, batch, **options)
    rows = DOCUMENT.read_text()
    if mesh.get_local_rank() == 1:
        assert theirs["loss_mask"].shape[1] > theirs["input_ids"].shape[1]
        for name in ("input_ids", "loss_mask", "position_ids"):
            for found in (theirs, ours):
                assert f"`{found[name][0].tolist()}`" in rows, (name, found[name])
