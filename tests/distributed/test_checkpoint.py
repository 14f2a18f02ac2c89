"""Checkpoints of several ranks: read at another number of them, whole or not at all."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import lucid_gpu as t
import lucid_gpu.distributed as dist
from lucid_gpu import nn
from lucid_gpu.distributed import checkpoint
from lucid_gpu.distributed.checkpoint.stateful import Stateful
from lucid_gpu.serialization import CheckpointError
from tests.distributed.processes import MPIEXEC, ended, mpi, run
from tests.slow import slow_but


def trained(seed: int) -> tuple[Any, Any]:
    t.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = t.optim.Adam(model.parameters(), lr=0.1)
    model(t.randn(5, 3)).square().sum().backward()
    optimizer.step()
    return model, optimizer


def same(one: Any, other: Any) -> bool:
    pairs = zip(one.state_dict().items(), other.state_dict().items())
    return all(name == also and (v == w).all() for (name, v), (also, w) in pairs)


class Counts(Stateful):
    """An object of a program's own that has a state."""

    def __init__(self, count: int) -> None:
        self.count = count

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.count = state_dict["count"]


def saved(folder: str) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model, optimizer = trained(0)
    own = {f"rank{rank}": t.full((2,), float(rank))}
    for epoch in (3, 4):  # the second replaces the first
        state = {
            "model": model,
            "optimizer": optimizer,
            "epoch": epoch,
            "own": own,
            "list": [1, None],
            "app": Counts(epoch),
        }
        checkpoint.save(state, checkpoint_id=folder)
    dist.destroy_process_group()


@mpi
def test_one_rank_reads_what_two_wrote(tmp_path: Path) -> None:
    run([str(MPIEXEC), "-n", "2", sys.executable, __file__, str(tmp_path / "c")])
    names = sorted(os.listdir(tmp_path / "c"))
    assert len(names) == 3 and names[-1] == "metadata.json"
    expected, expected_optimizer = trained(0)
    model, optimizer = trained(1)
    own = {"rank0": t.zeros(2), "rank1": t.zeros(2)}
    kept = own["rank1"]
    state = {"model": model, "optimizer": optimizer, "epoch": 0, "own": own, "list": [0, 0]}
    state["app"] = app = Counts(0)
    assert not same(model, expected)
    checkpoint.load(state, checkpoint_id=tmp_path / "c")
    assert same(model, expected) and kept.tolist() == [1.0, 1.0] and state["epoch"] == 4
    assert state["list"] == [1, None] and app.count == 4 and isinstance(model, Stateful)
    for n, values in expected_optimizer.state_dict()["state"].items():
        assert (optimizer.state_dict()["state"][n]["exp_avg"] == values["exp_avg"]).all()


def test_a_save_that_was_cut_off_leaves_the_old_one(tmp_path: Path, monkeypatch: Any) -> None:
    x = t.ones(3)
    checkpoint.save({"x": x}, checkpoint_id=tmp_path)
    replace = os.replace

    def last_step_fails(source: str, target: str) -> None:
        if target.endswith("metadata.json"):
            raise OSError("no room")
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", last_step_fails)
        with pytest.raises(CheckpointError, match="rank 0 of the group failed: no room"):
            checkpoint.save({"x": x + 1}, checkpoint_id=tmp_path)
    found = {"x": t.zeros(3)}
    checkpoint.load(found, checkpoint_id=tmp_path)
    assert found["x"].tolist() == [1.0] * 3


def test_views_are_saved_without_what_lies_around_them(tmp_path: Path) -> None:
    whole = t.arange(100_000.0)
    state = {"rows": whole[3:5], "column": whole.view(-1, 10)[:3, 1], "one": whole[7]}
    state |= {"bits": whole[:2].view(t.int32), "none": t.zeros(0)}
    checkpoint.save(state, checkpoint_id=tmp_path)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 10_000
    found = {name: t.zeros_like(value) for name, value in state.items()}
    checkpoint.load(found, checkpoint_id=tmp_path)
    for name, value in state.items():
        assert found[name].tolist() == value.tolist(), name


def test_one_memory_as_two_types(tmp_path: Path) -> None:
    x = t.ones(2)
    checkpoint.save({"x": x, "bits": x.view(t.int32), "again": x}, checkpoint_id=tmp_path)
    found = {"x": t.zeros(2), "bits": t.zeros(2, dtype=t.int32)}
    checkpoint.load(found, checkpoint_id=tmp_path)
    assert found["x"].tolist() == [1, 1] and found["bits"].tolist() == [0x3F800000] * 2


COLLIDE = (
    {"a.b": 1, "a": {"b": 2}},
    {"a": [1], "a.0": 2},
    {"a": {"b.c": 1}, "a.b": {"c": 2}},
    {1: 1, "1": 2},
    {"a": {1: 1, "1": 2}},
    {"a.b": {}, "a": {"b": 1}},
    {"a": {"b": {"c": 1}, "b.c": 2}},
    {"a": [{"b": 1}], "a.0": {"b": 2}},
)


@pytest.mark.parametrize("state", COLLIDE, ids=repr)
def test_names_that_collide_are_refused(state: Any, tmp_path: Path) -> None:
    def tensors(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: tensors(one) for key, one in value.items()}
        if isinstance(value, list):
            return [tensors(one) for one in value]
        return t.full((2,), float(value))

    for filled in (state, tensors(state)):
        with pytest.raises(ValueError, match="duplicated flatten key"):
            checkpoint.save(filled, checkpoint_id=tmp_path)
        assert not any(tmp_path.iterdir())
    pairs = [*tensors(state).items()]
    checkpoint.save(dict(pairs[1:]), checkpoint_id=tmp_path)
    with pytest.raises(ValueError, match="duplicated flatten key"):
        checkpoint.load(tensors(state), checkpoint_id=tmp_path)


def test_what_does_not_fit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    checkpoint.save({"x": t.ones(3), "y": 1}, checkpoint_id=tmp_path)
    x = t.zeros(3)
    with pytest.raises(RuntimeError, match=r"Missing key in checkpoint state_dict: z\."):
        checkpoint.load({"x": x, "z": x}, checkpoint_id=tmp_path)
    with pytest.raises(CheckpointError, match=r"y has shape|x has shape \[3\] in the checkpoint"):
        checkpoint.load({"x": t.zeros(2)}, checkpoint_id=tmp_path)
    assert x.tolist() == [0.0] * 3
    with pytest.raises(CheckpointError, match=r"holds no checkpoint: there is no metadata\.json"):
        checkpoint.load({"x": x}, checkpoint_id=tmp_path / "other")
    metadata = tmp_path / "metadata.json"
    found = json.loads(metadata.read_text())
    found["entries"]["x"] = "../x.safetensors"
    metadata.write_text(json.dumps(found))
    with pytest.raises(CheckpointError, match="is damaged, or of another program"):
        checkpoint.load({"x": x}, checkpoint_id=tmp_path)


def killed(folder: str, rank: int, count: int) -> None:
    """Save twice; at some access of the second to the folder's files a rank is killed."""
    dist.init_process_group("gloo")
    x = t.full((3,), float(dist.get_rank()))
    accesses = iter(range(count))

    def look(event: str, args: Any) -> None:
        ours = event in ("open", "os.rename", "os.remove") and str(args[0]).startswith(folder)
        if ours and next(accesses, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    for epoch in (3, 4):
        if epoch == 4 and dist.get_rank() == rank:
            sys.addaudithook(look)
        entries = {"epoch": epoch, "x": t.full((3,), float(epoch)), "own": {f"rank{rank}": x}}
        checkpoint.save(entries, checkpoint_id=folder)
    dist.destroy_process_group()


@mpi
@pytest.mark.parametrize("rank", slow_but([0, 1], 1))
def test_a_rank_that_is_killed_leaves_a_whole_checkpoint(rank: int, tmp_path: Path) -> None:
    found = []
    for count in range(20):
        folder = tmp_path / str(count)
        command = [str(MPIEXEC), "-n", "2", sys.executable, __file__]
        status, said = ended([*command, str(folder), str(rank), str(count)])
        state: dict[str, Any] = {"epoch": 0, "x": t.zeros(3)}
        checkpoint.load(state, checkpoint_id=folder)
        assert state["x"].tolist() == [state["epoch"]] * 3, said
        if status == 0:  # there were no more accesses
            break
        found.append(state["epoch"])
    assert status == 0 and state["epoch"] == 4
    assert found[0] == 3 and found == sorted(found)
    assert rank == 1 or found[-1] == 4  # killed between the new metadata and the end


if __name__ == "__main__":
    if len(sys.argv) > 2:
        killed(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    else:
        saved(sys.argv[1])
