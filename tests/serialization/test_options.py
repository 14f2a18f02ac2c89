"""Settings of `save` and `load`, beside PyTorch's where it is installed."""

from __future__ import annotations

import collections
import io
import mmap
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lucid_gpu.utils.serialization import config

import lucid_gpu
from lucid_gpu import serialization
from tests.oracle import torch_module


class Plain:
    """A class that files may name only if the user says so."""


def saved(obj: Any, module: Any = lucid_gpu, **settings: Any) -> io.BytesIO:
    file = io.BytesIO()
    module.save(obj, file, **settings)
    file.seek(0)
    return file


@pytest.mark.parametrize("calculated", [False, True])
def test_torch_finds_storages_behind_empty_ones(tmp_path: Path, calculated: bool) -> None:
    """It read other bytes: its layout of an empty record is not ours."""
    torch = torch_module()
    from torch.utils.serialization import config as theirs

    sizes = (0, 3, 1000, 0, 0, 5, 1)
    obj = {str(i): lucid_gpu.arange(float(n)) for i, n in enumerate(sizes)}
    lucid_gpu.save(obj, tmp_path / "f.pt")
    with theirs.patch("load.calculate_storage_offsets", calculated):
        read = torch.load(tmp_path / "f.pt", mmap=True)
    assert [t.tolist() for t in read.values()] == [t.tolist() for t in obj.values()]
    content = (tmp_path / "f.pt").read_bytes()
    for name, t in torch.load(tmp_path / "f.pt", map_location="meta").items():
        start, size = t.untyped_storage()._checkpoint_offset, 4 * obj[name].numel()
        assert content[start : start + size] == obj[name].numpy().tobytes()


def test_files_without_the_bytes_of_tensors(device: str) -> None:
    x = lucid_gpu.arange(5.0, device=device)
    with serialization.skip_data():
        file = saved({"a": x, "b": x[1:], "c": 3})
        read = lucid_gpu.load(file)
    assert read["a"].tolist() == [0] * 5 and read["c"] == 3
    content = bytearray(file.getvalue())
    with zipfile.ZipFile(file) as archive:
        (info,) = [i for i in archive.infolist() if "/data/" in i.filename]
    assert (info.file_size, info.CRC) == (20, 0)
    start = info.header_offset + 30 + len(info.filename)
    start += int.from_bytes(content[info.header_offset + 28 : info.header_offset + 30], "little")
    content[start : start + 20] = x.cpu().numpy().tobytes()  # written in a second pass
    read = lucid_gpu.load(io.BytesIO(content))
    assert (read["a"].tolist(), read["b"].tolist()) == ([0, 1, 2, 3, 4], [1, 2, 3, 4])
    with serialization.skip_data():
        assert lucid_gpu.load(io.BytesIO(content))["b"].tolist() == [0] * 4
    assert lucid_gpu.load(saved(x)).tolist() == [0, 1, 2, 3, 4]


def test_files_of_torch_without_the_bytes_of_tensors() -> None:
    torch = torch_module()
    with torch.serialization.skip_data():
        file = saved([torch.ones(3), 5], torch)
    read, number = lucid_gpu.load(file)
    assert (read.tolist(), number) == ([0, 0, 0], 5)
    with serialization.skip_data():
        file = saved([lucid_gpu.ones(3), 5])
    assert torch.load(file)[0].tolist() == [0, 0, 0]


def test_archives_of_the_other_byte_order() -> None:
    parts = [lucid_gpu.tensor([1.5, -2e5]), lucid_gpu.tensor([1, 258]), lucid_gpu.tensor([1 + 2j])]
    parts += [lucid_gpu.tensor([3, 4], dtype=lucid_gpu.uint8), lucid_gpu.tensor([0.1]).bfloat16()]
    other = "big" if sys.byteorder == "little" else "little"
    file = io.BytesIO()
    with zipfile.ZipFile(saved(parts)) as ours, zipfile.ZipFile(file, "w") as swapped:
        for info in ours.infolist():
            content = ours.read(info)
            if info.filename.endswith("byteorder"):
                content = other.encode()
            if "/data/" in info.filename:
                part = parts[int(info.filename.rpartition("/")[2])]
                content = np.frombuffer(content, part.dtype.numpy).byteswap().tobytes()
            swapped.writestr(info.filename, content)
    read = lucid_gpu.load(io.BytesIO(file.getvalue()))
    assert [t.tolist() for t in read] == [t.tolist() for t in parts]


def test_the_order_of_archives_that_do_not_say_it() -> None:
    names = serialization.LoadEndianness
    file = saved(lucid_gpu.tensor([1, 258]), _disable_byteorder_record=True)
    assert serialization.get_default_load_endianness() is None
    assert lucid_gpu.load(file).tolist() == [1, 258]
    try:
        serialization.set_default_load_endianness(names.BIG)
        file.seek(0)
        swapped = [int.from_bytes(n.to_bytes(8, "little"), "big") for n in (1, 258)]
        assert lucid_gpu.load(file).tolist() == swapped
        serialization.set_default_load_endianness(names.NATIVE)
        file.seek(0)
        assert lucid_gpu.load(file).tolist() == [1, 258]
    finally:
        serialization.set_default_load_endianness(None)
    with pytest.raises(TypeError, match="Invalid argument type in function set_default_load_end"):
        serialization.set_default_load_endianness("big")  # type: ignore[arg-type]


@pytest.mark.skipif(not hasattr(mmap, "MAP_SHARED"), reason="Windows maps files its own way")
def test_what_is_written_to_mapped_tensors(tmp_path: Path) -> None:
    path = tmp_path / "f.pt"
    with serialization.skip_data():  # whose records have no checksum
        lucid_gpu.save([lucid_gpu.ones(3, device="cpu")] * 2, path)
    lucid_gpu.load(path, mmap=True)[0].fill_(2).numpy()
    assert lucid_gpu.load(path)[0].tolist() == [0, 0, 0]
    with serialization.set_default_mmap_options(mmap.MAP_SHARED):
        assert serialization.get_default_mmap_options() == mmap.MAP_SHARED
        mapped, again = lucid_gpu.load(path, mmap=True)
        mapped.fill_(3).numpy()
        again[0] = 4
        again.numpy()
    assert lucid_gpu.load(path)[0].tolist() == [4, 3, 3]
    assert serialization.get_default_mmap_options() == mmap.MAP_PRIVATE
    with pytest.raises(ValueError, match="expected mmap.MAP_PRIVATE or mmap.MAP_SHARED"):
        serialization.set_default_mmap_options(1 << 20)


def test_the_settings_are_those_of_torch(tmp_path: Path) -> None:
    lucid_gpu.save(lucid_gpu.ones(3), tmp_path / "f.pt")
    with config.patch("load.mmap", True), open(tmp_path / "f.pt", "rb") as file:
        assert lucid_gpu.load(tmp_path / "f.pt").tolist() == [1, 1, 1]
        with pytest.raises(ValueError, match="f must be a file path"):
            lucid_gpu.load(file)
    assert lucid_gpu.load(saved(3)) == 3
    with config.patch({"save.storage_alignment": 4096}):
        content = saved([lucid_gpu.ones(3), lucid_gpu.zeros(5)])
    with zipfile.ZipFile(content) as archive:
        for info in archive.infolist():
            gap = content.getvalue()[info.header_offset + 26 : info.header_offset + 30]
            start = info.header_offset + 30 + gap[0] + 256 * gap[1] + gap[2] + 256 * gap[3]
            assert start % 4096 == 0
    assert serialization.get_crc32_options() is True
    serialization.set_crc32_options(False)
    try:
        assert lucid_gpu.load(saved([1])) == [1] and not serialization.get_crc32_options()
    finally:
        serialization.set_crc32_options(True)


def test_the_environment_says_what_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    file = saved(Plain()).getvalue()
    assert isinstance(lucid_gpu.load(io.BytesIO(file), weights_only=False), Plain)
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(serialization.CheckpointError, match="would run code"):
        lucid_gpu.load(io.BytesIO(file), weights_only=False)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "yes")
    with pytest.raises(RuntimeError, match="Only one of `TORCH_FORCE_WEIGHTS_ONLY_LOAD`"):
        lucid_gpu.load(io.BytesIO(file))
    monkeypatch.delenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD")
    with pytest.warns(UserWarning, match="TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected"):
        assert isinstance(lucid_gpu.load(io.BytesIO(file)), Plain)
    with pytest.raises(serialization.CheckpointError, match="would run code"):
        lucid_gpu.load(io.BytesIO(file), weights_only=True)


@pytest.mark.parametrize("protocol", [2, 4])
def test_what_a_file_names_is_told_without_loading_it(tmp_path: Path, protocol: int) -> None:
    obj = [Plain(), {1, 2}, lucid_gpu.ones(2), Plain(), collections.OrderedDict(a=1)]
    file = saved(obj, pickle_protocol=protocol)
    named = f"{Plain.__module__}.Plain"
    asked = serialization.get_unsafe_globals_in_checkpoint
    assert asked(file) == [named] and file.tell() == 0
    lucid_gpu.save(obj, tmp_path / "f.pt")
    with serialization.safe_globals([Plain]):
        assert asked(tmp_path / "f.pt") == []
    with pytest.raises(ValueError, match="Expected input to be a checkpoint"):
        asked(io.BytesIO(b"nothing"))


def test_safe_globals_are_given_back_as_they_came() -> None:
    pair = (Plain, "elsewhere.Thing")
    with serialization.safe_globals([pair, dict]):
        assert serialization.get_safe_globals() == [pair, dict]
        with serialization.safe_globals([list]):
            assert list in serialization.get_safe_globals()
    assert serialization.get_safe_globals() == []
    with pytest.raises(ValueError, match="Expected tuple of length 2"):
        serialization.add_safe_globals([(Plain,)])
    with pytest.raises(TypeError, match="Expected second item in tuple to be str"):
        serialization.add_safe_globals([(Plain, Plain)])


def test_keys_may_be_tuples_of_tuples() -> None:
    obj = {(1, (2, (3, "a"))): 4, frozenset([(1, 2)]): 5}
    assert lucid_gpu.load(saved(obj)) == obj


def test_named_results_and_versions_of_torch() -> None:
    torch = torch_module()
    file = saved([torch.max(torch.tensor([[1.0, 2.0]]), 1), torch.__version__], torch)
    result, version = lucid_gpu.load(file, weights_only=False)
    assert (result.values.tolist(), result.indices.tolist()) == ([2], [1])
    assert type(result) is lucid_gpu.return_types.max and version == torch.__version__
