"""The launcher: torchrun's options and variables, signals, what it refuses; nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lucid_gpu.distributed.run import main
from tests.distributed.processes import (
    MPIEXEC,
    ROOT,
    ended,
    environment,
    left_since,
    lives,
    mpi,
    mpich,
    run,
    segments,
)

LAUNCH = [sys.executable, "-m", "lucid_gpu.distributed.run"]
NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
SAYS = f"""
import os, sys
words = [os.environ[name] for name in {NAMES} if name in os.environ] + sys.argv[1:]
os.write(1, (" ".join(words) + "\\n").encode())  # one write: ranks share a pipe
"""


@pytest.mark.parametrize("spelling", ["--nproc-per-node", "--nproc_per_node"])
def test_ranks_get_torchrun_s_variables(spelling: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SAYS)
    said = run([*LAUNCH, spelling, "2", "--standalone", str(script), "--lr", "1"])
    lines = sorted(said.splitlines())
    assert lines == ["0 0 2 2 127.0.0.1 --lr 1", "1 1 2 2 127.0.0.1 --lr 1"]


def test_launch_tells_the_local_rank_as_an_argument(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SAYS)
    for options, told in ([], "--local-rank=0 "), (["--use-env"], ""):
        said = run([sys.executable, "-m", "lucid_gpu.distributed.launch", *options, str(script)])
        assert said == f"0 0 1 1 127.0.0.1 {told}".rstrip() + "\n"


def test_the_first_failure_is_the_command_s(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    pids = tmp_path / "pids"
    script.write_text(
        "import os, subprocess, sys, time\n"
        "if os.environ['RANK'] == '1':\n    time.sleep(0.5); sys.exit(7)\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"print(os.getpid(), child.pid, file=open({str(pids)!r}, 'w'), flush=True)\n"
        "time.sleep(600)\n"
    )
    status, said = ended([*LAUNCH, "--nproc-per-node=2", str(script)])
    assert status == 7
    assert f"of {script} ended with status 7; ending the other ranks" in said
    assert not any(map(lives, pids.read_text().split()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all(number: Any, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    # in one write each: the two share a pipe
    script.write_text("import os, time\nos.write(1, b'%d\\n' % os.getpid())\ntime.sleep(600)\n")
    process = subprocess.Popen(
        [*LAUNCH, "--nproc-per-node", "2", str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    )
    assert process.stdout is not None
    pids = [process.stdout.readline().strip() for _ in range(2)]
    os.kill(process.pid, number)
    assert process.wait(60) == 128 + number  # what they sleep takes longer
    assert not any(map(lives, pids))


WAITS = """
import os, time, lucid_gpu as t, lucid_gpu.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
os.write(1, b"%d\\n" % os.getpid())
dist.recv(t.zeros(3), 1) if dist.get_rank() == 0 else time.sleep(600)
"""


@mpich
def test_ctrl_c_ends_ranks_that_wait_for_others(tmp_path: Path) -> None:
    """A terminal sends it to all processes at once."""
    script = tmp_path / "script.py"
    script.write_text(WAITS)
    before, job = segments(), f"interrupted-{os.getpid()}"
    process = subprocess.Popen(
        [*LAUNCH, "--nproc-per-node", "2", str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment(job),
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    pids = [process.stdout.readline().strip() for _ in range(2)]
    time.sleep(0.5)  # rank 0 is in recv
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=200)
    assert process.returncode == 128 + signal.SIGINT, said
    assert not any(map(lives, pids)) and not left_since(before, job)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--max-restarts", "1"], "--max-restarts: only 0"),
        (["--tee", "3"], "--log-dir, --redirects and --tee are not here"),
        (["--nnodes", "1:2"], "--nnodes must be a number of machines, got '1:2'"),
        (["--nnodes", "2"], "several machines need --node-rank, --master-addr and --master-port"),
        (["--nproc-per-node", "x"], "--nproc-per-node must be a number of processes"),
        (["--rdzv-endpoint", "here"], "--rdzv-endpoint must be host:port, got 'here'"),
        (["--no-python", "-m"], "--no-python and -m exclude each other"),
    ],
)
def test_what_is_refused(options: list[str], sentence: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as error:
        main([*options, "script.py"])
    assert error.value.code == 2 and sentence in capsys.readouterr().err


@mpi
def test_under_mpiexec_it_only_sets_variables(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SAYS)
    said = run([str(MPIEXEC), "-n", "2", *LAUNCH, str(script)])
    assert sorted(said.splitlines()) == ["0 0 2 2", "1 1 2 2"]


TWO_MACHINES = """
import lucid_gpu as t, lucid_gpu.distributed as dist
dist.init_process_group("gloo")
x = t.full((2,), float(dist.get_rank()))
dist.all_reduce(x)
print(dist.get_rank(), x.tolist(), flush=True)
dist.destroy_process_group()
"""


@mpich
def test_two_machines(tmp_path: Path) -> None:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "trains.py").write_text(TWO_MACHINES)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}",
        "LUCID_STORE_SECRET": "00ff",
    }
    machines = [
        subprocess.Popen(
            [*LAUNCH, "--nnodes", "2", "--node-rank", str(i), "--master-addr", "127.0.0.1"]
            + ["--master-port", str(port), "-m", "trains"],
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        for i in range(2)
    ]
    said = [machine.communicate(timeout=60)[0].strip() for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0]
    assert said == ["0 [1.0, 1.0]", "1 [1.0, 1.0]"]


CALLS = """
import sys, datetime, lucid_gpu.distributed as dist, lucid_gpu.distributed.engines.mpi
rank, size, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
print("here", flush=True)
sys.stdin.readline()  # all begin together, however long it took to start them
limit = datetime.timedelta(seconds=seconds)
dist.init_process_group("gloo", sys.argv[4], limit, size, rank)
"""
PLACES = {  # rank and world_size of each process, and what they say
    "timed out after 4 s on rank 0 of 3: rank 2 has not come to 127.0.0": [(0, 3), (1, 3)],
    "timed out after 4 s on rank 1 of 4: ranks 2, 3 have not come to": [(0, 4), (1, 4)],
    "two processes were given rank=1 of 3": [(0, 3), (1, 3), (1, 3)],
    "was given world_size=": [(0, 3), (1, 2)],
}


@mpi
@pytest.mark.slow
def test_ranks_that_do_not_fit_are_named(tmp_path: Path) -> None:
    """All rows at once: each waits until its time is over."""
    rows = {}
    for number, (sentence, places) in enumerate(PLACES.items()):
        where = f"file://{tmp_path}/store{number}"
        rows[sentence] = [
            subprocess.Popen(
                [sys.executable, "-c", CALLS, str(rank), str(size), "4", where],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment(),
                text=True,
            )
            for rank, size in places
        ]
    everyone = [process for processes in rows.values() for process in processes]
    for process in everyone:
        assert process.stdout is not None and process.stdout.readline() == "here\n"
    for process in everyone:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for sentence, processes in rows.items():
        said = "".join(process.communicate(timeout=200)[1] for process in processes)
        assert all(process.returncode for process in processes)
        assert sentence in said, said
