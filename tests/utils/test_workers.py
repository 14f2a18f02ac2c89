"""Worker processes: order, seeds, large batches, and every way in which one can end."""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    TensorDataset,
    get_worker_info,
    prefetch,
    transport,
)
from tests.oracle import same_error

pytestmark = pytest.mark.timeout(150)


class Squares(Dataset):
    """i * i; a sample may do something first."""

    def __init__(self, size=10, at=-1, do=None):
        self.size, self.at, self.do = size, at, do

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        if i == self.at:
            self.do()
        return i * i


class Stream(IterableDataset):
    """Each worker every n-th number, as PyTorch's documentation has it."""

    def __iter__(self):
        info = get_worker_info()
        return iter(range(info.id, 11, info.num_workers) if info else range(11))


def lists(batches):
    return [batch.tolist() for batch in batches]


def test_batches_are_those_of_one_process():
    for settings in ({"batch_size": 3}, {"batch_size": 4, "drop_last": True}, {"batch_size": None}):
        loader = DataLoader(TensorDataset(lucid_gpu.arange(10)), num_workers=2, **settings)
        plain = DataLoader(TensorDataset(lucid_gpu.arange(10)), **settings)
        assert [b[0].tolist() for b in loader] == [b[0].tolist() for b in plain]
        assert len(loader) == len(plain) == len(iter(plain))


def test_the_order_does_not_depend_on_the_number_of_workers():
    def order(workers):
        lucid_gpu.manual_seed(5)
        return lists(DataLoader(Squares(), 2, shuffle=True, num_workers=workers))

    assert order(0) == order(2)


def test_streams_are_shared_out():
    assert lists(DataLoader(Stream(), 3, num_workers=2)) == [
        [0, 2, 4],
        [1, 3, 5],
        [6, 8, 10],
        [7, 9],
    ]
    whole = DataLoader(Stream(), 3, num_workers=2, drop_last=True)
    assert lists(whole) == [[0, 2, 4], [1, 3, 5], [6, 8, 10]]


class Slow(Squares):
    """Its first sample waits to be let go."""

    def __init__(self, size):
        super().__init__(size)
        self.go = multiprocessing.Event()

    def __getitem__(self, i):
        if i == 0:
            self.go.wait()
        return i


def test_out_of_order():
    dataset = Slow(6)
    batches = iter(DataLoader(dataset, 1, num_workers=2, in_order=False))
    first = next(batches).tolist()
    assert first != [0]
    dataset.go.set()
    assert sorted([first, *lists(batches)]) == [[i] for i in range(6)]
    assert lists(DataLoader(dataset, 1, num_workers=2)) == [[i] for i in range(6)]


class Seeds(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, i):
        info = get_worker_info()
        draws = random.random(), float(np.random.rand()), lucid_gpu.rand(()).item()
        return (
            info.id,
            info.seed,
            info.num_workers,
            len(info.dataset),
            lucid_gpu.initial_seed(),
            draws,
        )


def test_workers_are_seeded_each_with_its_own():
    def samples(seed):
        lucid_gpu.manual_seed(seed)
        return list(DataLoader(Seeds(), None, num_workers=2, collate_fn=lambda x: x))

    first, second = samples(1)
    assert first[0] == 0 and second[0] == 1 and first[2:4] == (2, 2)
    assert second[1] == first[1] + 1 and first[1] == first[4]
    assert all(a != b for a, b in zip(first[5], second[5]))
    assert samples(1) == [first, second] != samples(2)
    assert get_worker_info() is None


class Large(Dataset):
    """Samples in all the types that travel: large and small, empty and 16 bits wide."""

    def __len__(self):
        return 4

    def __getitem__(self, i):
        large = np.full(40_000, i, np.float32)
        return {
            "large": large,
            "half": lucid_gpu.full((40_000,), i, dtype=lucid_gpu.bfloat16),
            "small": i,
            "empty": np.zeros((0, 3)),
            "text": "x" * i,
        }


def test_large_batches_lie_in_memory_that_both_see():
    batches = list(DataLoader(Large(), 2, num_workers=2))
    gc.collect()
    for n, batch in enumerate(batches):
        assert batch["large"][:, -1].tolist() == [2 * n, 2 * n + 1]
        assert batch["half"].dtype is lucid_gpu.bfloat16
        assert batch["half"][:, 5].tolist() == [2 * n, 2 * n + 1]
        assert batch["empty"].shape == (2, 0, 3) and batch["text"] == [
            "x" * 2 * n,
            "x" * (2 * n + 1),
        ]
        batch["large"] += 1
        assert batch["large"][1, 7].item() == 2 * n + 2
    mapped = len(transport._mappings)
    assert mapped
    del batch, batches
    gc.collect()
    assert not len(transport._mappings)


def test_past_many_mappings_batches_are_copies(monkeypatch):
    monkeypatch.setattr(transport, "_MOST_MAPPINGS", 1)
    batches = [b["large"][0, 0].item() for b in list(DataLoader(Large(), 1, num_workers=2))]
    assert batches == [0, 1, 2, 3]


@pytest.mark.parametrize("context", ["spawn", multiprocessing.get_context("forkserver")])
def test_other_ways_to_start(context):
    loader = DataLoader(Squares(5), 2, num_workers=1, multiprocessing_context=context)
    assert lists(loader) == [[0, 1], [4, 9], [16]]


def pids(loader):
    return [batch[0] for batch in loader]


class Pids(Squares):
    def __getitem__(self, i):
        return os.getpid()


def test_persistent_workers_stay():
    loader = DataLoader(Pids(4), 1, num_workers=2, persistent_workers=True, collate_fn=list)
    first = pids(loader)
    for _ in loader:
        break  # what was read ahead is dropped
    assert pids(loader) == first and len(set(first)) == 2
    loader = DataLoader(Pids(4), 1, num_workers=2, collate_fn=list)
    assert not set(pids(loader)) & set(pids(loader))


def gone(pid):
    """Whether a process has ended, though nobody may have asked how."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return status.rpartition(")")[2].split()[0] == "Z"


@pytest.fixture
def left():
    """Return a function that lists the processes begun by this test which still run."""
    before = multiprocessing.active_children()  # an earlier test's, which waits for the collector
    return lambda: [p for p in multiprocessing.active_children() if p not in before]


def test_an_early_end_leaves_no_process(left):
    before = len(os.listdir("/proc/self/fd"))
    for _ in DataLoader(Squares(100), 1, num_workers=2):
        break
    del _
    gc.collect()
    assert left() == []
    assert len(os.listdir("/proc/self/fd")) <= before


# --- what goes wrong -----------------------------------------------------------------------------


class Odd(Exception):
    def __init__(self, a, b):
        super().__init__(a, b)


def raising(error):
    def do():
        raise error

    return do


@pytest.mark.parametrize(
    ("error", "kind"),
    [(ValueError("bad"), ValueError), (KeyError("bad"), KeyError), (Odd(1, "bad"), RuntimeError)],
)
def test_errors_come_with_their_traceback(error, kind):
    loader = iter(DataLoader(Squares(4, 1, raising(error)), 1, num_workers=2))
    assert next(loader).item() == 0
    with pytest.raises(kind) as caught:
        next(loader)
    text = str(caught.value)
    assert f"Caught {type(error).__name__} in DataLoader worker process 1.\nOriginal Traceb" in text
    assert "in __getitem__" in text and "\n" in text
    assert [b.item() for b in loader] == [4, 9]  # and one may go on


def test_errors_of_the_beginning():
    def fail(number):
        raise ValueError(f"worker {number} has no file")

    with pytest.raises(ValueError, match="worker 0 has no file"):
        next(iter(DataLoader(Squares(), num_workers=1, worker_init_fn=fail)))


def test_what_cannot_be_sent_is_told():
    loader = DataLoader(Squares(2), num_workers=1, collate_fn=lambda samples: lambda: samples)
    with pytest.raises(Exception, match="sending a batch"):
        next(iter(loader))


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (lambda: os._exit(3), "it left with exit code 3"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "it was killed by SIGKILL"),
    ],
)
def test_a_worker_that_dies_is_an_error(end, words, left):
    loader = iter(DataLoader(Squares(8, 5, end), 1, num_workers=2))
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid\(s\) \d+\) exited unexp") as e:
        list(loader)
    assert words in str(e.value)
    assert left() == []


def test_waiting_has_a_limit(left):
    loader = DataLoader(Squares(2, 0, lambda: time.sleep(600)), num_workers=1, timeout=0.2)
    with pytest.raises(RuntimeError, match="DataLoader timed out after 0.2 seconds"):
        next(iter(loader))
    assert left() == []


def run(program, **settings):
    """A process that Ctrl-C reaches, also where ours runs in the background and ignores it."""
    environment = {**os.environ, "PYTHONPATH": str(Path(lucid_gpu.__file__).parents[1])}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        **settings,
    )


PROGRAM = """
    import os, time
    from lucid_gpu.utils.data import DataLoader, Dataset
    class D(Dataset):
        def __len__(self): return 10
        def __getitem__(self, i):
            if i: time.sleep(600)
            return os.getpid()
    for batch in DataLoader(D(), 1, num_workers=1, collate_fn=list):
        print(batch[0], flush=True)
"""


def test_an_interrupt_ends_all_quietly():
    with run(PROGRAM, start_new_session=True) as process:
        worker = int(process.stdout.readline())
        time.sleep(0.3)  # it waits for the second batch now
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate()
    assert errors.count("Traceback") == 1 and errors.rstrip().endswith("KeyboardInterrupt")
    assert gone(worker)


def test_workers_leave_when_the_parent_is_killed():
    with run(PROGRAM) as process:
        worker = int(process.stdout.readline())
        process.kill()
        process.communicate()
    while not gone(worker):  # or the test runs out of its time
        time.sleep(0.05)


@pytest.mark.parametrize(
    "call",
    [
        lambda d: d.DataLoader(range(3), multiprocessing_context="fork"),
        lambda d: d.DataLoader(range(3), num_workers=1, multiprocessing_context="frok"),
        lambda d: d.DataLoader(range(3), num_workers=1, multiprocessing_context=3),
        lambda d: d.DataLoader(range(3), num_workers=1, prefetch_factor=-1),
        lambda d: d.DataLoader(range(3), prefetch_factor=2),
        lambda d: d.DataLoader(range(3), persistent_workers=True),
        lambda d: setattr(d.DataLoader(range(3)), "batch_size", 2),
    ],
)
def test_settings_are_refused_as_in_torch(call):
    def scenario(m):
        __import__(f"{m.__name__}.utils.data")
        return call(m.utils.data)

    same_error(scenario)


# --- pinned memory -------------------------------------------------------------------------------


def test_pinned_memory(device):
    rows = lucid_gpu.arange(12.0).reshape(6, 2)
    loader = DataLoader(TensorDataset(rows), 2, pin_memory=True)
    if device == "cpu":
        with pytest.warns(UserWarning, match="'pin_memory' argument is set as true but no acceler"):
            batches = list(loader)
        assert not batches[0][0].is_pinned()
        with pytest.raises(RuntimeError, match="Cannot access accelerator device"):
            rows.pin_memory()
        return
    batches = list(loader)
    assert all(b[0].is_pinned() for b in batches) and not rows.is_pinned()
    assert batches[0][0].pin_memory() is batches[0][0]
    there = [b[0].to(device, non_blocking=True) for b in batches]
    assert [t.device.type for t in there] == ["cuda"] * 3
    assert lucid_gpu.cat(there).cpu().tolist() == rows.tolist()
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        there[0].pin_memory()


def test_a_dataset_on_a_gpu_in_a_forked_worker(device):
    loader = DataLoader(TensorDataset(lucid_gpu.ones(4, device=device)), 2, num_workers=1)
    if device == "cpu":
        assert [b[0].tolist() for b in loader] == [[1, 1], [1, 1]]
        return
    with pytest.raises(RuntimeError, match='multiprocessing_context="spawn"'):
        next(iter(loader))


def test_prefetch(device):
    dataset = TensorDataset(lucid_gpu.arange(6.0), lucid_gpu.arange(6))
    if device == "cpu":
        batches = list(prefetch(DataLoader(dataset, 2), "cpu"))
    else:
        batches = list(prefetch(DataLoader(dataset, 2, pin_memory=True), device))
    assert [[t.device.type for t in b] for b in batches] == [[device] * 2] * 3
    assert [(b[0] * 2).tolist() for b in batches] == [[0, 2], [4, 6], [8, 10]]
