"""How ranks find each other: what ``init_method`` and the environment say."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import parse_qs, urlparse

from lucid_gpu.distributed.engines import mpi
from lucid_gpu.distributed.store import HOSTED, FileStore, Store, TCPStore

__all__ = ["RendezvousInfo", "connect", "find"]

_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK")


@dataclass
class RendezvousInfo:
    """A process among others, and the store that connects them; MPI's launcher needs none.

    Attributes
    ----------
    rank, size : int
    store : Store or None
    """

    rank: int
    size: int
    store: Store | None


def _missing(method: str, what: str) -> ValueError:
    return ValueError(f"Error initializing torch.distributed using {method}:// rendezvous: {what}")


def _from_environment(name: str, value: int) -> int:
    if value >= 0:
        return value
    if name not in os.environ:
        raise _missing("env", f"environment variable {name} expected, but not set")
    return int(os.environ[name])


def find(
    backend: str, init_method: str | None, rank: int, size: int, timeout: timedelta
) -> RendezvousInfo:
    """This process's rank and store, by arguments, by MPI's launcher, or by the environment.

    Raises
    ------
    ValueError
        If something is missing.
    RuntimeError
        For an ``init_method`` that is not known.
    """
    url = urlparse(init_method or "env://")
    if url.scheme not in ("env", "tcp", "file"):
        raise RuntimeError(f"No rendezvous handler for {url.scheme}://")
    query = {key: values[-1] for key, values in parse_qs(url.query).items()}
    rank = int(query.get("rank", rank))
    size = int(query.get("world_size", size))
    launched = mpi.launched_size()
    if launched > 1 or (backend == "mpi" and "RANK" not in os.environ and rank < 0):
        by_mpi = next((int(os.environ[n]) for n in _RANKS if n in os.environ), 0)
        if size not in (-1, launched):
            raise ValueError(
                f"init_process_group: world_size={size}, but MPI's launcher started {launched}"
            )
        return RendezvousInfo(rank if rank >= 0 else by_mpi, launched, None)
    if url.scheme == "env":
        rank, size = _from_environment("RANK", rank), _from_environment("WORLD_SIZE", size)
        host = query.get("host") or os.environ.get("MASTER_ADDR")
        if host is None:
            raise _missing("env", "environment variable MASTER_ADDR expected, but not set")
        port = _from_environment("MASTER_PORT", -1)
    else:
        if rank < 0:
            raise _missing(url.scheme, "rank parameter missing")
        if size < 0:
            raise _missing(url.scheme, "world size parameter missing")
        host, port = url.hostname or "", url.port or 0
    if not 0 <= rank < size:
        raise ValueError(f"rank {rank} is out of range: world_size is {size}")
    if url.scheme == "file" and not url.path:
        raise _missing("file", "path missing")
    if url.scheme == "tcp" and not port:
        raise _missing("tcp", "port number missing")
    if size == 1:
        return RendezvousInfo(rank, size, None)
    if url.scheme == "file":
        return RendezvousInfo(rank, size, FileStore(url.path))
    return RendezvousInfo(rank, size, _tcp_store(host, port, rank, size, timeout))


_stores: dict[tuple[int, str, int], TCPStore] = {}  # by process: a fork shares no connection


def _tcp_store(host: str, port: int, rank: int, size: int, timeout: timedelta) -> TCPStore:
    """The store at an address, kept for the next `init_process_group`."""
    key = os.getpid(), host, port
    if key not in _stores:
        serves = rank == 0 and os.environ.get(HOSTED) != f"{host}:{port}"
        _stores[key] = TCPStore(host, port, size, serves, timeout, wait_for_workers=False)
    return _stores[key]


def connect(info: RendezvousInfo, timeout: timedelta) -> TCPStore:
    """A store over TCP for a process whose store is of another kind: rank 0 starts it, and tells
    the others through theirs.
    """
    store = info.store
    if isinstance(store, TCPStore):
        return store
    assert store is not None
    store.set_timeout(timeout)
    if info.rank == 0:
        host = os.environ.get("MASTER_ADDR", "127.0.0.1")
        made = TCPStore(host, 0, is_master=True, timeout=timeout)
        store.set("lucid/address", f"{host} {made.port}")
        return made
    host, port = store.get("lucid/address").decode().split()
    return TCPStore(host, int(port), timeout=timeout)
