"""Which folders this process can run.

A process of Numba either simulates CUDA or does not, and compiles for it only where Numba-CUDA is installed: `make test`
and `make test-cuda` start a process of its own for each of the two folders.
"""

import importlib.util
import os

_simulating = os.environ.get("NUMBA_ENABLE_CUDASIM", "0") != "0"
_compiling = importlib.util.find_spec("numba_cuda") is not None and not _simulating
collect_ignore = [folder for folder, runs in {"simulator": _simulating, "compiled": _compiling}.items() if not runs]
