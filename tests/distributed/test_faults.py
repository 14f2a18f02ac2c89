"""A rank that does something else: the job ends, with a status and a sentence that names it.

`LUCID_TEST_REPEATS` runs each row as often; ``tools/repeat_faults.py`` counts what fails.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

import pytest

import lucid_gpu
import lucid_gpu.distributed as dist
from tests.distributed.processes import MPIEXEC, ended, mpi, mpich

SOON = 10.0  # seconds from a death to the end of all others, on a busy machine

REPEATS = int(os.environ.get("LUCID_TEST_REPEATS", "1"))
ONES = lucid_gpu.ones
RUN = [sys.executable, "-m", "lucid_gpu.distributed.run", "--nproc-per-node"]

# What the last rank does while the others call all_reduce of float32 [3]; what the job then says
# where ranks were started by mpiexec, and by our launcher.
ROWS = {
    "raises": ("raise ValueError('boom')", r"rank {last} failed \(ValueError: boom\)"),
    "raises-late": ("time.sleep(1.5); raise ValueError('boom')", "ValueError: boom"),
    "exits": (
        "sys.exit(3)",
        r"rank {last} has come to its end, and rank \d waits for it in all_reduce\(float32 \[3\], ",
    ),
    "killed": ("os.kill(os.getpid(), 9)", r"EXIT CODE: 9|signal 9 \(Killed\)"),
    "late": (
        "time.sleep(600)",
        r"all_reduce\(float32 \[3\], SUM\) timed out after 2 s on rank \d: rank {last} has not",
    ),
    "collective": (
        "dist.broadcast(ONES(3), 0)",
        r"rank {last} called broadcast\(float32 \[3\], rank 0\) where rank 0 called all_reduce\(fl"
        r"|rank 0 called all_reduce\(float32 \[3\], SUM\) where rank {last} called broadcast",
    ),
    "dtype": (
        "dist.all_reduce(ONES(3).int())",
        r"rank {last} called all_reduce\(int32 \[3\], SUM\)",
    ),
    "count": (
        "dist.all_reduce(ONES(5))",
        r"rank {last} called all_reduce\(float32 \[5\], SUM\)",
    ),
    "op": ("dist.all_reduce(ONES(3), dist.ReduceOp.MAX)", r"rank {last} called .*MAX"),
    "message": (
        "dist.all_reduce(ONES(3)); dist.send(ONES(5), 0)",
        r"rank {last} of the group sent 20 bytes|MPI: .*truncated",
    ),
    "message-dtype": (
        "dist.all_reduce(ONES(3)); dist.send(ONES(3).int(), 0)",
        r"rank {last} of the group sent int32, but the tensor that receives it is of float32",
    ),
    # which mpiexec does not see
    "leaves": ("os._exit(0)", r"rank {last} \(process \d+\) .* left before destroy_process_group"),
    "crashes": ("os.abort()", r"rank {last} \(process \d+\) .* ended by signal 6 \(SIGABRT\)"),
    "stopped": (
        "os.kill(os.getpid(), 19)",
        "rank {last} .*is stopped, or its machine is",
    ),
    "machine": ("stop_machine()", ""),
}
BY_LAUNCHER = {
    "raises": r"rank {last} \(process \d+\) of .*faults.py ended with status 1: ValueError: boom",
    "killed": r"rank {last} \(process \d+\) of .*faults.py was ended by signal 9 \(SIGKILL\)",
}

# The same where ranks have no common launcher: started by the environment, and by two launchers.
DEATHS = ("leaves", "killed", "crashes", "stopped", "machine")
APART = {
    "environment": {
        what: r"rank {last} is stopped, or its machine is, .*, and rank 0 waits for it in all_red"
        if what in ("stopped", "machine")
        else r"rank {last} has ended without leaving .*, and rank 0 waits for it in all_reduce"
        for what in DEATHS
    },
    "launchers": {
        "leaves": r"rank {last} left before destroy_process_group\(\)",
        "killed": r"rank {last} was ended by signal 9 \(SIGKILL\)",
        "crashes": r"rank {last} was ended by signal 6 \(SIGABRT\)",
        "stopped": "rank {last} is stopped, or its machine is",
        "machine": "rank {last} is stopped, or its machine is",
    },
}


def stop_machine() -> None:
    """Stop this rank, the process beside it and its launcher."""
    if "LOCAL_RANK" in os.environ:
        os.kill(os.getppid(), signal.SIGSTOP)
    os.killpg(0, signal.SIGSTOP)


def apart(launcher: str, size: int, what: str) -> int:
    """Start ranks apart; wait for all but the last one, which dies, and say how long it took."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {**os.environ, "LUCID_STORE_SECRET": "00ff", "LUCID_TEST_APART": "1"}
    common |= {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = []
    for rank in range(size):
        command = [sys.executable, __file__, what]
        if launcher == "launchers":
            command = [*RUN, "1", "--nnodes", str(size), "--node-rank", str(rank)]
            command += ["--master-port", port, __file__, what]
        variables = common | {"RANK": str(rank)}
        ranks.append(
            subprocess.Popen(
                command, env=variables, stdout=subprocess.PIPE, text=True, start_new_session=True
            )
        )
    last = ranks[-1].stdout
    assert last is not None
    pid, died = last.readline().split()[1:]
    statuses = [rank.wait() for rank in ranks[:-1]]
    seconds = time.time() - float(died)
    for group in (int(pid), ranks[-1].pid):  # what is stopped
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            continue
    print(f"statuses {statuses}; {seconds:.1f} s after the death", flush=True)
    return int(all(statuses) and seconds < SOON)


def faulty(what: str) -> None:
    """What each process does."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=600))
    last = dist.get_world_size() - 1
    dist.barrier()
    assert dist.group.WORLD is not None
    if what != "stopped" and "LUCID_TEST_APART" not in os.environ:  # there the death ends them
        dist.group.WORLD.timeout = timedelta(seconds=2)  # not of the start: machines are busy
    if dist.get_rank() == last:
        print("dies", os.getpid(), time.time(), flush=True)
        exec(ROWS[what][0])
    else:
        dist.all_reduce(ONES(3))
        if dist.get_rank() == 0 and what.startswith("message"):
            dist.recv(ONES(3), last)
    dist.barrier()
    dist.destroy_process_group()


def started(launcher: str, size: int, what: str) -> tuple[int, str]:
    command = [str(MPIEXEC), "-n", str(size), sys.executable]
    if launcher == "run":
        command = [*RUN, str(size)]
    if launcher in APART:
        command = [sys.executable, __file__, launcher, str(size)]
    return ended([*command, __file__, what])  # sooner than what the ranks wait for would end


UNSEEN = ("leaves", "crashes", "stopped", "machine")  # by mpiexec, or not told by it
CASES = [("mpiexec", 2, what) for what in ROWS if what not in UNSEEN]
CASES += [("run", 3, what) for what in ("raises", "exits", "killed", "late")]
CASES += [("run", 2, "leaves"), ("run", 2, "stopped")]
CASES += [("environment", 3, what) for what in DEATHS]
CASES += [("launchers", 2, what) for what in DEATHS]
SLOW = {("mpiexec", what) for what in ROWS if what not in ("raises", "late", "message-dtype")}
SLOW |= {("run", what) for what in ("raises", "exits", "late", "stopped")}
SLOW |= {("environment", what) for what in ("leaves", "crashes", "stopped")}
SLOW |= {("launchers", what) for what in ("leaves", "crashes", "stopped", "machine")}


def marked(launcher: str, size: int, what: str) -> Any:
    """A case as a parameter."""
    marks = [] if launcher == "mpiexec" else [mpich]
    marks += [pytest.mark.slow] if (launcher, what) in SLOW else []
    return pytest.param(launcher, size, what, marks=marks)


def check(launcher: str, size: int, what: str) -> None:
    """Run one row once."""
    sentence = ROWS[what][1]
    if launcher == "run":
        sentence = BY_LAUNCHER.get(what, sentence)
    sentence = APART.get(launcher, {}).get(what, sentence)
    status, said = started(launcher, size, what)
    assert status, said
    assert re.search(sentence.replace("{last}", str(size - 1)), said), said


@mpi
@pytest.mark.parametrize(("launcher", "size", "what"), [marked(*case) for case in CASES])
def test_the_job_ends_and_says_why(launcher: str, size: int, what: str) -> None:
    for _ in range(REPEATS):
        check(launcher, size, what)


if __name__ == "__main__":
    if sys.argv[1] in APART:
        raise SystemExit(apart(sys.argv[1], int(sys.argv[2]), sys.argv[-1]))
    faulty(sys.argv[1])
