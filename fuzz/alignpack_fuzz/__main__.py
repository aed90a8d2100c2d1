"""`alignpack-fuzz`: check an implementation of the contract against its laws."""

import argparse
import importlib.util
import json
import math
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alignpack_fuzz.checking import Run
    from alignpack_fuzz.laws import Law
    from alignpack_fuzz.targets import Target

EXAMPLES = 200
CLEAN, FOUND, USAGE = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0 clean, 1 found, 2 wrong usage."""
    if importlib.util.find_spec("hypothesis") is None:
        print("alignpack-fuzz needs Hypothesis: python -m pip install 'alignpack[fuzz]'", file=sys.stderr)
        return USAGE
    from alignpack_fuzz.laws import choose
    from alignpack_fuzz.lookup import find_target

    options = _parser().parse_args(arguments)
    # Checked before the run, which may take hours.
    if options.report is not None and not options.report.parent.is_dir():
        print(f"alignpack-fuzz: there is no folder {options.report.parent} for the report", file=sys.stderr)
        return USAGE
    if options.report is not None and options.report.is_dir():
        print(f"alignpack-fuzz: {options.report} is a folder; name a file for the report", file=sys.stderr)
        return USAGE
    try:
        target, laws = find_target(options.target), choose(options.laws)
    except ValueError as error:
        print(f"alignpack-fuzz: {error}", file=sys.stderr)
        return USAGE
    return _fuzz(target, laws, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="alignpack-fuzz",
        description="Check an implementation of aligned packed layouts against the laws of the contract.",
        epilog="Exit status: 0 nothing found, 1 a law is broken, 2 wrong usage.",
    )
    parser.add_argument(
        "--target",
        default="alignpack",
        help="alignpack (default), alignpack:backend=NAME, reference, or a module or .py file with a packed_layout",
    )
    parser.add_argument(
        "--laws", default="", help="core, strict, or names of laws, with commas; default: all that apply"
    )
    parser.add_argument("--examples", type=_positive, metavar="N", help=f"examples per law, default {EXAMPLES}")
    parser.add_argument("--minutes", type=_minutes, metavar="M", help="repeat all laws with new examples for M minutes")
    parser.add_argument("--seed", type=int, help="of the examples; default: a new one, which is printed")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write a JSON report")
    parser.add_argument(
        "--database",
        type=Path,
        default=Path(".alignpack-fuzz"),
        metavar="FOLDER",
        help="where failing examples are kept, to be tried first next time; default .alignpack-fuzz",
    )
    return parser


def _fuzz(target: "Target", laws: "list[Law]", options: argparse.Namespace) -> int:
    from alignpack_fuzz import report
    from alignpack_fuzz.checking import Run

    seed = random.randrange(2**32) if options.seed is None else options.seed
    until = math.inf if options.minutes is None else time.monotonic() + 60 * options.minutes
    runs = {law.name: Run(law, target) for law in laws}
    progress = _Progress(len(laws))
    print(f"{target.name}: {len(laws)} laws, seed {seed}")
    try:
        _go_round(runs, options, seed, until, progress)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    progress.clear()
    found = [run for run in runs.values() if run.error is not None]
    unreached = [run for run in runs.values() if run.error is None and run.examples == 0]
    for run in found:
        replay = f"alignpack-fuzz --target {options.target} --laws {run.law.name} --seed {seed}"
        print(f"\n{report.finding(run, replay)}")
    examples = sum(run.examples for run in runs.values())
    unknown = f", {len(unreached)} were not reached" if unreached else ""
    print(f"{len(laws) - len(found) - len(unreached)} laws hold, {len(found)} are broken{unknown}; {examples} examples")
    if options.report is not None:
        options.report.write_text(json.dumps(report.as_json(list(runs.values()), seed), indent=2) + "\n")
    return FOUND if found else CLEAN


def _go_round(
    runs: "dict[str, Run]", options: argparse.Namespace, seed: int, until: float, progress: "_Progress"
) -> None:
    """Check each law once, or, when a time is given, again and again with new examples, until it is broken."""
    from alignpack_fuzz.checking import check

    turn = 0
    while True:
        for number, run in enumerate(runs.values(), start=1):
            if run.error is not None or time.monotonic() >= until:
                continue
            progress.show(number, run)
            later = check(
                run.law,
                run.target,
                examples=options.examples or EXAMPLES,
                seed=seed + turn,
                database=options.database,
                until=until,
            )
            run.add(later)
            if turn == 0:
                progress.done(run)
        turn += 1
        over = time.monotonic() >= until or all(run.error is not None for run in runs.values())
        if until == math.inf or over:
            return


class _Progress:
    """One rewritten line on a terminal, a line per law elsewhere."""

    def __init__(self, laws: int) -> None:
        self._laws = laws
        self._terminal = sys.stdout.isatty()

    def show(self, number: int, run: "Run") -> None:
        if self._terminal:
            print(f"\r\033[Klaw {number} of {self._laws}: {run.law.name}, {run.examples} examples", end="", flush=True)

    def done(self, run: "Run") -> None:
        if not self._terminal:
            unbroken = "holds" if run.examples else "not reached"
            result = unbroken if run.error is None else "BROKEN"
            print(f"{run.law.name}: {result}, {run.examples} examples in {run.seconds:.1f} s", flush=True)

    def clear(self) -> None:
        if self._terminal:
            print("\r\033[K", end="")


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def _minutes(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 < number < math.inf:  # NaN would never be over
        raise argparse.ArgumentTypeError(f"{text} is not a time: it must be above 0 and finite")
    return number


if __name__ == "__main__":
    sys.exit(main())
