"""`layouts.json` on every implementation."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from alignpack import LayoutError
from alignpack_fuzz.targets import Target

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "layouts.json").read_text())
FIELDS = ("source_indices", "input_positions", "position_ids", "sequence_ids")


def build(case: dict[str, Any], target: Target) -> Any:
    seq_lens, seq_lens_padded = (
        None if case[name] is None else torch.tensor(case[name], dtype=getattr(torch, case["dtype"]))
        for name in ("seq_lens", "seq_lens_padded")
    )
    return target.packed_layout(
        seq_lens,
        seq_lens_padded,
        tuple(case["input_shape"]),
        case["alignment"],
        case["minimum_length"],
        length_multiple=case.get("length_multiple"),
    )


@pytest.mark.parametrize("case", [case for case in CASES if "expect" in case], ids=lambda case: case["id"])
def test_fields(case: dict[str, Any], target: Target) -> None:
    layout = build(case, target)
    assert {name: getattr(layout, name).tolist() for name in FIELDS} == case["expect"]
    assert {getattr(layout, name).dtype for name in FIELDS} == {torch.int64}


@pytest.mark.parametrize("case", [case for case in CASES if "error" in case], ids=lambda case: case["id"])
def test_errors(case: dict[str, Any], target: Target) -> None:
    error = case["error"]
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the texts are tested elsewhere, here the place
        build(case, target)
    assert isinstance(caught.value, LayoutError) == (error["row"] is not None)
    place = getattr(caught.value, "row", None), getattr(caught.value, "document", None)
    assert place == (error["row"], error["document"])
