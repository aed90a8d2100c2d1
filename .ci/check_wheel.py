"""Install a wheel into an empty folder, import it from elsewhere, and use it.

Usage: `python .ci/check_wheel.py dist/alignpack-0.1.0-py3-none-any.whl`
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

SMOKE_TEST = """
import sys
from pathlib import Path

import torch

import alignpack
import alignpack_fuzz
import alignpack_reference

for package in (alignpack, alignpack_fuzz, alignpack_reference):
    location = Path(package.__file__)
    assert location.is_relative_to(sys.argv[1]), f"{location} is not the wheel's"
    assert (location.parent / "py.typed").exists(), f"{location.parent} has no py.typed"

layout = alignpack.packed_layout(torch.tensor([[3, 2]]), torch.tensor([[4, 4]]), (1, 8), alignment=4)
values = torch.tensor([[10, 11, 12, 99, 20, 21, 98, 97]])
assert layout.pack(values, fill=-100).tolist() == [[10, 11, 12, -100, 20, 21, -100, -100]]
assert layout.restore(layout.pack(values)).tolist() == [[10, 11, 12, 0, 20, 21, 0, 0]]
print(f"alignpack {alignpack.__version__} works from its wheel")
"""


def main(wheel: str) -> None:
    """Install, import from an unrelated folder with the installed one first on the path, run the smoke test."""
    with tempfile.TemporaryDirectory() as folder:
        site, elsewhere = Path(folder, "site").resolve(), Path(folder, "elsewhere")
        elsewhere.mkdir()
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site)]
        subprocess.run([*pip, wheel], check=True)
        environment = {**os.environ, "PYTHONPATH": str(site)}
        command = [sys.executable, "-c", SMOKE_TEST, str(site)]
        subprocess.run(command, check=True, cwd=elsewhere, env=environment)


if __name__ == "__main__":
    main(sys.argv[1])
