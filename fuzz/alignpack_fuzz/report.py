"""What a run says: a finding as a picture, as a conformance entry and as a test; a run as JSON."""

import json
import platform
from typing import Any

import hypothesis
import numpy as np
import torch

import alignpack
from alignpack_fuzz.cases import Tables
from alignpack_fuzz.checking import Run
from alignpack_fuzz.compare import FIELDS, outcome
from alignpack_fuzz.edges import parts
from alignpack_fuzz.targets import REFERENCE

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SHOWN_SLOTS = 64


def finding(run: Run, replay: str) -> str:
    """A broken law as text: what it says, the case as a picture, the difference, and how to keep and repeat it."""
    assert run.error is not None
    sections = [
        f"{run.target.name} breaks the law {run.law.name}, found at example {run.found_after}.",
        f"The law: {run.law.meaning}",
        *(picture(tables, run.target) for tables in parts(run.case, Tables)),
        f"{type(run.error).__name__}: {run.error}",
        f"Case:\n{_indented(repr(run.case))}",
        f"For tests/conformance/layouts.json:\n{_indented(json.dumps(conformance_entry(run)))}",
        f"As a test:\n{_indented(snippet(run))}",
        f"Again: {replay}",
    ]
    return "\n\n".join(sections) + "\n"


def picture(tables: Tables, target: Any) -> str:
    """The rows that the reference lays out and those that the target does, a letter for each document.

    Example:
        >>> from alignpack_fuzz.targets import REFERENCE
        >>> print(picture(Tables(torch.tensor([[3, 2]]), torch.tensor([[4, 4]]), (1, 8), 4), REFERENCE))
        row 0 input     a a a . b b . .
        row 0 packed    a a a . b b . .
    """
    expected = outcome(tables.build, REFERENCE)
    if isinstance(expected, Exception):
        return f"{tables!r}\nis refused by the reference: {expected}"
    actual = outcome(tables.build, target)
    lines = []
    for row in range(tables.input_shape[0]):
        packed_ids = expected.sequence_ids[row].tolist()
        ids = [0 if column < 0 else packed_ids[column] for column in expected.input_positions[row].tolist()]
        lines += [f"row {row} input     {_drawn(ids)}", f"row {row} packed    {_drawn(packed_ids)}"]
        if not isinstance(actual, Exception):
            for name in FIELDS:
                got, wanted = (getattr(layout, name)[row : row + 1].tolist() for layout in (actual, expected))
                if got != wanted:
                    lines += [f"row {row} {name} is     {_few(got)}", f"row {row} {name} should {_few(wanted)}"]
    if isinstance(actual, Exception):
        lines.append(f"the target refuses it: {type(actual).__name__}: {actual}")
    return "\n".join(lines) or f"{tables!r} has no rows"


def conformance_entry(run: Run) -> dict[str, Any]:
    """The case's tables as an entry of `tests/conformance/layouts.json`, with the reference's answer."""
    tables = next(parts(run.case, Tables), None)
    if tables is None:
        return {"law": run.law.name, "case": repr(run.case)}
    expected = outcome(tables.build, REFERENCE)
    entry = {
        "id": f"{run.law.name}",
        "kind": run.law.meaning.split("\n")[0],
        "origin": f"alignpack-fuzz on {run.target.name}",
        "seq_lens": tables.seq_lens.tolist(),
        "seq_lens_padded": None if tables.seq_lens_padded is None else tables.seq_lens_padded.tolist(),
        "input_shape": list(tables.input_shape),
        "alignment": tables.alignment,
        "minimum_length": tables.minimum_length,
        "length_multiple": tables.length_multiple,
        "dtype": str(tables.seq_lens.dtype).removeprefix("torch."),
    }
    if isinstance(expected, Exception):
        place = {"row": getattr(expected, "row", None), "document": getattr(expected, "document", None)}
        return {**entry, "error": {"type": "ValueError", **place}}
    return {**entry, "expect": {name: getattr(expected, name).tolist() for name in FIELDS}}


def snippet(run: Run) -> str:
    """The case as a pytest test."""
    return f"""\
import numpy as np
import torch
from alignpack_fuzz.cases import *
from alignpack_fuzz.laws import LAWS
from alignpack_fuzz.lookup import find_target

nan, inf = float("nan"), float("inf")


def test_{run.law.name}():
    target = find_target({run.target.name!r})
    with target.active():
        LAWS[{run.law.name!r}].check(target, {run.case!r})
"""


def as_json(runs: list[Run], seed: int) -> dict[str, Any]:
    """All runs: versions, seed, and per law its examples, time, edges and finding."""
    return {
        "versions": {
            "alignpack": alignpack.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "hypothesis": hypothesis.__version__,
            "python": platform.python_version(),
        },
        "seed": seed,
        "laws": [
            {
                "law": run.law.name,
                "group": run.law.group,
                "target": run.target.name,
                "examples": run.examples,
                "seconds": round(run.seconds, 3),
                "examples_per_second": round(run.examples / run.seconds, 1) if run.seconds else None,
                "edges": dict(run.edges.most_common()),
                "finding": None
                if run.error is None
                else {
                    "found_after": run.found_after,
                    "error": f"{type(run.error).__name__}: {run.error}",
                    "case": repr(run.case),
                    "conformance": conformance_entry(run),
                },
            }
            for run in runs
        ],
    }


def _drawn(ids: list[int]) -> str:
    """A letter for each slot's document, a dot for padding."""
    drawn = " ".join(LETTERS[(number - 1) % len(LETTERS)] if number else "." for number in ids[:SHOWN_SLOTS])
    return f"{drawn} ... {len(ids)} slots" if len(ids) > SHOWN_SLOTS else drawn


def _few(rows: list[list[int]]) -> str:
    return " ".join(map(str, rows[0][:SHOWN_SLOTS])) if rows else "(no such row)"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())
