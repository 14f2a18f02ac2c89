"""Damaged checkpoints by the thousand; ``make fuzz-checkpoints`` makes as many as one likes.

Whatever a file holds, `load` gives an object or raises CheckpointError, one line that names the
file, takes no memory that the file's size does not account for, and runs nothing.
"""

from __future__ import annotations

import io
import json
import pickletools
import random
import sys
import tempfile
import tracemalloc
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

import lucid_gpu
from lucid_gpu import nn
from lucid_gpu.serialization import CheckpointError
from tests.serialization import older_files

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


_PICKLED = [  # whole opcodes, for damage that leaves the others readable
    *(b"cos\nsystem\n(X\x04\0\0\0truetR", b"cbuiltins\nexec\n(X\x04\0\0\0passtR"),
    *(b"\x8c\x08builtins\x8c\x04eval\x93", b")" + b"q\x00h\x00\x86" * 60, b"(" * 2000),
    *(b"]" * 2000, b"\x85" * 2000, b"h\x00" * 2000, b"cbuiltins\nset\nh\x00\x85R" * 500),
    *(b"J\xff\xff\xff\xff", b"\x8a\x08" + b"\xff" * 7 + b"\x7f", b"\x8b\xff\xff\xff\x7f"),
    *(b"X\xff\xff\xff\xff", b"\x8d" + b"\xff" * 8, b"X\x02\0\0\0\xff\xfe", b"cnumpy\nndarray\n"),
    *(b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch\nFloatStorage\n", b"N", b"}", b"Q", b"R"),
    *(
        b"b",
        b"a",
        b"e",
        b"s",
        b"u",
        b"0",
        b"\x81",
        b"\x94",
        b"\x90",
        b"\x91",
        b"t",
        b"\x87",
        b"K\x00",
    ),
]
_VALUES: list[Any] = [
    *(
        None,
        True,
        -1,
        0,
        1,
        2.5,
        1 << 31,
        1 << 62,
        1 << 64,
        10**400,
        float("nan"),
        "",
        "F32",
        "I64",
    ),
    *([], {}, [0], [-1], [1 << 40] * 3, [0, 1 << 70], [[[[]]]], {"data_offsets": [0, 0]}, "\ud800"),
    *("lucid_gpu.structure", "\n", "x" * 5000, '{"tensor": "more"}', [0] * 100, "C128", "cuda:0"),
]
_CODE = {"os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen", "socket.connect"}
_ran: list[str] = []  # what `_CODE` of it happened since `watch`


def watch() -> None:
    """Note from here on what a file may not make happen."""
    sys.addaudithook(lambda event, _: _ran.append(event) if event in _CODE else None)


def goods() -> list[bytes]:
    """A file of each kind."""
    lucid_gpu.manual_seed(0)
    found = [ours(), older_files.NESTED, foreign(older_files.NESTED)]
    try:
        import torch
    except ImportError:
        return found
    torch.manual_seed(0)
    return [*found, theirs(True), theirs(False)]


def foreign(good: bytes) -> bytes:
    """A safetensors file without our metadata."""
    header, content = _taken_apart(good)
    del header["__metadata__"]
    return _put_together(json.dumps(header).encode(), content)


def _taken_apart(good: bytes) -> tuple[Any, bytes]:
    end = 8 + int.from_bytes(good[:8], "little")
    return json.loads(good[8:end]), good[end:]


def _put_together(header: bytes, content: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + content


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


def damaged(good: bytes, chance: random.Random, other: bytes = b"") -> bytes:
    """One damaged version of a file; ``other`` is a file that may lend it parts."""
    data = bytearray(good)
    if chance.random() < 0.5:  # ours without the checksum that would tell everything
        data = data.replace(b"lucid_gpu.crc32", b"lucid_gpu.crc__")
    if good[:2] == b"PK" and chance.random() < 0.6:  # inside, with the right checksum
        return _rezipped(good, chance)
    if good[8:9] == b"{" and chance.random() < 0.5:
        return _reheaded(bytes(data), chance)
    if good[:1] == b"\x80" and chance.random() < 0.5:
        return _other_opcodes(good, chance)
    if other and chance.random() < 0.05:
        return bytes(data[: chance.randrange(len(data))]) + other[chance.randrange(len(other)) :]
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        _hurt(data, chance)
    return bytes(data)


def _reheaded(good: bytes, chance: random.Random) -> bytes:
    """A safetensors file with other values in its header, whose length is right."""
    header, content = _taken_apart(good)
    metadata = header.get("__metadata__", {})
    if "lucid_gpu.structure" in metadata and chance.random() < 0.6:  # what our containers are
        structure = json.loads(metadata["lucid_gpu.structure"])
        _exchange(structure, chance)
        metadata["lucid_gpu.structure"] = json.dumps(structure)
    else:
        for _ in range(chance.choice((1, 1, 2))):
            _exchange(header, chance)
    text = json.dumps(header)
    if chance.random() < 0.05:  # one name twice
        text = "{" + text[1:-1] + "," + text[1:]
    if chance.random() < 0.05:
        text = text.replace("[", "[" * 2000, 1)
    raw = bytearray(text.encode())
    if chance.random() < 0.1:
        raw[chance.randrange(len(raw))] = 0xFF
    return _put_together(bytes(raw), content)


def _exchange(tree: Any, chance: random.Random) -> None:
    """One value somewhere in a tree of JSON becomes another, or vanishes, or stands twice."""
    while True:
        places = [*tree] if isinstance(tree, dict) else [*range(len(tree))]
        if not places:
            return
        place = chance.choice(places)
        inner = tree[place]
        if not isinstance(inner, (dict, list)) or not inner or chance.random() < 0.2:
            break
        tree = inner
    kind = chance.randrange(4)
    if kind == 0:
        del tree[place]
    elif kind == 1 and isinstance(tree, dict):
        tree[str(chance.choice(_VALUES))] = tree.pop(place)
    elif kind == 2:
        tree[place] = tree[chance.choice(places)]
    else:
        tree[place] = chance.choice(_VALUES)


def _other_opcodes(pickled: bytes, chance: random.Random) -> bytes:
    """A pickle, and what follows it, with whole opcodes put in, left out or moved."""
    starts: list[int] = []
    place = 0
    while True:  # a file of the older kind is a row of pickles
        file = io.BytesIO(pickled[place:])
        try:
            starts += [place + p for _, _, p in pickletools.genops(file) if p is not None]
        except ValueError:
            break
        place += file.tell()
    for _ in range(chance.choice((1, 1, 2, 3))):
        at = chance.choice(starts)
        first, last = sorted((chance.choice(starts), chance.choice(starts)))
        kind = chance.randrange(4)
        if kind == 0:
            part = chance.choice(_PICKLED)
        elif kind == 1:
            part = pickled[first : min(last, first + 60)]
        else:
            part = b""
        gone = chance.choice((0, 0, 1, 2, 5)) if kind < 2 else chance.choice((1, 2, 3, 10))
        pickled = pickled[:at] + part + pickled[at + gone :]
    return pickled


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
            if info.filename.endswith("data.pkl") and chance.random() < 0.6:
                content = bytearray(_other_opcodes(bytes(content), chance))
            elif info.filename.endswith("data.pkl") or chance.random() < 0.05:
                _hurt(content, chance)
            if kind and chance.random() < 0.1:
                content *= 2000
            new.writestr(info.filename, bytes(content))
    return file.getvalue()


def verdict(data: bytes, path: str = "") -> str:
    """What `load` makes of a file: ``"loaded"`` or ``"refused"``.

    With a ``path`` the file is written there, and mapped.

    Raises
    ------
    AssertionError
        For a message of several lines, for too much memory, for code that was run, and for tensors
        that are not as the file says.
    Exception
        Anything but a CheckpointError that `load` raises.
    """
    if path:
        with open(path, "wb") as file:
            file.write(data)
    _ran.clear()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        made = lucid_gpu.load(path, mmap=True) if path else lucid_gpu.load(io.BytesIO(data))
        found = "loaded"
    except CheckpointError as error:
        said = str(error)
        assert "\n" not in said and said.startswith(f"cannot load {path or 'the file'}: "), said
        found = "refused"
    used = tracemalloc.get_traced_memory()[1] - before
    assert used < 40 * len(data) + (1 << 20), f"{used} bytes for a file of {len(data)}"
    assert not _ran, f"it ran {_ran}"
    if found == "loaded":
        for tensor in _tensors(made):
            _touch(tensor)
        if data[8:9] == b"{":
            _as_declared(made, data)
    return found


def _tensors(value: Any) -> Iterator[Any]:
    pending, seen = [value], set()
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, lucid_gpu.Tensor):
            yield value
        elif isinstance(value, dict):
            pending += [*value, *value.values()]
        elif isinstance(value, (list, tuple, set, frozenset)):
            pending += value


def _touch(tensor: Any) -> None:
    """Read the first and the last element: both must lie in memory that is there."""
    if tensor.is_sparse or tensor.is_meta or not tensor.numel():
        return
    for corner in (0, -1):
        tensor.detach().array[(corner,) * tensor.ndim].item()


def _as_declared(made: Any, data: bytes) -> None:
    """A safetensors file of others gives the tensors of its header."""
    header, _ = _taken_apart(data)
    ours = {"lucid_gpu.structure", "lucid_gpu.complex128"}
    if ours & header.pop("__metadata__", {}).keys():
        return
    types = {"F32": "float32", "I64": "int64", "F64": "float64", "C64": "complex64"}
    assert [*made] == [*header]
    for name, entry in header.items():
        assert list(made[name].shape) == entry["shape"], name
        if entry["dtype"] in types:
            assert made[name].dtype.name == types[entry["dtype"]], name


def numbered(goods: list[bytes], seed: int, number: int) -> bytes:
    """The file of a number, the same one each time."""
    chance = random.Random(f"{seed}/{number}")
    return damaged(chance.choice(goods), chance, chance.choice(goods))


def verdicts(goods: list[bytes], count: int, seed: int = 0, first: int = 0) -> Iterator[str]:
    """`verdict` of ``count`` damaged files; one that fails is written to ``damaged.bin``."""
    tracemalloc.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            for number in range(first, first + count):
                data = numbered(goods, seed, number)
                try:
                    yield verdict(data, f"{folder}/file" if number % 8 == 7 else "")
                except GeneratorExit:
                    raise
                except BaseException:
                    with open("damaged.bin", "wb") as file:
                        file.write(data)
                    raise
    finally:
        tracemalloc.stop()
