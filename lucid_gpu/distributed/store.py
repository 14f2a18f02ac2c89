"""Keys and values that ranks share: over TCP, in a file, or in one process. Values are bytes."""

from __future__ import annotations

import base64
import fcntl
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from lucid_gpu.distributed import server
from lucid_gpu.distributed.errors import DistNetworkError, DistStoreError

__all__ = ["FileStore", "HashStore", "PrefixStore", "Store", "TCPStore"]

SECRET = "LUCID_STORE_SECRET"
HOSTED = "LUCID_STORE_HOSTED"  # the address at which the launcher serves the store itself
# What the launcher reads in that store: a rank whose MPI runs, and the first rank that failed.
OPEN = "lucid/open/{}"
FAILED = "lucid/failed"
DEFAULT_TIMEOUT = timedelta(seconds=300)


def as_bytes(value: str | bytes) -> bytes:
    """A key or value as it is stored."""
    return value if isinstance(value, bytes) else str(value).encode()


class Store:
    """Keys and values shared by ranks; the base class of the stores.

    Attributes
    ----------
    timeout : timedelta
        How long `get` and `wait` wait for a key.
    """

    timeout = DEFAULT_TIMEOUT

    def _ask(self, verb: bytes, *parts: bytes) -> list[bytes]:
        """The reply to a request, as `server.StoreServer` gives it."""
        raise NotImplementedError("Subclasses of Store define where keys and values lie")

    def _seconds(self, timeout: timedelta | None) -> float:
        return (self.timeout if timeout is None else timeout).total_seconds()

    def set_timeout(self, timeout: timedelta) -> None:
        """Set how long `get` and `wait` wait for a key."""
        self.timeout = timeout

    def set(self, key: str, value: str | bytes) -> None:
        """Store a value."""
        self._ask(b"set", as_bytes(key), as_bytes(value))

    def get(self, key: str) -> bytes:
        """The value of a key, waited for; DistStoreError after the time-out."""
        return self.multi_get([key])[0]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Store several values.

        Raises
        ------
        ValueError
            For different numbers of keys and values.
        """
        if len(keys) != len(values):
            raise ValueError(f"multi_set: got {len(keys)} keys and {len(values)} values")
        pairs = [as_bytes(part) for pair in zip(keys, values) for part in pair]
        self._ask(b"set", *pairs)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of several keys, waited for; DistStoreError after the time-out."""
        seconds = self.timeout.total_seconds()
        values = self._ask(b"get", b"%f" % seconds, *map(as_bytes, keys)) if keys else []
        if len(values) != len(keys):
            raise DistStoreError(f"wait timeout after {int(seconds * 1000)}ms, keys: {list(keys)}")
        return values

    def add(self, key: str, amount: int) -> int:
        """Add to a number, 0 at first; the sum."""
        return int(self._ask(b"add", as_bytes(key), b"%d" % amount)[0])

    def append(self, key: str, value: str | bytes) -> None:
        """Append to a value, empty at first."""
        self._ask(b"append", as_bytes(key), as_bytes(value))

    def compare_set(self, key: str, expected_value: str, desired_value: str) -> bytes:
        """Store ``desired_value`` where the value is ``expected_value``; the value afterwards."""
        parts = map(as_bytes, (key, expected_value, desired_value))
        return self._ask(b"compare_set", *parts)[0]

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys have a value."""
        return self._ask(b"check", *map(as_bytes, keys)) == [b"1"]

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys have a value; DistStoreError after the time-out."""
        seconds = self._seconds(timeout)
        if self._ask(b"wait", b"%f" % seconds, *map(as_bytes, keys)) != [b"1"]:
            raise DistStoreError(f"wait timeout after {int(seconds * 1000)}ms, keys: {list(keys)}")

    def delete_key(self, key: str) -> bool:
        """Remove a key; whether it was there."""
        return self._ask(b"delete", as_bytes(key)) == [b"1"]

    def num_keys(self) -> int:
        """How many keys there are."""
        return int(self._ask(b"count")[0])


class HashStore(Store):
    """A store inside one process, for its threads."""

    def __init__(self) -> None:
        self._server = server.StoreServer(None, b"")

    def _ask(self, verb: bytes, *parts: bytes) -> list[bytes]:
        return self._server.answer(verb, list(parts))


class PrefixStore(Store):
    """Another store, each key with a prefix.

    Parameters
    ----------
    prefix : str
    store : Store
    """

    def __init__(self, prefix: str, store: Store) -> None:
        self.prefix, self._store = prefix, store
        self.timeout = store.timeout

    @property
    def underlying_store(self) -> Store:
        """The store that holds the values."""
        return self._store

    def _ask(self, verb: bytes, *parts: bytes) -> list[bytes]:
        prefix = as_bytes(self.prefix) + b"/"
        if verb in (b"get", b"wait"):
            keys = [parts[0], *(prefix + key for key in parts[1:])]
        elif verb == b"set":
            keys = [part if i % 2 else prefix + part for i, part in enumerate(parts)]
        elif verb == b"check":
            keys = [prefix + key for key in parts]
        else:
            keys = [prefix + part if i == 0 else part for i, part in enumerate(parts)]
        return self._store._ask(verb, *keys)


class FileStore(Store):
    """A store in a file that all ranks can read, write and lock.

    Parameters
    ----------
    file_name : str
        The folder exists; the file need not.
    world_size : int, optional
        The last of as many stores that is deleted removes the file.
    """

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        self.path, self._count = os.fspath(file_name), world_size
        if world_size > 0:
            self.add("\0users", 1)

    def _ask(self, verb: bytes, *parts: bytes) -> list[bytes]:
        if verb not in (b"get", b"wait"):
            return self._at_once(verb, parts)
        end = time.monotonic() + float(parts[0])
        pause = 0.0005
        while True:
            answer = self._at_once(verb, (b"0", *parts[1:]))
            if (answer and answer != [b"0"]) or time.monotonic() > end:
                return answer
            time.sleep(pause)
            pause = min(0.05, 2 * pause)

    def _at_once(self, verb: bytes, parts: Sequence[bytes]) -> list[bytes]:
        with open(self.path, "a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            held = server.StoreServer(None, b"")
            held.values.update(_read_file(file.read()))
            before = dict(held.values)
            answer = held.answer(verb, list(parts))
            if held.values != before:
                file.truncate(0)
                file.write(_as_file(held.values))
            return answer

    def num_keys(self) -> int:
        """How many keys there are."""
        return super().num_keys() - self.check(["\0users"])

    def __del__(self) -> None:
        if self._count > 0 and self.add("\0users", -1) <= 0:
            Path(self.path).unlink(missing_ok=True)


def _read_file(content: bytes) -> dict[bytes, bytes]:
    """Lines of two words each in base 64: a key and its value."""
    pairs = [line.split(b" ") for line in content.splitlines()]
    return {base64.b64decode(key): base64.b64decode(value) for key, value in pairs}


def _as_file(values: dict[bytes, bytes]) -> bytes:
    lines = [base64.b64encode(k) + b" " + base64.b64encode(v) + b"\n" for k, v in values.items()]
    return b"".join(lines)


class TCPStore(Store):
    """A store in a process of its own, which the master starts and all ranks connect to.

    Connections are authenticated with the secret in ``LUCID_STORE_SECRET``; the launcher makes one.

    Parameters
    ----------
    host_name : str
        Where the server listens.
    port : int
        0 lets the system choose; the attribute `port` says which.
    world_size : int, optional
        With ``wait_for_workers``, the master waits until as many stores are connected.
    is_master : bool
        Start the server.
    timeout : timedelta
    wait_for_workers : bool
    multi_tenant, master_listen_fd, use_libuv
        Accepted and ignored.

    Raises
    ------
    DistNetworkError
        If the port is taken, nobody listens there, or the secret differs.
    """

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta = DEFAULT_TIMEOUT,
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
    ) -> None:
        self.host, self.port, self.timeout = host_name, int(port), timeout
        self.secret = os.environ.get(SECRET, "")
        self._server: Any = None
        if is_master:
            if not self.secret and host_name not in ("localhost", "127.0.0.1", "::1"):
                warnings.warn(
                    f"TCPStore listens on {host_name} and takes every connection: set {SECRET} to "
                    "the same hex digits on all ranks, or start them by python -m "
                    "lucid_gpu.distributed.run",
                    stacklevel=2,
                )
            self._server, self.port = start_server(host_name, self.port, self.secret)
        try:
            self._connection = server.Connection(
                self.host, self.port, bytes.fromhex(self.secret), timeout.total_seconds()
            )
        except (OSError, TimeoutError) as error:
            raise DistNetworkError(str(error)) from None
        here = self.add("lucid/connected", 1)
        if is_master and wait_for_workers and world_size and world_size > 1:
            self._wait_for(world_size, here)

    def _wait_for(self, world_size: int, here: int) -> None:
        end = time.monotonic() + self.timeout.total_seconds()
        while here < world_size:
            if time.monotonic() > end:
                raise DistStoreError(
                    f"Timed out after {int(self.timeout.total_seconds())} seconds waiting for "
                    f"clients. {here}/{world_size} clients joined."
                )
            time.sleep(0.005)
            here = self.add("lucid/connected", 0)

    def _ask(self, verb: bytes, *parts: bytes) -> list[bytes]:
        try:
            return self._connection.ask(verb, *parts)
        except OSError as error:
            raise DistNetworkError(f"({self.host}, {self.port}): {error}") from None

    def num_keys(self) -> int:
        """How many keys there are."""
        return super().num_keys() - 1

    def limit(self, seconds: float) -> None:
        """Let requests wait no longer than ``seconds`` for the server; DistNetworkError then."""
        self._connection.limit(seconds)

    def died(self) -> list[tuple[int, str]]:
        """Ranks that have died, the first one first, and how."""
        lines = [line.decode().split(" ", 1) for line in self._ask(b"beat")]
        return [(int(rank), how) for rank, how in lines]

    def say_died(self, rank: int, how: str) -> None:
        """Tell all how a rank has died."""
        self._ask(b"gone", b"%d" % rank, how.encode())

    def __del__(self) -> None:
        connection = self.__dict__.get("_connection")
        if connection is not None:
            connection.close()
        server_input = self.__dict__.get("_server")
        if server_input is not None:
            server_input.close()


def start_server(host: str, port: int, secret: str) -> tuple[Any, int]:
    """Start a process that serves a store.

    Returns
    -------
    (file, int)
        The process ends when this file is closed and all clients have left; the port it listens on.
    """
    process, said = run_server(["serve", host, str(port)], secret)
    word, _, rest = said.partition(" ")
    if word == "port":
        return process.stdin, int(rest)
    process.stdin.close()
    raise DistNetworkError(
        "The server socket has failed to listen on any local network address. "
        f"port: {port}, code: -{word}, message: {rest}"
    )


def run_server(
    arguments: list[str], secret: str, pass_fds: tuple[int, ...] = ()
) -> tuple[Any, str]:
    """Run ``server.py``, which goes to the background; the process, and the line it printed."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", server.__file__, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=pass_fds,
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(secret.encode() + b"\n")
    process.stdin.flush()
    said = process.stdout.readline().decode().strip()
    process.stdout.close()
    process.wait()
    return process, said
