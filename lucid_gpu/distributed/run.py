"""``python -m lucid_gpu.distributed.run --nproc-per-node 2 script.py``: processes that train.

Takes torchrun's options. The processes find each other through a store that this command serves;
each gets ``RANK``, ``LOCAL_RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and ``MASTER_PORT``. When one
fails, the others are ended, and the command ends with its status.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from lucid_gpu.distributed import server
from lucid_gpu.distributed.engines import mpi
from lucid_gpu.distributed.errors import DistError
from lucid_gpu.distributed.store import (
    FAILED,
    HOSTED,
    OPEN,
    SECRET,
    TCPStore,
    start_server,
)

__all__ = ["main"]

_POLL = 0.05  # seconds between two looks at the processes
_GRACE = 5.0  # seconds that processes have to end once they are told to


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lucid_gpu.distributed.run",
        description="Run a script in several processes.",
    )

    def option(name: str, **settings: Any) -> None:
        parser.add_argument(
            *dict.fromkeys([f"--{name}", f"--{name.replace('-', '_')}"]), **settings
        )

    option("nnodes", default="1", help="how many machines, each of which runs this command")
    option("nproc-per-node", default="1", help="processes on this machine; auto or cpu: one a core")
    option("node-rank", type=int, default=None, help="this machine's number, from 0")
    option("master-addr", default="127.0.0.1", help="machine 0's address")
    option("master-port", type=int, default=None, help="a free port of machine 0")
    option("rdzv-endpoint", default="", help="host:port, instead of the two above")
    option("rdzv-backend", default="static", choices=["static", "c10d"])
    option("rdzv-id", default="none", help="a name for the job")
    option("rdzv-conf", default="", help="refused")
    option("standalone", action="store_true", help="one machine; any free port")
    option("max-restarts", type=int, default=0, help="0: a job that failed is not started again")
    option("role", default="default")
    option("log-dir", default=None, help="refused: processes write where this command does")
    option("monitor-interval", type=float, default=_POLL, help="seconds between two looks")
    option("start-method", default="spawn", help="taken and unused")
    option("use-env", action="store_true", help="no --local-rank for the script; as always here")
    option("no-python", action="store_true", help="run the program itself, not python with it")
    parser.add_argument("-r", "--redirects", default="0", help="refused")
    parser.add_argument("-t", "--tee", default="0", help="refused")
    parser.add_argument("-m", "--module", action="store_true", help="a module's name, as python -m")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


def _settle(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse what is not here, and bring options to their meaning."""
    if options.max_restarts:
        parser.error("--max-restarts: only 0; start a failed job again from its last checkpoint")
    if options.log_dir is not None or options.redirects != "0" or options.tee != "0":
        parser.error(
            "--log-dir, --redirects and --tee are not here: all processes write to this command's "
            "output; redirect that, or let the script write to a file named by RANK"
        )
    if options.rdzv_conf:
        parser.error("--rdzv-conf is not here; set the time-out in init_process_group(timeout=)")
    low, _, high = str(options.nnodes).partition(":")
    if not low.isdigit() or int(low) < 1 or high not in ("", low):
        parser.error(
            f"--nnodes must be a number of machines, got {options.nnodes!r}; jobs do not grow"
        )
    options.nnodes = int(low)
    if options.nproc_per_node in ("auto", "cpu"):
        options.nproc_per_node = str(os.cpu_count() or 1)
    if not options.nproc_per_node.isdigit() or int(options.nproc_per_node) < 1:
        parser.error(
            "--nproc-per-node must be a number of processes, auto or cpu, got "
            f"{options.nproc_per_node!r}"
        )
    options.nproc_per_node = int(options.nproc_per_node)
    if options.rdzv_endpoint and not options.standalone:
        host, _, port = options.rdzv_endpoint.rpartition(":")
        if not port.isdigit():
            parser.error(f"--rdzv-endpoint must be host:port, got {options.rdzv_endpoint!r}")
        options.master_addr, options.master_port = host, int(port)
    if options.standalone:
        options.nnodes, options.master_addr, options.master_port = 1, "127.0.0.1", None
    if options.nnodes > 1 and (options.node_rank is None or not options.master_port):
        parser.error("--nnodes: several machines need --node-rank, --master-addr and --master-port")
    options.node_rank = options.node_rank or 0
    if not 0 <= options.node_rank < options.nnodes:
        parser.error(f"--node-rank {options.node_rank} is out of range: --nnodes {options.nnodes}")


def _command(options: argparse.Namespace, local: int | str) -> list[str]:
    python = [] if options.no_python else [sys.executable, "-u"]
    told = [] if options.use_env else [f"--local-rank={local}"]
    return [*python, *(["-m"] if options.module else []), options.script, *told, *options.arguments]


def _threads(count: int) -> dict[str, str]:
    """One thread of BLAS for each of several processes, unless the user has said how many."""
    return {} if count == 1 or "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": "1"}


def _variables(options: argparse.Namespace, local: int) -> dict[str, str]:
    count, machines = options.nproc_per_node, options.nnodes
    rank, size = str(options.node_rank * count + local), str(machines * count)
    return {
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(count),
        "GROUP_RANK": str(options.node_rank),
        "GROUP_WORLD_SIZE": str(machines),
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": size,
        "ROLE_NAME": options.role,
        "MASTER_ADDR": options.master_addr,
        "MASTER_PORT": str(options.master_port),
        "TORCHELASTIC_RUN_ID": options.rdzv_id,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        HOSTED: f"{options.master_addr}:{options.master_port}",
        **_threads(count),
    }


class _Ended(Exception):
    """A signal came: the command is to end."""

    def __init__(self, number: int) -> None:
        self.number = number


def _on_signal(number: int, _: Any) -> None:
    raise _Ended(number)


class _Job:
    """The processes of this machine; each leads a group, so that what it starts ends too."""

    def __init__(self, options: argparse.Namespace, store: TCPStore) -> None:
        self.store, self.script = store, options.script
        self.first = options.node_rank * options.nproc_per_node
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        for local in range(options.nproc_per_node):
            self.running[self.first + local] = subprocess.Popen(
                _command(options, local),
                env={**os.environ, **_variables(options, local)},
                start_new_session=True,
            )
        self.started = dict(self.running)

    def wait(self) -> int:
        """Wait for all, or until one has failed; the job's status."""
        heard: list[tuple[int, str]] = []
        next_look = 0.0
        while self.running:
            failed = [failure for failure in map(self._look, list(self.running)) if failure]
            if failed:
                return self._failed(dict(failed))
            if time.monotonic() > next_look:
                before, heard = heard, self.store.died()
                if before:  # had it died here, `_look` would have seen it by now
                    return self._failed({}, (heard or before)[0])
                next_look = time.monotonic() + server.BEAT
            time.sleep(_POLL)
        return 0

    def _look(self, rank: int) -> tuple[int, int] | None:
        """A rank that has failed, and its status."""
        status = self.running[rank].poll()
        if status is None:
            return None
        del self.running[rank]
        if status == 0 and self.store.check([OPEN.format(rank)]):
            return rank, 0
        return (rank, status) if status else None

    def _failed(self, failed: dict[int, int], died: tuple[int, str] = (0, "")) -> int:
        """Say which rank failed first, here and to the other machines."""
        rank, why = next(iter(failed), died[0]), ""
        if self.store.check([FAILED]):
            first, why = self.store.get(FAILED).decode().split(" ", 1)
            rank = int(first)
        status = failed.get(rank)
        if status is None and rank in self.running:  # it has said so and is about to end
            status = self._wait_for(rank)
        what = f"rank {rank}"
        if rank in self.started:
            what += f" (process {self.started[rank].pid}) of {self.script}"
        if status is None:
            status = 1
            how = died[1] or "failed on another machine"
        elif status < 0:
            how = f"was ended by signal {-status} ({signal.Signals(-status).name})"
            status = 128 - status
        elif status == 0:
            status = 1
            how = "left before destroy_process_group(): its status is 0, but the others need it"
        else:
            how = f"ended with status {status}"
        reason = f": {why}" if why else ""
        if rank in self.started:
            self.store.say_died(rank, how)
        print(f"{what} {how}{reason}; ending the other ranks", file=sys.stderr, flush=True)
        return status

    def _wait_for(self, rank: int) -> int | None:
        try:
            return self.running[rank].wait(_GRACE)
        except subprocess.TimeoutExpired:
            return None

    def end(self, number: int) -> None:
        """End what still runs, by a signal and, where that is not enough, by SIGKILL."""
        for sent in (number, signal.SIGKILL):
            end = time.monotonic() + _GRACE
            for process in self.started.values():
                try:
                    os.killpg(process.pid, sent)
                except (ProcessLookupError, PermissionError):  # all of the group have ended
                    continue
            while time.monotonic() < end and any(p.poll() is None for p in self.started.values()):
                time.sleep(0.01)


def _run(options: argparse.Namespace) -> int:
    if options.nnodes == 1 and SECRET not in os.environ:
        os.environ[SECRET] = secrets.token_hex(32)
    served = None
    if options.node_rank == 0:
        served, options.master_port = start_server(
            options.master_addr, options.master_port or 0, os.environ.get(SECRET, "")
        )
    limit = timedelta(minutes=5)
    store = TCPStore(options.master_addr, options.master_port, timeout=limit)
    store.limit(server.SILENT)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _on_signal)
    job, last = None, signal.SIGTERM
    try:
        job = _Job(options, store)
        return job.wait()
    except _Ended as ended:
        last = signal.Signals(ended.number)
        return 128 + ended.number
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if job is not None:
            job.end(last)
        if served is not None:
            served.close()


_FROM_MPI = {
    "RANK": ("PMI_RANK", "OMPI_COMM_WORLD_RANK"),
    "WORLD_SIZE": ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE"),
    "LOCAL_RANK": ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"),
    "LOCAL_WORLD_SIZE": ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE"),
}


def _become(options: argparse.Namespace) -> None:
    """Under MPI's launcher, which started this process as one rank: run the script in it."""
    for name, sources in _FROM_MPI.items():
        values = [os.environ[source] for source in sources if source in os.environ]
        if values:
            os.environ.setdefault(name, values[0])
    os.environ.setdefault("TORCHELASTIC_RUN_ID", options.rdzv_id)
    os.environ.update(_threads(mpi.launched_size()))
    command = _command(options, os.environ.get("LOCAL_RANK", "0"))
    os.execvp(command[0], command)


def main(arguments: Sequence[str] | None = None, use_env: bool = True) -> int:
    """Run a script in several processes; the status of the first that failed, or 0.

    Without ``use_env`` the script gets ``--local-rank`` as its first argument, too.
    """
    parser = _parser()
    parser.set_defaults(use_env=use_env)
    options = parser.parse_args(arguments)
    _settle(parser, options)
    if options.no_python and options.module:
        parser.error("--no-python and -m exclude each other")
    if mpi.launched_size() > 1:
        _become(options)
    try:
        return _run(options)
    except (DistError, OSError) as error:
        print(f"python -m lucid_gpu.distributed.run: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
