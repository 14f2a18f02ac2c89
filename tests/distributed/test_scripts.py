"""Scripts for several processes as people write them for PyTorch, with the import exchanged.

Each trains on several ranks here, and on one with the whole batch in PyTorch: what they record,
losses and norms of gradients of every step, is the same to rounding.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.distributed.processes import mpich, run
from tests.oracle import torch_module
from tests.scripts.test_scripts import exchanged

FOLDER = Path(__file__).parent / "scripts"
RUN = [sys.executable, "-m", "lucid_gpu.distributed.run", "--nproc-per-node"]
ONCE = [  # by make test
    ("spawn_ddp", 2, ()),
    ("pipeline", 2, ()),
]
CASES = [
    *ONCE,
    ("spawn_ddp", 4, ()),
    ("torchrun_trainer", 2, ()),
    ("zero_optimizer", 3, ()),
    ("mnist_sampler", 2, ()),
    ("gpt_accumulation", 2, ()),
    ("torchrun_trainer", 3, ()),
    ("pipeline", 4, ()),
    ("mnist_sampler", 4, ()),
    ("gpt_accumulation", 3, ("--no-sync",)),
]


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def by_torch(name: str, options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a script in this process, as the only rank."""
    torch_module()
    variables = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    for key, value in {**variables, "MASTER_PORT": free_port()}.items():
        monkeypatch.setenv(key, value)
    module = ModuleType(name)
    path = FOLDER / f"{name}.py"
    exec(compile(path.read_text("utf-8"), path, "exec"), module.__dict__)
    module.main(options)


@mpich
@pytest.mark.parametrize(
    ("name", "size", "options"),
    [case if case in ONCE else pytest.param(*case, marks=pytest.mark.slow) for case in CASES],
)
def test_several_ranks_train_as_one_with_the_whole_batch(
    name: str, size: int, options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()
    script = ours / f"{name}.py"
    script.write_text(exchanged((FOLDER / f"{name}.py").read_text("utf-8")))
    extra, starts = [], [[]]
    if name == "torchrun_trainer":
        starts = [["--epochs", "2"], ["--epochs", "4"]]  # the second start goes on
    for start in starts:
        more = [*options, *start, "--out", str(ours / "record.txt")]
        if name == "torchrun_trainer":
            more += ["--snapshot", str(ours / "snapshot.pt")]
        if name == "spawn_ddp":
            command = [sys.executable, str(script), "--world-size", str(size)]
            command += ["--port", free_port()]
        else:
            command = [*RUN, str(size), str(script)]
        run([*command, *more])
    if name == "torchrun_trainer":
        extra = ["--snapshot", str(theirs / "snapshot.pt")]
    if name == "spawn_ddp":
        extra = ["--world-size", "1", "--port", free_port()]
    by_torch(name, [*options, *extra, "--out", str(theirs / "record.txt")], monkeypatch)
    expected = np.loadtxt(theirs / "record.txt")
    assert len(expected) > 5 and np.ptp(expected) > 0
    np.testing.assert_allclose(np.loadtxt(ours / "record.txt"), expected, rtol=2e-5, atol=1e-7)


def test_every_script_is_run() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == {name for name, _, _ in CASES}
