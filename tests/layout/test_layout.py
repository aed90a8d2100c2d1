"""The layout as an object: what it says of itself, how it is copied, moved, rebuilt and passed around."""

import dataclasses
import inspect
import io
import json
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils._pytree as pytree

import alignpack
from alignpack import PackedSequenceLayout, packed_layout
from alignpack._inputs import tables
from alignpack_fuzz.compare import assert_same_bits
from alignpack_fuzz.targets import Target


def build() -> PackedSequenceLayout:
    return packed_layout(torch.tensor([[3, 2], [4, 0]]), torch.tensor([[4, 4], [4, 0]]), (2, 8), 4)


def test_fields_and_signatures_are_the_contract() -> None:
    names = [field.name for field in dataclasses.fields(PackedSequenceLayout)]
    assert names[:4] == ["source_indices", "input_positions", "position_ids", "sequence_ids"]
    keyword_only = {field.name: field.default for field in dataclasses.fields(PackedSequenceLayout) if field.kw_only}
    assert keyword_only == {"alignment": 1, "offset": 0, "row_length": None}
    parameters = {name: (p.kind.name, p.default) for name, p in inspect.signature(packed_layout).parameters.items()}
    required = ("POSITIONAL_OR_KEYWORD", inspect.Parameter.empty)
    assert parameters == {
        "seq_lens": required,
        "seq_lens_padded": required,
        "input_shape": required,
        "alignment": required,
        "minimum_length": ("POSITIONAL_OR_KEYWORD", 0),
        "length_multiple": ("KEYWORD_ONLY", None),
        "device": ("KEYWORD_ONLY", None),
        "backend": ("KEYWORD_ONLY", None),
    }


def test_arguments_are_left_alone() -> None:
    lengths, spans = torch.tensor([[3, -1000]], dtype=torch.int32), torch.tensor([[4, 0]])
    packed_layout(lengths, spans, torch.Size((1, 8)), 4)
    assert (lengths.tolist(), spans.tolist()) == ([[3, -1000]], [[4, 0]])


def test_a_layout_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        build().alignment = 2  # type: ignore[misc]


def test_repr_shows_shapes_and_integers_but_no_data() -> None:
    assert repr(build().shard(0, 1)) == (
        "PackedSequenceLayout(source_indices=[2, 8], input_positions=[2, 8], position_ids=[2, 8], "
        "sequence_ids=[2, 8], device=cpu, alignment=4, offset=0, row_length=8)"
    )
    placeholders = pytree.tree_map(lambda _: None, build())
    assert repr(placeholders).startswith("PackedSequenceLayout(source_indices=NoneType, ")


def test_padding_mask() -> None:
    mask = build().padding_mask
    assert mask.dtype == torch.bool
    assert mask.long().tolist() == [[0, 0, 0, 1, 0, 0, 1, 1], [0, 0, 0, 0, 1, 1, 1, 1]]


def test_equal_looks_at_fields_integers_and_devices() -> None:
    layout = build()
    assert layout.equal(build())
    assert not layout.equal(layout[:1])
    assert not layout.equal(layout.to("meta"))
    assert not layout.equal("a layout")
    assert not layout.equal(dataclasses.replace(layout, alignment=2))
    assert not layout.equal(dataclasses.replace(layout, offset=4))
    assert not layout.equal(dataclasses.replace(layout, row_length=16))
    for name in ("source_indices", "input_positions", "position_ids", "sequence_ids"):
        assert not layout.equal(dataclasses.replace(layout, **{name: getattr(layout, name) + 1}))


def test_to_moves_every_tensor_and_keeps_the_integers() -> None:
    shard = packed_layout(torch.tensor([[3, 5]]), None, (1, 8), 4, 16).shard(1, 2)
    moved = shard.to("meta", non_blocking=True)
    assert {tensor.device.type for tensor in moved._tensors()} == {"meta"}
    assert moved._integers() == (4, 8, 16)


def test_to_passes_non_blocking_on(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[object] = []

    def to(tensor: torch.Tensor, _device: object, *, non_blocking: bool) -> torch.Tensor:
        passed.append(non_blocking)
        return tensor

    layout = build()
    monkeypatch.setattr(torch.Tensor, "to", to)
    layout.to("cpu")
    layout.to("cpu", non_blocking=True)
    assert passed == [False] * 4 + [True] * 4


def test_the_integers_are_plain() -> None:
    layout = packed_layout(torch.tensor([[3]]), None, (1, 3), np.int64(4))  # type: ignore[arg-type]
    assert type(layout.alignment) is int


def test_host_tables_are_copied_before_they_are_checked() -> None:
    """What another thread writes to them afterwards changes nothing that was checked."""
    lengths, spans = torch.tensor([[3, 2]]), torch.tensor([[4, 4]], dtype=torch.int32)
    read, read_spans = tables._to_host(lengths, spans)
    assert read_spans is not None
    lengths.zero_()
    spans.zero_()
    assert (read.tolist(), read_spans.tolist()) == ([[3, 2]], [[4, 4]])


def test_tables_that_cross_in_one_copy_keep_their_places() -> None:
    lengths, spans = tables._in_one_copy(torch.tensor([[3, 2]]), torch.tensor([[4, 4]], dtype=torch.int32))
    assert (lengths.tolist(), spans.tolist()) == ([[3, 2]], [[4, 4]])


@pytest.mark.parametrize("wrong", [torch.bfloat16, None, 1.0, True])
def test_to_takes_devices_only(wrong: Any) -> None:
    with pytest.raises(TypeError) as caught:
        build().to(wrong)
    assert str(caught.value) == f"device must be a device or a tensor on it, got {wrong!r}"


def test_to_a_tensor_moves_to_its_device_and_keeps_the_dtypes() -> None:
    moved = build().to(torch.zeros(1, dtype=torch.float16, device="meta"))
    assert {(tensor.device.type, tensor.dtype) for tensor in moved._tensors()} == {("meta", torch.int64)}


def test_cpu_and_cuda_are_those_of_a_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = build()
    assert layout.cpu().equal(layout)
    asked: list[object] = []
    monkeypatch.setattr(
        type(layout), "to", lambda _self, device, non_blocking=False: asked.append((device, non_blocking))
    )
    layout.cuda()
    layout.cuda(1, non_blocking=True)
    layout.cpu()
    assert asked == [("cuda", False), (1, True), ("cpu", False)]


def test_a_slice_keeps_no_other_rows_alive() -> None:
    part = build()[1:]
    assert {tensor.untyped_storage().nbytes() for tensor in part._tensors()} == {8 * 8}


@pytest.mark.parametrize("trailing", [(), (3,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
def test_a_layout_without_data_gives_shapes(trailing: tuple[int, ...], dtype: torch.dtype) -> None:
    """On the meta device, where nothing can be read: so nothing on the way of a device tensor makes the host wait."""
    layout = packed_layout(torch.tensor([[3, 2], [4, 0]]), None, (2, 5), 4).to("meta")
    packed = layout.pack(torch.empty(2, 5, *trailing, dtype=dtype, device="meta"), 1)
    assert (packed.shape, packed.dtype, packed.device.type) == ((2, 8, *trailing), dtype, "meta")
    assert layout.restore(packed).shape == (2, 5, *trailing)


def test_pin_memory_asks_for_every_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self + 1)  # pinning itself needs an accelerator
    layout = build()
    pinned = layout.pin_memory()
    for pinned_tensor, tensor in zip(pinned._tensors(), layout._tensors(), strict=True):
        assert torch.equal(pinned_tensor, tensor + 1)


def test_the_device_of_the_layout() -> None:
    lengths = torch.tensor([[3, 2]])
    assert packed_layout(lengths, None, (1, 5), 4).source_indices.device.type == "cpu"
    assert packed_layout(lengths, None, (1, 5), 4, device="meta").source_indices.device.type == "meta"
    with torch.device("meta"):  # a default device moves nothing
        assert packed_layout(lengths, None, (1, 5), 4).equal(packed_layout(lengths, None, (1, 5), 4, device="cpu"))


def test_pytree_has_tensors_as_leaves_and_integers_as_context() -> None:
    shard = packed_layout(torch.tensor([[3, 5]]), None, (1, 8), 4, 16).shard(1, 2)
    leaves, spec = pytree.tree_flatten({"layout": shard})
    assert [id(leaf) for leaf in leaves] == [id(tensor) for tensor in shard._tensors()]
    assert pytree.tree_unflatten(leaves, spec)["layout"].equal(shard)
    paths = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(shard)[0]]
    assert paths == [".source_indices", ".input_positions", ".position_ids", ".sequence_ids"]
    serialised = pytree.treespec_dumps(spec)
    assert "alignpack.PackedSequenceLayout" in json.dumps(serialised)
    assert pytree.tree_unflatten(leaves, pytree.treespec_loads(serialised))["layout"].equal(shard)
    assert spec == pytree.treespec_loads(serialised)


def test_pack_batch_packs_each_tensor(fast: Target) -> None:
    layout = fast.packed_layout(torch.tensor([[3, 2]]), torch.tensor([[4, 4]]), (1, 8), 4)
    batch = {
        "ids": torch.arange(8).unsqueeze(0),
        "labels": torch.arange(8).unsqueeze(0),
        "mask": torch.ones(1, 8, dtype=torch.bool),
        "embedding": torch.randn(1, 8, 3, requires_grad=True),
    }
    packed = layout.pack_batch(batch, fill={"labels": -100})
    assert list(packed) == list(batch)
    for name, values in batch.items():
        assert_same_bits(packed[name], layout.pack(values, -100 if name == "labels" else 0))
    assert packed["embedding"].requires_grad
    for name, values in layout.pack_batch(batch, fill=1).items():
        assert_same_bits(values, layout.pack(batch[name], 1))
    assert layout.pack_batch({}) == {}


def test_pack_batch_takes_any_mapping_and_keeps_the_sign_of_a_fill() -> None:
    layout = packed_layout(torch.tensor([[3]]), None, (1, 3), 4)
    batch = MappingProxyType({"x": torch.ones(1, 3)})
    assert_same_bits(
        layout.pack_batch(batch, MappingProxyType({"x": -0.0}))["x"], torch.tensor([[1.0, 1.0, 1.0, -0.0]])
    )
    with pytest.raises(TypeError, match=r"^fill\['x'\] must be a Python or NumPy number"):
        layout.pack_batch(batch, {"x": None})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("batch", "fill", "error", "message"),
    [
        ({"ids": torch.zeros(1, 7)}, 0, ValueError, "batch['ids'] must have shape [1, 8, ...] to fit the layout, got [1, 7]"),
        ({"ids": [0] * 8}, 0, TypeError, "batch['ids'] must be a torch.Tensor, got list"),
        ({"ids": torch.zeros(1, 8)}, {"idz": 1}, ValueError, "fill has no tensor to fill for ['idz']; the batch holds ['ids']"),
        ({"ids": torch.zeros(1, 8)}, {"ids": "0"}, TypeError, "fill['ids'] must be a Python or NumPy number (no long double), got str"),
        ({"m": torch.zeros(1, 8).bool()}, -100, ValueError, "fill['m'] must be 0 or 1 for bool, got -100"),
        ({"x": torch.zeros(1, 8, device="meta")}, 0, ValueError, "batch['x'] must be on the device of the layout, cpu, got meta"),
    ],
)  # fmt: skip
def test_pack_batch_names_the_key(batch: dict[str, torch.Tensor], fill: object, error: type, message: str) -> None:
    layout = packed_layout(torch.tensor([[3, 2]]), torch.tensor([[4, 4]]), (1, 8), 4)
    with pytest.raises(error) as caught:
        layout.pack_batch({"good": torch.zeros(1, 8)} | batch, {"good": 0} | fill if isinstance(fill, dict) else fill)  # type: ignore[arg-type]
    assert str(caught.value).replace("['good', 'ids']", "['ids']") == message


def test_a_batch_is_a_mapping() -> None:
    with pytest.raises(TypeError) as caught:
        build().pack_batch([torch.zeros(2, 8)])  # type: ignore[arg-type]
    assert str(caught.value) == "batch must be a mapping from names to tensors, got list"


def test_pack_batch_packs_nothing_when_one_tensor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[object] = []
    monkeypatch.setattr("alignpack.layout.gather_slots", lambda *arguments: packed.append(arguments))
    with pytest.raises(ValueError, match="second"):
        build().pack_batch({"first": torch.zeros(2, 8), "second": torch.zeros(2, 9)})
    assert packed == []


def test_a_shard_packs_without_the_other_columns() -> None:
    layout = packed_layout(torch.tensor([[3, 5]]), None, (1, 8), 4, 16)
    shard = layout.shard(1, 2)
    values = torch.full((1, 8), float("nan"))
    values[0, 7] = 5.0  # the only token that this rank owns
    assert shard.pack(values).tolist() == [[5, 0, 0, 0, 0, 0, 0, 0]]
    for name in ("source_indices", "position_ids", "sequence_ids"):
        assert getattr(shard, name).untyped_storage().nbytes() == 8 * 8  # a copy, which does not keep the row alive


def test_a_shard_made_under_inference_mode_serves_training() -> None:
    with torch.inference_mode():
        shard = build().shard(0, 2)
    assert not any(tensor.is_inference() for tensor in shard._tensors())


def test_shards_of_shards_know_their_place() -> None:
    layout = packed_layout(torch.tensor([[3, 5]]), None, (1, 8), 2, 16)
    for first in range(2):
        for second in range(2):
            nested, direct = layout.shard(first, 2).shard(second, 2), layout.shard(2 * first + second, 4)
            assert nested.equal(direct)
            assert (nested.offset, nested.row_length) == (8 * first + 4 * second, 16)


def test_minimum_length_that_keeps_shapes_constant() -> None:
    enough = 12 + 3 * (4 - 1)
    widths = {
        packed_layout(torch.tensor([lengths]), None, (1, 12), 4, enough).source_indices.shape[1]
        for lengths in ([1, 1, 1], [4, 4, 4], [5, 5, 1], [1, 10, 1], [9, 1, 1], [0, -1000, 0], [1, 1, 10])
    }
    assert widths == {24}


def test_the_public_names() -> None:
    assert sorted(alignpack.__all__) == [
        "CompressionGroups",
        "LayoutError",
        "PackedSequenceLayout",
        "__version__",
        "backends",
        "compression_alignment",
        "packed_layout",
        "warmup",
    ]


def test_a_saved_layout_loads_without_being_trusted() -> None:
    layout, stored = build(), io.BytesIO()
    torch.save(layout, stored)
    stored.seek(0)
    assert torch.load(stored, weights_only=True).equal(layout)
