"""`packed_layout` against NeMo's own on random tables: the same fields, or a refusal from both."""

from typing import Any

import numpy as np
import pytest
import torch
from nemo_automodel.components.models.deepseek_v41 import packing

from alignpack import packed_layout

FIELDS = ("source_indices", "input_positions", "position_ids", "sequence_ids")
TABLES = 20_000


def random_call(random: np.random.Generator) -> dict[str, Any]:
    """Arguments of `packed_layout`: right ones, mostly, and any one thing that may be wrong with them."""
    batch, documents, alignment = (int(random.integers(low, high)) for low, high in ((0, 4), (0, 6), (1, 10)))
    lengths = random.integers(1, 9, (batch, documents))
    spans = lengths + random.integers(0, 4, lengths.shape)
    absent = random.random(lengths.shape) < 0.2
    lengths[absent] = random.choice([0, -1000], absent.sum())
    spans[absent] = random.choice([0, -1000], absent.sum())
    packed = random.random() < 0.4
    occupied = np.maximum(lengths if packed else spans, 0).sum(axis=1).max(initial=0)
    if lengths.size and random.random() < 0.3:
        place = tuple(random.integers(0, size) for size in lengths.shape)
        (lengths if random.random() < 0.5 else spans)[place] = random.choice([-1000, -999, -1, 0, 1, 12, 2**31 - 1])
    tables = [torch.tensor(table, dtype=(torch.int32, torch.int64)[random.integers(2)]) for table in (lengths, spans)]
    if batch == 1:
        tables = [table[0] if random.random() < 0.3 else table for table in tables]
    if random.random() < 0.03:
        tables[random.integers(2)] = torch.zeros(
            2, 3, dtype=(torch.int16, torch.float32, torch.int64)[random.integers(3)]
        )
    return {
        "seq_lens": tables[0],
        "seq_lens_padded": None if packed else tables[1],
        "input_shape": (batch, int(occupied + random.choice([-1, 0, 0, 0, 5]).clip(-occupied))),
        "alignment": alignment if random.random() < 0.97 else int(random.integers(-1, 1)),
        "minimum_length": int(random.choice([0, 0, 7, 40])),
    }


def test_random_tables_give_the_same_layouts_and_refusals() -> None:
    accepted = 0
    for seed in range(TABLES):
        call = random_call(np.random.default_rng(seed))
        try:
            theirs = packing.packed_layout(**call)
        except ValueError:
            with pytest.raises(ValueError, match=r"seq_lens|alignment"):
                packed_layout(**call)
            continue
        ours = packed_layout(**call)
        accepted += 1
        for name in FIELDS:
            mine, other = getattr(ours, name), getattr(theirs, name)
            assert mine.dtype == other.dtype, (seed, name)
            assert torch.equal(mine, other), (seed, name)
    assert 0.5 < accepted / TABLES < 0.9


@pytest.mark.parametrize("trailing", [(), (3,)])
@pytest.mark.parametrize("fill", [0, -100])
def test_values_and_gradients_are_the_same(trailing: tuple[int, ...], fill: int) -> None:
    call: dict[str, Any] = {
        "seq_lens": torch.tensor([[3, 0, 5], [8, 1, -1000]]),
        "seq_lens_padded": torch.tensor([[4, 0, 6], [9, 2, 0]]),
        "input_shape": (2, 12),
        "alignment": 4,
    }
    values = torch.randn(2, 12, *trailing)
    found = []
    for layout in (packed_layout(**call), packing.packed_layout(**call)):
        leaf = values.clone().requires_grad_()
        packed = layout.pack(leaf, fill=fill)
        restored = layout.restore(packed.sin())
        (gradient,) = torch.autograd.grad(restored.pow(2).sum(), leaf)
        found.append((packed, restored, gradient))
    for mine, other in zip(*found, strict=True):
        assert torch.equal(mine, other)


def test_refusals_keep_the_words_that_upstream_matches() -> None:
    """Upstream's context-parallel test matches "physical spans" where a document leaves its row."""
    with pytest.raises(ValueError, match="physical spans"):
        packed_layout(torch.tensor([14]), None, (1, 13), alignment=1)


STRICTER: list[tuple[str, Any]] = [
    ("a fill that the dtype cannot hold", lambda layout: layout.pack(torch.zeros(1, 8, dtype=torch.int64), fill=0.5)),
    ("values of another batch", lambda layout: layout.pack(torch.zeros(2, 8))),
    ("values of another width", lambda layout: layout.pack(torch.zeros(1, 9))),
]


@pytest.mark.parametrize("call", [call for _, call in STRICTER], ids=[name for name, _ in STRICTER])
def test_where_alignpack_is_stricter(call: Any) -> None:
    """What docs/nemo.md says that NeMo takes and alignpack refuses."""
    arguments: dict[str, Any] = {
        "seq_lens": torch.tensor([[3, 5]]),
        "seq_lens_padded": None,
        "input_shape": (1, 8),
        "alignment": 4,
    }
    call(packing.packed_layout(**arguments))
    with pytest.raises((TypeError, ValueError)):
        call(packed_layout(**arguments))


def test_booleans_are_not_integers() -> None:
    arguments: dict[str, Any] = {"seq_lens": torch.tensor([[3]]), "seq_lens_padded": None, "input_shape": (1, 3)}
    assert packing.packed_layout(**arguments, alignment=True).source_indices.shape == (1, 3)
    with pytest.raises(TypeError, match="alignment must be an integer, got True"):
        packed_layout(**arguments, alignment=True)
