"""Damaged checkpoints by the thousand: ``python -m tests.serialization.damage 100000``.

Whatever a file holds, `load` gives an object or raises CheckpointError, one line that names the
file, and takes no memory that the file's size does not account for.
"""

from __future__ import annotations

import io
import random
import sys
import tracemalloc
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

import lucid_gpu
from lucid_gpu import nn
from lucid_gpu.serialization import CheckpointError

_WORDS = [
    *(b"\x80\x02", b"\xff\xff\xff\xff", b"\xff" * 8, b"\x00" * 4, b"q\x00", b"r\xff\xff\xff\x7f"),
    *(
        b"cos\nsystem\n",
        b"\x8c\x02os\x8c\x06system\x93",
        b"R.",
        b"b.",
        b"((((((",
        b"\x96" + b"\xff" * 8,
    ),
    *(b"999999999999", b"-1", b"[", b"{", b'"', b"1e999", b"PK\x01\x02", b"PK\x05\x06", b"null"),
]


def ours() -> bytes:
    """A file of `lucid_gpu.save`."""
    file = io.BytesIO()
    state = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).state_dict()
    more = [1, 2.5, (None, True), {"x": {1}}, np.arange(3), lucid_gpu.tensor([1 + 2j]), 2j, b"ab"]
    lucid_gpu.save({"model": state, "epoch": 3, "more": more}, file)
    return file.getvalue()


def theirs(archive: bool) -> bytes:
    """A file of ``torch.save``."""
    import torch

    file = io.BytesIO()
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    weight = next(model.parameters())
    more = [
        1,
        2.5,
        (None, True),
        weight,
        weight[1:].t().detach(),
        np.arange(3),
        torch.Size([1]),
        b"a",
    ]
    state = {"model": model.state_dict(), "epoch": 3, "more": more}
    torch.save(state, file, _use_new_zipfile_serialization=archive)
    return file.getvalue()


def damaged(good: bytes, chance: random.Random) -> bytes:
    """One damaged version of a file."""
    data = bytearray(good)
    if chance.random() < 0.5:  # ours without the checksum that would tell everything
        data = data.replace(b"lucid_gpu.crc32", b"lucid_gpu.crc__")
    if good[:2] == b"PK" and chance.random() < 0.6:  # inside, with the right checksum
        return _rezipped(good, chance)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        _hurt(data, chance)
    return bytes(data)


def _hurt(data: bytearray, chance: random.Random) -> None:
    if not data:
        return
    place = chance.randrange(len(data))
    kind = chance.randrange(6)
    if kind == 0:
        data[place] ^= 1 << chance.randrange(8)
    elif kind == 1:
        data[place] = chance.randrange(256)
    elif kind == 2:
        del data[place:]
    elif kind == 3:
        del data[place : place + chance.randrange(1, 20)]
    elif kind == 4:
        word = chance.choice(_WORDS)
        data[place : place + (len(word) if chance.random() < 0.5 else 0)] = word
    else:
        start = chance.randrange(len(data))
        data[place:place] = data[start : start + chance.randrange(1, 40)]


def _rezipped(good: bytes, chance: random.Random) -> bytes:
    """The archive with a damaged pickle inside; now and then compressed."""
    file = io.BytesIO()
    kind = zipfile.ZIP_DEFLATED if chance.random() < 0.1 else zipfile.ZIP_STORED
    with zipfile.ZipFile(io.BytesIO(good)) as old, zipfile.ZipFile(file, "w", kind) as new:
        for info in old.infolist():
            content = bytearray(old.read(info))
            if info.filename.endswith("data.pkl") or chance.random() < 0.05:
                _hurt(content, chance)
            new.writestr(info.filename, bytes(content))
    return file.getvalue()


def verdict(data: bytes) -> str:
    """What `load` makes of a file: ``"loaded"`` or ``"refused"``.

    Raises
    ------
    AssertionError
        For a message of several lines, and for too much memory.
    Exception
        Anything but a CheckpointError that `load` raises.
    """
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        lucid_gpu.load(io.BytesIO(data))
        found = "loaded"
    except CheckpointError as error:
        assert "\n" not in str(error) and str(error).startswith("cannot load the file: "), error
        found = "refused"
    used = tracemalloc.get_traced_memory()[1] - before
    assert used < 40 * len(data) + (1 << 20), f"{used} bytes for a file of {len(data)}"
    return found


def verdicts(goods: list[bytes], count: int, seed: int = 0) -> Iterator[str]:
    """`verdict` of ``count`` damaged files; one that fails is written to ``damaged.bin``."""
    chance: Any = random.Random(seed)
    tracemalloc.start()
    try:
        for _ in range(count):
            data = damaged(chance.choice(goods), chance)
            try:
                yield verdict(data)
            except GeneratorExit:
                raise
            except BaseException:
                with open("damaged.bin", "wb") as file:
                    file.write(data)
                raise
    finally:
        tracemalloc.stop()


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    found = list(verdicts([ours(), theirs(True), theirs(False)], count))
    print({kind: found.count(kind) for kind in sorted(set(found))})
