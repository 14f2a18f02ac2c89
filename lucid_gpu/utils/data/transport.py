"""Batches on their way between processes: large arrays in memory that both see.

A batch is pickled with its arrays and tensors out of band (PEP 574). If they are large, the sender
writes them into an anonymous file in memory and sends its descriptor; the receiver maps the file,
and the tensors lie in the mapping. Nothing is copied on the receiver's side, and since the file has
no name, nothing is left behind when a process dies, and the size of /dev/shm does not matter.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import socket
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["receive", "send"]

_LARGE = 64 * 1024  # bytes from which a file in memory is cheaper than the pipe
_ALIGNMENT = 64
_MOST_MAPPINGS = 256  # before Python 3.13 each keeps a file descriptor, of which there are 1024
_mappings: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


def send(connection: Connection, head: Any, value: Any) -> None:
    """Send a small head and a value of any size.

    Raises
    ------
    Exception
        What pickling the value raises; then nothing was sent.
    """
    pickle_buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(value, 5, buffer_callback=pickle_buffers.append)
    buffers = [b.raw() for b in pickle_buffers]
    sizes = [b.nbytes for b in buffers]
    in_file = sum(sizes) >= _LARGE
    connection.send((head, sizes, in_file))
    connection.send_bytes(data)
    if not in_file:
        for buffer in buffers:
            connection.send_bytes(buffer)
        return
    with _file_in_memory(buffers) as descriptor, _socket(connection) as sock:
        socket.send_fds(sock, [b"f"], [descriptor])


def receive(connection: Connection) -> tuple[Any, Callable[[], Any]]:
    """The head, and a function that gives the value (and raises what unpickling it raises).

    Raises
    ------
    EOFError, OSError
        If the sender is gone.
    """
    head, sizes, in_file = connection.recv()
    data = connection.recv_bytes()
    if in_file:
        with _socket(connection) as sock:
            _, descriptors, _, _ = socket.recv_fds(sock, 1, 1)
        if not descriptors:
            raise EOFError
        buffers = _mapped(descriptors[0], sizes)
    else:
        buffers = [_received(connection, size) for size in sizes]
    return head, lambda: pickle.loads(data, buffers=buffers)


def _received(connection: Connection, size: int) -> bytearray:
    buffer = bytearray(size)
    if size:
        connection.recv_bytes_into(buffer)
    else:
        connection.recv_bytes()
    return buffer


@contextlib.contextmanager
def _socket(connection: Connection) -> Iterator[socket.socket]:
    """A pipe of `multiprocessing` as the socket that it is."""
    sock = socket.socket(fileno=connection.fileno())
    try:
        yield sock
    finally:
        sock.detach()


def _anonymous() -> Any:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("lucid_gpu batch"), "wb")
    return tempfile.TemporaryFile()


@contextlib.contextmanager
def _file_in_memory(buffers: list[memoryview]) -> Iterator[int]:
    with _anonymous() as file:
        for buffer in buffers:
            file.write(buffer)
            file.write(bytes(-buffer.nbytes % _ALIGNMENT))
        file.flush()
        yield file.fileno()


def _mapped(descriptor: int, sizes: list[int]) -> list[Any]:
    whole = sum(size + -size % _ALIGNMENT for size in sizes)
    try:
        settings: Any = {"trackfd": False} if sys.version_info >= (3, 13) else {}
        memory = mmap.mmap(descriptor, whole, **settings)
    finally:
        os.close(descriptor)
    view: Any = memory
    if not settings and len(_mappings) >= _MOST_MAPPINGS:
        view = bytearray(memory)
    else:
        _mappings.add(memory)
    parts, start = [], 0
    for size in sizes:
        parts.append(memoryview(view)[start : start + size])
        start += size + -size % _ALIGNMENT
    return parts
