"""Stores hold bytes, wait for keys, and refuse who does not know the secret."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lucid_gpu.distributed.errors import DistNetworkError, DistStoreError
from lucid_gpu.distributed.store import FileStore, HashStore, PrefixStore, Store, TCPStore


def made(kind: str, folder: Path) -> Store:
    if kind == "tcp":
        return TCPStore("127.0.0.1", 0, is_master=True)
    if kind == "file":
        return FileStore(str(folder / "store"), 1)
    return PrefixStore("p", HashStore()) if kind == "prefix" else HashStore()


@pytest.mark.parametrize("kind", ["tcp", "file", "hash", "prefix"])
def test_every_verb(kind: str, tmp_path: Path) -> None:
    store = made(kind, tmp_path)
    store.set("a", "1")
    store.append("a", b"\0\xff")
    assert store.get("a") == b"1\0\xff"
    assert [store.add("n", 3), store.add("n", -5)] == [3, -2]
    assert store.compare_set("c", "", "x") == b"x" == store.compare_set("c", "y", "z")
    assert store.check(["a", "n"]) and not store.check(["a", "none"])
    store.multi_set(["k", "l"], ["1", "2"])
    assert store.multi_get(["l", "k"]) == [b"2", b"1"]
    assert store.num_keys() == 5
    assert store.delete_key("a") and not store.delete_key("a")
    store.set_timeout(timedelta(milliseconds=20))
    with pytest.raises(DistStoreError, match="wait timeout after 20ms, keys"):
        store.get("a")
    with pytest.raises(DistStoreError, match="wait timeout after 10ms"):
        store.wait(["a"], timedelta(milliseconds=10))


@pytest.mark.parametrize("kind", ["tcp", "file", "hash"])
def test_errors_name_the_limits(kind: str, tmp_path: Path) -> None:
    store = made(kind, tmp_path)
    with pytest.raises(ValueError, match=r"keys of at most 1,024 bytes \(1 KiB\), got 1,025"):
        store.multi_set(["a", "k" * 1025], ["x", "y"])
    with pytest.raises(ValueError, match=r"at most 8,388,608 bytes \(8 MiB\), got 8,388,609"):
        store.set("a", bytes((1 << 23) + 1))
    with pytest.raises(ValueError, match="takes 4,096 parts a request .*, got 4,097"):
        store.check(["a"] * 4096)
    assert not store.check(["a"])  # nothing was stored, and the connection lives


def test_a_wrong_secret_is_refused(monkeypatch: Any) -> None:
    monkeypatch.setenv("LUCID_STORE_SECRET", "00ff")
    store = TCPStore("127.0.0.1", 0, is_master=True)
    other = TCPStore("127.0.0.1", store.port)
    store.set("a", "b")
    assert other.get("a") == b"b"
    monkeypatch.setenv("LUCID_STORE_SECRET", "00fe")
    with pytest.raises(DistNetworkError, match="refused this process: LUCID_STORE_SECRET differs"):
        TCPStore("127.0.0.1", store.port)


def test_a_port_that_is_taken() -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True)
    with pytest.raises(DistNetworkError, match="The server socket has failed to listen on any"):
        TCPStore("127.0.0.1", store.port, is_master=True)
