"""What the compiler makes of the kernels, for every kind of GPU that matters; no GPU is needed."""

import importlib
import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from alignpack._backends.numba_cuda.kernels import KERNELS, Kernel
from alignpack._backends.numba_cuda.launch import assembly, machine_code
from alignpack._backends.numba_cuda.shapes import IN_FLIGHT

pytestmark = pytest.mark.slow  # the disassembler runs as a process
CAPABILITIES = ((8, 0), (9, 0), (10, 0))
GATHERS = [kernel for kernel in KERNELS if kernel.name.startswith("gather")]

every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
every_gather = pytest.mark.parametrize("kernel", GATHERS, ids=lambda kernel: kernel.name)
every_capability = pytest.mark.parametrize("capability", CAPABILITIES, ids="{0[0]}.{0[1]}".format)


@dataclass(frozen=True)
class Compiled:
    """One kernel's code.

    Attributes:
        operations: with their modifiers, in their order.
        called: the operations that calls lead to.
        resources: registers a thread (REG), bytes of stack, shared and local memory (STACK, SHARED, LOCAL).
    """

    ptx: str
    operations: list[str]
    called: list[str]
    resources: dict[str, int]

    def count(self, prefix: str) -> Counter[str]:
        """How often each operation of that name occurs."""
        return Counter(operation for operation in self.operations if operation.startswith(prefix))


@cache
def compiled(kernel: Kernel, capability: tuple[int, int]) -> Compiled:
    ptx = assembly(kernel, capability)
    with TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(machine_code(ptx, capability).code)
        listing = tool("nvdisasm", "-c", str(path))
        usage = tool("cuobjdump", "-res-usage", str(path))
    operations: list[str] = []
    after: dict[str, str] = {}
    targets: list[re.Match[str] | None] = []
    label = ""
    for line in listing.splitlines():
        if found := re.match(r"(\.L_x_\d+|\$?[\w$]+):", line):
            label = found[1]
        elif found := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z][\w.]*)([^;]*);", line):
            operations.append(found[1])
            after.setdefault(label, found[1])
            if found[1].startswith("CALL"):
                targets.append(re.search(r"`\(([^)]+)\)", found[2]))
    called = [after.get(target[1], "?") if target else "?" for target in targets]
    sizes = [dict(re.findall(r"(\w+):(\d+)", line)) for line in usage.splitlines() if "REG:" in line]
    resources = {name: max(int(size[name]) for size in sizes) for name in ("REG", "STACK", "SHARED", "LOCAL")}
    return Compiled(ptx, operations, called, resources)


def tool(name: str, *arguments: str) -> str:
    folders = importlib.import_module("nvidia").__path__  # no package of its own, so without types
    (program,) = (path for folder in folders for path in Path(folder).rglob(f"bin/{name}"))
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout


@every_capability
@every_gather
def test_words_move_whole(kernel: Kernel, capability: tuple[int, int]) -> None:
    """Loads and stores are as wide as the word, and the index is read by 64 bits."""
    width = int(kernel.name.rpartition("_")[2])
    size = {16: ".128", 8: ".64", 4: "", 2: ".U16", 1: ".U8"}[width]
    code = compiled(kernel, capability)
    loads, stores = code.count("LDG"), code.count("STG")
    assert set(stores) == {f"STG.E{size}"}
    assert set(loads) == {f"LDG.E{size}.CONSTANT", "LDG.E.64.CONSTANT"}
    if width != 8:
        assert loads[f"LDG.E{size}.CONSTANT"] == IN_FLIGHT


@every_capability
@every_gather
def test_loads_are_in_flight_together(kernel: Kernel, capability: tuple[int, int]) -> None:
    """All words of a turn are loaded before the first of them is stored."""
    memory = [operation[:3] for operation in compiled(kernel, capability).operations if operation[:3] in ("LDG", "STG")]
    assert "L" * IN_FLIGHT + "S" * IN_FLIGHT in "".join(operation[0] for operation in memory)


@every_capability
@every_kernel
def test_nothing_leaves_the_registers(kernel: Kernel, capability: tuple[int, int]) -> None:
    code = compiled(kernel, capability)
    assert 0 < code.resources["REG"] <= 64
    assert (code.resources["STACK"], code.resources["LOCAL"], code.resources["SHARED"]) == (0, 0, 0)
    assert not code.count("LDL")
    assert not code.count("STL")


@every_capability
@every_kernel
def test_nothing_is_divided_or_called(kernel: Kernel, capability: tuple[int, int]) -> None:
    code = compiled(kernel, capability)
    assert not re.search(r"\b(div|rem|call)\.", code.ptx)
    assert set(code.called) <= {"EXIT"}  # the assembler's way out of a loop that threads leave at different times


@every_capability
@every_kernel
def test_parameters_are_the_arguments(kernel: Kernel, capability: tuple[int, int]) -> None:
    (parameters,) = re.findall(r"\.entry[^(]*\(([^)]*)\)", compiled(kernel, capability).ptx)
    names = kernel.function.__code__.co_argcount
    assert re.findall(r"\.param \.(\w+)", parameters) == ["u64" if ".u64" in parameters else "b64"] * names
