"""Where training calls the library: in the workers of a `DataLoader`, and in many threads at once."""

import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from alignpack import packed_layout
from alignpack_fuzz.compare import assert_same_bits
from alignpack_fuzz.targets import Target

# A program of its own, because spawned workers import the main module again, and a test module cannot be imported so.
LOADING = textwrap.dedent("""
    import sys

    import torch
    from torch.utils.data import DataLoader, Dataset

    from alignpack import LayoutError, packed_layout


    class Rows(Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, row):
            if row == FAULTY:
                return torch.tensor([40, 40]), torch.zeros(64, dtype=torch.int64)
            return torch.tensor([row + 1, 20]), torch.arange(64) + 100 * row


    def collate(rows):
        lengths, ids = map(torch.stack, zip(*rows))
        layout = packed_layout(lengths, None, tuple(ids.shape), 8)
        return layout, layout.pack_batch({"ids": ids, "wide": ids.unsqueeze(2).expand(-1, -1, 300).float()}, -100)


    FAULTY = int(sys.argv[2])

    if __name__ == "__main__":
        # Here first, so that forked workers inherit whatever a first call leaves behind.
        expected = [collate([Rows()[row] for row in range(first, first + 3)]) for first in (0, 3)]
        loader = DataLoader(Rows(), 3, collate_fn=collate, num_workers=2, multiprocessing_context=sys.argv[1], timeout=60)
        try:
            results = list(loader)
        except LayoutError as error:
            print("refused", str(error).splitlines()[-1])
            sys.exit()
        for (layout, batch), (wanted_layout, wanted) in zip(results, expected):
            assert layout.equal(wanted_layout)
            assert all(torch.equal(batch[key], wanted[key]) for key in wanted)
            assert torch.equal(layout.pack(layout.restore(batch["wide"]), -100), wanted["wide"])
        print("loaded", len(results))
""")


def load(path: Path, start: str, faulty: int) -> str:
    program = path / "loading.py"
    program.write_text(LOADING)
    command = [sys.executable, "-W", "error", str(program), start, str(faulty)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_build_layouts_and_pack(tmp_path: Path, start: str) -> None:
    assert load(tmp_path, start, faulty=-1) == "loaded 4\n"


# Children are forked while a thread is in its first calls; the thread's locks stay locked in them, if a fork does not wait.
FORKING = textwrap.dedent("""
    import os, signal, threading, time, warnings

    import torch

    import alignpack

    warnings.simplefilter("ignore")  # newer Pythons warn of forks beside threads: that is the case to be shown

    def work():
        layout = alignpack.packed_layout(torch.tensor([[3, 2]]), None, (1, 5), 4)
        assert layout.pack(torch.arange(5)[None]).tolist() == [[0, 1, 2, 0, 3, 4, 0, 0]]
        assert layout.groups(2).complete.tolist() == [[True, False, True, False]]

    def child():
        signal.alarm(60)
        work()

    first = threading.Thread(target=work)
    first.start()
    children = []
    while first.is_alive():
        time.sleep(0.01)
        if (process := os.fork()) == 0:
            child()
            os._exit(0)
        children.append(process)
    first.join()
    print(len(children), {os.waitpid(process, 0)[1] for process in children})
""")


@pytest.mark.slow
def test_a_process_may_fork_while_a_thread_is_in_its_first_call(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    for cache in ("cold", "warm"):
        done = subprocess.run(
            [sys.executable, "-c", FORKING], env=environment, capture_output=True, text=True, timeout=180, check=False
        )
        assert done.returncode == 0, done.stderr
        children, ends = done.stdout.split(maxsplit=1)
        assert (int(children) > 0, ends) == (True, "{0}\n"), cache


@pytest.mark.slow
def test_a_fault_in_a_worker_arrives_with_its_place(tmp_path: Path) -> None:
    # Workers send their errors as text: the place is in the message.
    assert load(tmp_path, "fork", faulty=7).startswith(
        "refused alignpack_reference.errors.LayoutError: row 1, document 1: seq_lens is 40 from slot 40 on"
    )


def test_threads_share_a_layout(fast: Target) -> None:
    layout = fast.packed_layout(torch.tensor([[700, 300], [90, 910]]), None, (2, 1000), 128)
    values = {width: torch.randn(2, 1000, width) for width in (1, 3, 500)}
    expected = {width: layout.pack(of_width, 2) for width, of_width in values.items()}

    def work(turn: int) -> None:
        width = (1, 3, 500)[turn % 3]
        packed = layout.pack(values[width].clone().requires_grad_(), 2)
        assert_same_bits(packed.detach(), expected[width])
        assert_same_bits(layout.restore(packed.detach()), values[width])
        assert packed_layout(torch.tensor([[turn + 1]]), None, (1, 64), 4).sequence_ids.sum() == turn + 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(48)))
