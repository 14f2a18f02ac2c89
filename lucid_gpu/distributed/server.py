"""The store's server and the answers MPI asks for at start; standard library only.

The file is run by its path in a process of its own, because a process inside ``MPI_Init`` holds the
interpreter's lock and could answer nobody. ``serve`` holds keys and values for all ranks. ``pmi``
stands beside one rank, answers MPICH's start-up protocol (PMI-1) out of that store, and guards the
rank: it tells the store that the rank lives, and the rank who does not.

A connection begins with a nonce of 32 bytes, which the client answers with its HMAC-SHA256 under
the shared secret. Then come requests and replies. Both are a count and that many parts, each with
its length; the first part of a request is the verb. Values are bytes; nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence

__all__ = ["Connection", "StoreServer", "answer_pmi", "listen"]

MAX_KEY = 1 << 10
MAX_VALUE = 1 << 23
MAX_PARTS = 4096
NONCE = 32
BEAT = 0.5  # seconds between two words of a guard
SILENT = 3.0  # seconds without one after which a rank is taken for dead
ENDED = b"has ended without leaving the others (killed, crashed or os._exit)"
STOPPED = b"is stopped, or its machine is, or cannot be reached: no sign of it for 3 s"


class Refused(ConnectionError):
    """The server closed a connection before it answered: the secret was wrong."""


def _read(sock: socket.socket, count: int) -> bytes:
    chunks = []
    while count:
        chunk = sock.recv(min(count, 1 << 20))
        if not chunk:
            raise ConnectionError("the store closed the connection")
        chunks.append(chunk)
        count -= len(chunk)
    return b"".join(chunks)


def _receive(sock: socket.socket) -> list[bytes]:
    (count,) = struct.unpack("!I", _read(sock, 4))
    if count > MAX_PARTS:
        raise ValueError(f"a message of {count} parts; at most {MAX_PARTS}")
    parts = []
    for _ in range(count):
        (length,) = struct.unpack("!I", _read(sock, 4))
        if length > MAX_VALUE:
            raise ValueError(f"a value of {length} bytes; at most {MAX_VALUE}")
        parts.append(_read(sock, length))
    return parts


def check(parts: Sequence[bytes]) -> None:
    """Refuse a request that goes beyond the limits, before it is sent.

    Raises
    ------
    ValueError
        For more than 4,096 parts, a part of more than 8 MiB, or a key of more than 1 KiB.
    """
    if len(parts) > MAX_PARTS:
        raise ValueError(
            f"the store takes {MAX_PARTS:,} parts a request (the verb, keys and values), got "
            f"{len(parts):,}; use several requests"
        )
    verb, *rest = parts
    longest = max(map(len, parts))
    if longest > MAX_VALUE:
        raise ValueError(
            f"the store takes values of at most {MAX_VALUE:,} bytes (8 MiB), got {longest:,}; "
            "send large values by broadcast, or by a file"
        )
    keys = {b"set": rest[::2], b"check": rest, b"get": rest[1:], b"wait": rest[1:]}
    key = max(map(len, keys.get(verb, rest[:1])), default=0)
    if key > MAX_KEY:
        raise ValueError(f"the store takes keys of at most {MAX_KEY:,} bytes (1 KiB), got {key:,}")


def _send(sock: socket.socket, parts: list[bytes]) -> None:
    message = [struct.pack("!I", len(parts))]
    for part in parts:
        message += [struct.pack("!I", len(part)), part]
    sock.sendall(b"".join(message))


class Connection:
    """A client's connection; `ask` is one request and its reply.

    Parameters
    ----------
    host : str
    port : int
    secret : bytes
    timeout : float
        Seconds to wait for the server to listen.
    """

    def __init__(self, host: str, port: int, secret: bytes, timeout: float) -> None:
        self._lock = threading.Lock()
        end = time.monotonic() + timeout
        while True:
            try:
                self._sock = socket.create_connection((host, port), max(0.1, timeout))
                break
            except OSError as error:
                if time.monotonic() > end:
                    raise TimeoutError(
                        f"The client socket has timed out after {int(timeout * 1000)}ms while "
                        f"trying to connect to ({host}, {port}): {error}"
                    ) from None
                time.sleep(0.02)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            nonce = _read(self._sock, NONCE)
            self._sock.sendall(hmac.digest(secret, nonce, "sha256"))
            if _receive(self._sock) != [b"ok"]:
                raise ConnectionError
        except (ConnectionError, struct.error, ValueError):
            self._sock.close()
            raise Refused(
                f"the store at ({host}, {port}) refused this process: LUCID_STORE_SECRET differs, "
                "or another program listens on that port"
            ) from None
        self._sock.settimeout(None)

    def ask(self, *parts: bytes) -> list[bytes]:
        """Send a request and wait for its reply; ValueError beyond the limits of `check`."""
        check(parts)
        with self._lock:
            _send(self._sock, list(parts))
            return _receive(self._sock)

    def limit(self, seconds: float) -> None:
        """Let `ask` wait no longer than ``seconds``; TimeoutError then."""
        self._sock.settimeout(seconds)

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()


class StoreServer:
    """Keys and values of all ranks; each connection is served by a thread.

    Parameters
    ----------
    sock : socket or None
        It listens; None where only `answer` is called.
    secret : bytes

    Attributes
    ----------
    values : dict of bytes to bytes
    gone : dict of bytes to bytes
        Ranks that died, the first one first, and how.
    """

    def __init__(self, sock: socket.socket | None, secret: bytes) -> None:
        self._sock, self._secret = sock, secret
        self.values: dict[bytes, bytes] = {}
        self.gone: dict[bytes, bytes] = {}
        self._changed = threading.Condition()
        self._connections = 0

    def run(self) -> None:
        """Accept connections until `stop_listening`."""
        assert self._sock is not None
        while True:
            try:
                sock, _ = self._sock.accept()
            except OSError:  # `stop_listening`
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def stop_listening(self) -> None:
        """Give the port back; who is connected stays so."""
        assert self._sock is not None
        self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def wait_until_left(self) -> None:
        """Wait until nobody is connected."""
        with self._changed:
            self._changed.wait_for(lambda: not self._connections)

    def _serve(self, sock: socket.socket) -> None:
        with self._changed:
            self._connections += 1
        # A peer that breaks off, or sends what is no message, ends its own connection only.
        with contextlib.suppress(OSError, ValueError, struct.error), sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(10)
            nonce = os.urandom(NONCE)
            sock.sendall(nonce)
            expected = hmac.digest(self._secret, nonce, "sha256")
            if hmac.compare_digest(_read(sock, len(expected)), expected):
                sock.settimeout(None)
                _send(sock, [b"ok"])
                self._answer_all(sock)
        with self._changed:
            self._connections -= 1
            self._changed.notify_all()

    def _answer_all(self, sock: socket.socket) -> None:
        """Answer a connection's requests; the end or silence of a guard's is its rank's death."""
        rank, how = b"", ENDED
        try:
            while True:
                verb, *rest = _receive(sock)
                if verb in (b"guard", b"left"):
                    rank = rest[0] if verb == b"guard" else b""
                    sock.settimeout(SILENT if rank else None)
                _send(sock, self.answer(verb, rest))
        except TimeoutError:
            how = STOPPED
            raise
        finally:
            if rank:
                with self._changed:
                    self.gone.setdefault(rank, how)

    def answer(self, verb: bytes, rest: list[bytes]) -> list[bytes]:
        """The reply to a request.

        ``wait`` and ``get`` take seconds and keys, ``check`` keys, ``set`` keys and values in turn;
        ``guard`` and ``left`` a rank, ``gone`` a rank and how it died; ``beat`` answers who died.
        """
        values = self.values
        check([verb, *rest])
        with self._changed:
            if verb == b"wait":
                seconds, *keys = rest
                here = self._changed.wait_for(
                    lambda: all(k in values for k in keys), float(seconds)
                )
                return [b"1" if here else b"0"]
            if verb == b"get":
                seconds, *keys = rest
                here = self._changed.wait_for(
                    lambda: all(k in values for k in keys), float(seconds)
                )
                return [values[k] for k in keys] if here else []
            if verb == b"check":
                return [b"1" if all(k in values for k in rest) else b"0"]
            if verb == b"count":
                return [b"%d" % len(values)]
            if verb == b"beat":
                return [rank + b" " + how for rank, how in list(self.gone.items())[:16]]
            if verb == b"gone":
                self.gone[rest[0]] = rest[1]
                return [b""]
            if verb in (b"guard", b"left"):
                self.gone.pop(rest[0], None)
                return [b""]
            if verb == b"delete":
                return [b"1" if values.pop(rest[0], None) is not None else b"0"]
            if verb == b"set":
                for key, value in zip(rest[::2], rest[1::2]):
                    values[key] = value
                stored = b""
            elif verb == b"append":
                stored = values[rest[0]] = values.get(rest[0], b"") + rest[1]
            elif verb == b"add":
                stored = values[rest[0]] = b"%d" % (int(values.get(rest[0], b"0")) + int(rest[1]))
            elif verb == b"compare_set":
                key, expected, desired = rest
                if key not in values and expected:
                    stored = expected
                else:
                    if values.get(key, b"") == expected:
                        values[key] = desired
                    stored = values[key]
            else:
                raise ValueError(f"no verb {verb!r}")
            self._changed.notify_all()
            return [stored]


def listen(host: str, port: int) -> socket.socket:
    """A listening socket on an address of this machine."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(4096)
    except OSError:
        sock.close()
        raise
    return sock


def _serve_until_left(host: str, port: int, secret: bytes) -> int:
    """Serve until the process that holds our standard input, and all clients, have gone."""
    try:
        sock = listen(host, port)
    except OSError as error:
        print(f"{error.errno} {error.strerror or error}", flush=True)
        return 1
    print(f"port {sock.getsockname()[1]}", flush=True)
    if os.fork():  # so that nobody has to wait for this process to end
        os._exit(0)
    sys.stdout.close()
    server = StoreServer(sock, secret)
    threading.Thread(target=server.run, daemon=True).start()
    sys.stdin.buffer.read()
    server.stop_listening()
    server.wait_until_left()
    return 0


def answer_pmi(line: str, ask: Connection, name: str, rank: int, size: int, seconds: float) -> str:
    """The reply to one PMI-1 request."""
    request = dict(word.split("=", 1) for word in line.split() if "=" in word)
    command = request.get("cmd")
    key = f"pmi/{name}/{request.get('key', '')}".encode()
    if command == "init":
        return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
    if command == "get_maxes":
        return "cmd=maxes kvsname_max=256 keylen_max=256 vallen_max=4096"
    if command == "get_appnum":
        return "cmd=appnum appnum=0"
    if command == "get_universe_size":
        return f"cmd=universe_size size={size}"
    if command == "get_my_kvsname":
        return f"cmd=my_kvsname kvsname={name}"
    if command == "put":
        ask.ask(b"set", key, line.split(" value=", 1)[1].encode())
        return "cmd=put_result rc=0 msg=success"
    if command == "get":
        values = ask.ask(b"get", b"0", key)
        if not values:
            return "cmd=get_result rc=-1 msg=key_not_found value=unknown"
        return f"cmd=get_result rc=0 msg=success value={values[0].decode()}"
    if command == "barrier_in":
        came = int(ask.ask(b"add", f"pmi/{name}//barrier".encode(), b"1")[0])
        gate = f"pmi/{name}//gate/{(came - 1) // size}".encode()
        if came % size == 0:
            ask.ask(b"set", gate, b"")
        elif ask.ask(b"wait", b"%f" % seconds, gate) != [b"1"]:
            raise TimeoutError(f"rank {rank} waited {seconds:g} s for the others to start MPI")
        return "cmd=barrier_out"
    if command == "finalize":
        return "cmd=finalize_ack"
    return f"cmd={command} rc=-1 msg=unknown_command"


def _state(pid: int) -> str:
    """The letter of a process's state in ``/proc``: T is stopped; Z where it has ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z" if os.path.exists("/proc/self/stat") else "?"


def _guard(pid: int, tell: socket.socket, ask: Connection, rank: bytes, where: str) -> None:
    """Say every `BEAT` that a rank lives, and tell it who has died, each once.

    A process of its own does it, which no call that holds the interpreter's lock delays. It is
    silent while the rank is stopped, and ends with it: the store draws the conclusion. What it
    hears it tells one beat later, when a launcher had the time to say how a rank has ended.
    """
    ask.limit(SILENT)
    ask.ask(b"guard", rank)
    heard: set[bytes] = set()
    told: set[bytes] = set()
    while (state := _state(pid)) != "Z":
        try:
            said = ask.ask(b"beat") if state != "T" else []
        except OSError as error:
            heard.add(b"0")
            said = [f"0 cannot be reached: the store at {where} is gone ({error})".encode()]
        for line in said:
            other = line.split(b" ", 1)[0]
            if other in heard and other not in told:
                told.add(other)
                try:
                    tell.send(line)
                except OSError:  # the rank has ended meanwhile
                    os._exit(1)
            heard.add(other)
        time.sleep(BEAT)
    os._exit(1)  # children of the rank may hold its end of the socket that MPI has


def _pmi(arguments: list[str], secret: bytes) -> int:
    fd, news, pid, host, port, name, rank, size, seconds = arguments
    print("ready", flush=True)
    if os.fork():
        os._exit(0)
    sys.stdout.close()
    sock = socket.socket(fileno=int(fd))
    ask = Connection(host, int(port), secret, float(seconds))
    beats = Connection(host, int(port), secret, float(seconds))
    tell = socket.socket(fileno=int(news))
    threading.Thread(
        target=_guard, args=(int(pid), tell, beats, rank.encode(), f"{host}:{port}"), daemon=True
    ).start()
    with sock, sock.makefile("r", newline="\n") as lines:
        for line in lines:
            if line.startswith("cmd=abort"):
                return 1
            try:
                if line.startswith("cmd=finalize"):
                    beats.ask(b"left", rank.encode())
                reply = answer_pmi(line.strip(), ask, name, int(rank), int(size), float(seconds))
            except (OSError, TimeoutError) as error:  # MPI ends the process, and does not say why
                print(error, file=sys.stderr, flush=True)
                return 1
            sock.sendall(reply.encode() + b"\n")
    return 0


def main() -> int:
    """``server.py serve HOST PORT`` or ``server.py pmi ...``; the secret is a line of hex digits
    on standard input.
    """
    mode, *arguments = sys.argv[1:]
    secret = bytes.fromhex(sys.stdin.buffer.readline().decode().strip())
    if mode == "serve":
        return _serve_until_left(arguments[0], int(arguments[1]), secret)
    return _pmi(arguments, secret)


if __name__ == "__main__":
    # Ctrl-C is for the ranks: this ends when they do.
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(main())
