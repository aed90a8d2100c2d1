"""Everything that only a GPU can show, in one run of at most six minutes: correctness, speed, host cost, tuning.

Usage, from a bare checkout: `PYTHONPATH=optimized:reference:fuzz python bench/gpu_check.py --out DIR`. It writes
`DIR/gpu_check.json` and prints a short table last. Each part is a process of its own, so that one that fails, hangs or
breaks the device's context takes no other with it. The exit status is 0 when all parts passed.

`--rehearse` runs the same parts on the host, with tiny sizes and Numba's simulator: figures without meaning, but the
script itself is known to work before it meets a card.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # for the package `bench`

LIMIT = 350
"""Seconds for all parts."""

PART_LIMIT = 120
"""Seconds for one."""

LOOP = "loop, wall seconds"

ENDS = "=== gpu_check facts ==="


def versions(machine: Any) -> dict[str, Any]:
    """What is installed and which backends run; what the extras ask for and is missing is said."""
    import importlib.metadata

    from alignpack import backends

    names = ["alignpack", "torch", "numpy", "numba", "numba-cuda", "cuda-core", "cuda-bindings", "hypothesis"]
    names += ["nvidia-nvvm", "nvidia-nvjitlink", "nvidia-cuda-nvrtc"]
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return {**machine.facts(), **found, "backends": backends()}


def warm_up(machine: Any) -> dict[str, Any]:
    """How long all kernels take to compile and load."""
    from alignpack import warmup

    start = time.perf_counter()
    warmup(machine.device)
    return {"seconds": time.perf_counter() - start}


def parts() -> dict[str, Callable[[Any], dict[str, Any]]]:
    """By name, in their order; what may be slow and is known from elsewhere stands last."""
    from bench.gpu import correctness, speed

    return {
        part.__name__: part for part in (versions, warm_up, *correctness.PARTS, *speed.PARTS, correctness.sanitizer)
    }


def run_part(name: str) -> None:
    """Run one part in this process and print its facts; what it raises ends the process."""
    from bench.gpu.machine import Gpu, Rehearsal

    machine = Rehearsal() if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1" else Gpu()
    facts = parts()[name](machine)
    print(f"\n{ENDS}\n{json.dumps(facts)}")


def run_all(names: list[str], out: Path, rehearse: bool) -> dict[str, dict[str, Any]]:
    """Run the parts, each in a process of its own; the results are written after each, so that none is lost."""
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1" if rehearse else "0"}
    ends = time.monotonic() + LIMIT
    results: dict[str, dict[str, Any]] = {}
    for name in names:
        start = time.monotonic()
        print(f"{name} ...", flush=True)
        results[name] = _one(name, environment, min(PART_LIMIT, ends - start))
        results[name]["seconds"] = round(time.monotonic() - start, 1)
        Path(out, "gpu_check.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return results


def _one(name: str, environment: dict[str, str], limit: float) -> dict[str, Any]:
    if limit <= 0:
        return {"passed": False, "error": "no time was left"}
    command = [sys.executable, str(Path(__file__).resolve()), "--part", name]
    try:
        run = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired as error:  # which has bytes, `text` or not
        said = b"".join(text for text in (error.stdout, error.stderr) if isinstance(text, bytes)).decode(
            errors="replace"
        )
        return {"passed": False, "error": f"{said[-16000:]}\nit took more than {limit:.0f} s"}
    before, mark, facts = run.stdout.rpartition(f"\n{ENDS}\n")
    if run.returncode or not mark:
        return {"passed": False, "error": (before + facts + run.stderr)[-16000:]}
    return {"passed": True, "facts": json.loads(facts)}


def table(results: dict[str, dict[str, Any]]) -> str:
    """The parts, and the figures that the design sets targets for."""
    lines = [f"{'part':16} {'passed':7} {'s':>6}"]
    for name, result in results.items():
        why = "" if result["passed"] else "  " + result["error"].strip().splitlines()[-1][:150]
        lines.append(f"{name:16} {'yes' if result['passed'] else 'NO':7} {result['seconds']:6}{why}")
    for device, reasons in results.get("versions", {}).get("facts", {}).get("backends", {}).items():
        lines += [f"{device}: {name} does not run: {reason}" for name, reason in reasons.items() if reason is not None]
    for case, by_backend in results.get("moves", {}).get("facts", {}).items():
        for backend, figures in by_backend.items():
            if not isinstance(figures, dict):
                continue
            for what, figure in figures.items():
                if isinstance(figure, dict):
                    faster = ", ".join(f"{ratio:.1f}x {other}" for other, ratio in figure["times faster than"].items())
                    lines.append(f"{case:16} {backend:10} {what:20} {figure['share of copy']:6.1%} of copy  {faster}")
    for case, by_backend in results.get("layouts", {}).get("facts", {}).items():
        for backend, figures in by_backend.items():
            if isinstance(figures, dict):
                times = f"{1e3 * figures['wall seconds']:.2f} ms, loop on the host {1e3 * by_backend[LOOP]:.1f} ms"
                lines.append(f"layout {case}, {backend}: {figures['share of copy']:.1%} of copy, {times}")
    for backend, figures in results.get("host_cost", {}).get("facts", {}).items():
        lines.append(
            f"host cost, {backend}: {figures['without gradients']:.1f} x add without gradients, "
            f"{figures['with gradients']:.1f} x with"
        )
    return "\n".join(lines)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gpu-check"), help="folder for the results")
    parser.add_argument("--rehearse", action="store_true", help="on the host, with the simulator")
    parser.add_argument("--only", default="", help="names of parts, with commas")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        run_part(options.part)
        return 0
    names = options.only.split(",") if options.only else list(parts())
    if unknown := set(names) - set(parts()):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(parts())}")
    options.out.mkdir(parents=True, exist_ok=True)
    results = run_all(names, options.out, options.rehearse)
    print(table(results))
    return 0 if all(result["passed"] for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
