"""Processes that tests start under MPI, and what they must leave behind: nothing."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

import lucid_gpu.distributed as dist

ROOT = Path(__file__).resolve().parents[2]
MPIEXEC = Path(sys.executable).parent / "mpiexec"
JOB = "LUCID_TEST_JOB"  # the variable that names the processes of one command
mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or not MPIEXEC.exists(),
    reason="mpi4py or mpich is not installed: pip install '.[mpi]'",
)

# What MPICH, Open MPI of version 4 and of version 5 call theirs.
SHARED = ("mpich_shm_*", "vader_segment*", "sm_segment*")


def _is_mpich() -> bool:
    """Whether ranks can be connected without mpiexec; Open MPI's cannot."""
    if mpi.args[0]:
        return False
    version = subprocess.run([MPIEXEC, "--version"], capture_output=True, text=True)
    return "Open MPI" not in version.stdout


mpich = pytest.mark.skipif(
    not _is_mpich(), reason="without mpiexec, ranks are connected by MPICH alone: '.[mpi]'"
)


def segments() -> set[str]:
    """The names of shared memory that MPICH or Open MPI has made."""
    return {p.name for pattern in SHARED for p in Path("/dev/shm").glob(pattern)}


def used() -> str:
    """What the memory maps of all living processes list."""
    maps = []
    for path in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            maps.append(path.read_text())
    return "".join(maps)


def of_job(job: str) -> list[str]:
    """Living processes that a job has started, by the variable that names it."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # as above
            if f"{JOB}={job}".encode() in (path / "environ").read_bytes() and lives(path.name):
                found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def left_since(before: set[str], job: str) -> list[str]:
    """What a job that has ended leaves: processes, and shared memory that none uses.

    Jobs of tests beside this one have memory, too, as long as they take.
    """
    end = time.monotonic() + 10
    while True:
        left = of_job(job)
        if made := segments() - before:
            maps = used()
            left += [name for name in made & segments() if name not in maps]
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.1)


def environment(job: str = "", **variables: str) -> dict[str, str]:
    """The environment of processes that a test starts."""
    fixed = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", JOB: job}
    return {**os.environ, **fixed, **variables}


def ended(command: list[str], seconds: float = 200, **variables: str) -> tuple[int, str]:
    """Run a command in a process group of its own, which is killed when it takes too long.

    Returns
    -------
    (int, str)
        Its status, and what it printed.
    """
    before, job = segments(), uuid.uuid4().hex
    process = subprocess.Popen(
        command,
        env=environment(job, **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=seconds)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    left = left_since(before, job)
    assert not left, f"{left}\n{said}"
    return process.returncode, said


def run(command: list[str], seconds: float = 200, **variables: str) -> str:
    """What a command printed that must succeed."""
    status, said = ended(command, seconds, **variables)
    assert status == 0, said
    return said


def lives(pid: str) -> bool:
    """Whether a process still runs; one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def one_rank(folder: Path) -> Iterator[None]:
    """A group of this process alone."""
    dist.init_process_group("gloo", f"file://{folder}/store", rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def on_this_rank(parts: Iterable[Callable[[], None]]) -> None:
    """Run parts one after another, on one of the ranks that a launcher started."""
    dist.init_process_group("gloo")
    for part in parts:
        part()
    dist.destroy_process_group()
