"""What torch.save wrote: the same objects, the same sharing, and no code."""

from __future__ import annotations

import collections
import io
import os
import pickle
import tracemalloc
import zipfile

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import nn
from lucid_gpu.serialization import (
    CheckpointError,
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    load,
    safe_globals,
)
from tests.oracle import torch_module
from tests.serialization import damage

torch = torch_module()


@pytest.fixture(params=[True, False], ids=["archive", "row of pickles"])
def archive(request):
    return request.param


def passed(obj, archive=True, **settings):
    """An object through torch.save and our load."""
    file = io.BytesIO()
    torch.save(obj, file, _use_new_zipfile_serialization=archive)
    file.seek(0)
    return load(file, **settings)


BASE = torch.arange(24.0).reshape(4, 6)
TENSORS = {
    **{str(d): torch.tensor([0, 1, 2]).to(d) for d in (torch.bool, torch.uint8, torch.int8)},
    **{str(d): torch.tensor([0, 1, 2]).to(d) for d in (torch.int16, torch.int32, torch.int64)},
    **{str(d): torch.tensor([0.5, -3e4]).to(d) for d in (torch.float16, torch.bfloat16)},
    **{str(d): torch.tensor([0.5, -3e4]).to(d) for d in (torch.float32, torch.float64)},
    **{str(d): torch.tensor([1 + 2j]).to(d) for d in (torch.complex64, torch.complex128)},
    "transposed": BASE.t(),
    "steps": BASE[1:, ::2],
    "expanded": torch.ones(1, 2).expand(3, 2),
    "zero dimensions": torch.tensor(3.0),
    "empty": torch.zeros(0, 3),
    "conjugated": torch.tensor([1 + 2j]).conj(),
    "negative": torch.tensor([1 + 2j]).conj().imag,
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors(name, archive, device):
    expected = TENSORS[name]
    got = passed({"x": expected}, archive, map_location=device)["x"]
    assert str(got.dtype).rpartition(".")[2] == str(expected.dtype).rpartition(".")[2]
    assert got.shape == tuple(expected.shape) and got.device.type == device
    assert got.cpu().tolist() == expected.tolist()


def test_dimensions_lie_as_they_did(archive):
    x = torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    loaded = passed({"x": x, "y": x.permute(1, 0, 2, 3)}, archive)
    assert loaded["x"].stride() == x.stride()
    assert loaded["y"].stride() == x.permute(1, 0, 2, 3).stride()
    assert (loaded["x"] + 1).stride() == x.stride()


def test_sharing_survives(archive, device):
    shared = passed({"a": BASE, "b": BASE[1], "c": BASE.t(), "own": BASE.clone()}, archive)
    if device != "cpu":
        shared = passed({"a": BASE, "b": BASE[1], "c": BASE.t()}, archive, map_location=device)
    assert shared["b"].is_contiguous() and not shared["c"].is_contiguous()
    shared["b"].zero_()
    assert not shared["a"][1].any() and not shared["c"][:, 1].any() and shared["a"][0].any()
    if device == "cpu":
        assert shared["own"].tolist() == BASE.tolist()


def test_checkpoints(archive):
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.ones(5, 3)).square().sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 4}
    back = passed(state, archive)
    ours = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    ours.load_state_dict(back["model"])
    x = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
    expected = model.eval()(torch.from_numpy(x)).detach().numpy()
    got = ours.eval()(lucid_gpu.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    moments = back["optimizer"]["state"][0]["exp_avg"]
    assert moments.tolist() == optimizer.state_dict()["state"][0]["exp_avg"].tolist()
    assert type(back["model"]) is collections.OrderedDict and back["epoch"] == 4


def test_everything_else_that_files_hold(archive):
    parameter = torch.nn.Parameter(torch.ones(2))
    plain = [1, -(1 << 70), 2.5, None, True, "é", b"\x00\xff", 2 - 1j, {1}, (1, (2,))]
    back = passed(
        {
            "parameter": parameter,
            "buffer": torch.nn.Buffer(torch.ones(1)),
            "sparse": torch.sparse_coo_tensor([[0, 2]], [1.0, 2.0], (3,), check_invariants=True),
            "leaf": torch.ones(1, requires_grad=True),
            "size": torch.Size([2, 3]),
            "dtype": torch.bfloat16,
            "device": torch.device("cuda", 1),
            "array": np.arange(6).reshape(2, 3).T,
            "text array": np.array(["a", "bc"]),
            "scalar": np.float64(1.5),
            "plain": plain,
            "counter": collections.Counter("aab"),
        },
        archive,
    )
    assert type(back["parameter"]) is nn.Parameter and back["parameter"].requires_grad
    assert type(back["buffer"]) is nn.Buffer and back["leaf"].requires_grad
    assert back["sparse"].to_dense().tolist() == [1, 0, 2]
    assert back["size"] == (2, 3) and type(back["size"]) is lucid_gpu.Size
    assert back["dtype"] is lucid_gpu.bfloat16 and str(back["device"]) == "cuda:1"
    assert back["array"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert back["text array"].tolist() == ["a", "bc"] and back["scalar"] == 1.5
    assert back["plain"] == [
        1,
        -(1 << 70),
        2.5,
        None,
        True,
        "é",
        b"\x00\xff",
        2 - 1j,
        {1},
        (1, (2,)),
    ]
    assert back["counter"] == {"a": 2, "b": 1}


def test_mapped_archives(tmp_path):
    path = tmp_path / "file.pt"
    torch.save({"x": BASE, "y": BASE[2]}, path)
    before = path.read_bytes()
    back = load(path, mmap=True)
    back["y"] += 1
    assert back["x"].tolist()[2] == (BASE[2] + 1).tolist() and path.read_bytes() == before
    torch.save(BASE, path, _use_new_zipfile_serialization=False)
    with pytest.raises(CheckpointError, match="only those can be mapped"):
        load(path, mmap=True)


# --- no code --------------------------------------------------------------------------------------


class Runs:
    """Its pickle calls os.system."""

    def __reduce__(self):
        return os.system, ("touch hacked",)


class Plain:
    def __init__(self, value):
        self.value = value


def test_code_is_refused_by_name(archive, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=r"it names (posix|nt)\.system, and using that would"):
        passed({"x": Runs()}, archive)
    with pytest.raises(pickle.UnpicklingError, match="add_safe_globals"):  # PyTorch's type
        passed(Plain(1), archive)
    with pytest.raises(CheckpointError, match="torch.nn.modules.linear.Linear, which lucid_gpu"):
        passed(torch.nn.Linear(1, 1), archive)
    (tmp_path / "file").write_bytes(pickle.dumps(Runs()))
    for trusted in (True, False):
        with pytest.raises(CheckpointError, match="it is a pickle, but not one that torch.save"):
            load(tmp_path / "file", weights_only=trusted)
    assert not (tmp_path / "hacked").exists()


def test_what_the_user_allows(archive):
    assert passed(Plain(BASE), archive, weights_only=False).value.tolist() == BASE.tolist()
    with safe_globals([Plain]):
        assert passed([Plain(3)], archive)[0].value == 3
    assert get_safe_globals() == []
    add_safe_globals([(Plain, f"{Plain.__module__}.Plain")])
    try:
        assert passed(Plain(4), archive).value == 4
    finally:
        clear_safe_globals()
    with pytest.raises(CheckpointError):
        passed(Plain(3), archive)


def forged(pickled: bytes) -> io.BytesIO:
    """An archive with this pickle and a storage of four bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("archive/data.pkl", pickled)
        made.writestr("archive/data/0", b"\0\0\0\0")
    file.seek(0)
    return file


_STORAGE = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x01tQ"
_REBUILD = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n("


@pytest.mark.parametrize(
    ("pickled", "words"),
    [
        (_REBUILD + _STORAGE + b"K\x00K\x02\x85K\x01\x85\x89NtR.", "reaches beyond its storage"),
        (_REBUILD + _STORAGE + b"K\x01K\x01\x85K\x01\x85\x89NtR.", "reaches beyond its storage"),
        (
            _REBUILD + _STORAGE + b"J\xff\xff\xff\xffK\x01\x85K\x01\x85\x89NtR.",
            "has sizes or strides that",
        ),
        (b"\x80\x02cbuiltins\neval\nX\x01\0\0\x001\x85R.", "it names builtins.eval"),
        (b"\x80\x02ctorch\nFloatStorage\n}X\x05\0\0\0dtypeK\x01sb.", "gives a state to a StorageT"),
        (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}X\x01\0\0\0aK\x01sb.", "gives a state to a"),
        (b"\x80\x02" + b"K\x00" + b"2\x86" * 90 + b"}" + b"N" + b"s.", "opcode DUP"),
        (b"\x80\x02})" + b"q\x00h\x00\x86" * 9 + b"Ns.", "is a tuple of too many tuples"),
        (b"\x80\x02r\xff\xff\xff\x7f.", "takes more than it gave"),
        (b"\x80\x02]", "damaged"),
    ],
)
def test_forged_pickles(pickled, words):
    with pytest.raises(CheckpointError, match="cannot load the file") as caught:
        load(forged(pickled))
    assert words in str(caught.value)


_TOWER = b")" + b"q\x00h\x00\x86" * 60  # a pair of one pair of one pair ...: 2**60 when written out
_LONG = b"](" + b"".join(b"M" + n.to_bytes(2, "little") for n in range(3000)) + b"eq\x01"


@pytest.mark.parametrize(
    "pickled",
    [
        _TOWER + _TOWER + b"\x93",
        _REBUILD[2:] + _STORAGE.replace(b"X\x01\0\0\x000", _TOWER) + b"K\0K\1\x85K\1\x85\x89NtR",
        _REBUILD[2:] + _STORAGE.replace(b"X\x03\0\0\0cpu", _TOWER) + b"K\0K\1\x85K\1\x85\x89NtR",
        _REBUILD[2:] + _STORAGE + b"K\0" + _TOWER + b"K\1\x85\x89NtR",
        b"cbuiltins\nset\n]" + _TOWER + b"a\x85R",
        b"ccollections\nOrderedDict\n]" + _TOWER + b"K\1\x86a\x85R",
        b"ccollections\nCounter\n]" + _TOWER + b"a\x85R",
        b"cnumpy\ndtype\n" + _TOWER + b"\x85R",
        b"ctorch\ndevice\n" + _TOWER + b"\x85R",
        b"ctorch\ndevice\nX\3\0\0\0cpu" + _TOWER + b"\x86R",
        b"ctorch.serialization\n_get_layout\n" + _TOWER + b"\x85R",
        b"](" + _LONG + b"cbuiltins\nset\nh\x01\x85R" * 3000 + b"e",
        b"](" + _LONG + b"ctorch\nSize\nh\x01\x85R" * 3000 + b"e",
    ],
)
def test_pickles_that_stand_for_more_than_they_are(pickled):
    tracemalloc.start()
    with pytest.raises(CheckpointError, match="cannot load the file"):
        load(forged(b"\x80\x04" + pickled + b"."))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


BUILTINS = [frozenset({1}), frozenset(), bytearray(b"a\xff"), bytearray(), b"", b"a"]


@pytest.mark.parametrize("thing", BUILTINS, ids=repr)
def test_builtins_under_the_names_of_python_2(thing, archive):
    back = passed(thing, archive)
    assert type(back) is type(thing) and back == thing


def test_builtins_that_the_user_allows_or_trusts(archive):
    for thing in (range(3), slice(1, 2)):
        with pytest.raises(CheckpointError, match=rf"names builtins\.{type(thing).__name__},"):
            passed(thing, archive)
        assert passed(thing, archive, weights_only=False) == thing
        with safe_globals([type(thing)]):
            assert passed(thing, archive) == thing


OTHERS = {
    r"torch\.uint16, .* convert tensors of": lambda: torch.zeros(2, dtype=torch.uint16),
    r"dequantize\(\)": lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
    r"save the state_dict\(\)": lambda: torch.nn.Linear(1, 1),
}


def test_tensors_without_elements():
    back = passed(torch.nn.Parameter(torch.ones(2, 3, device="meta").t()))
    assert back.is_meta and back.stride() == (1, 3) and back.requires_grad


@pytest.mark.parametrize("words", OTHERS)
def test_what_is_not_here_is_told(words):
    with pytest.raises(CheckpointError, match=words):
        passed(OTHERS[words]())


def test_a_mapped_archive_is_one_open_file(tmp_path):
    torch.save([torch.tensor([float(n)]) for n in range(20)], tmp_path / "file")
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    back = load(tmp_path / "file", mmap=True)
    assert [t.item() for t in back] == [*range(20)]
    assert not before or len(os.listdir("/proc/self/fd")) <= before + 1


def test_names_of_storages_that_are_no_names():
    magic = pickle.dumps(0x1950A86A20F9469CFC6C, 2)
    rows = [magic, pickle.dumps(1001, 2), pickle.dumps({}, 2), pickle.dumps(None, 2)]
    with pytest.raises(CheckpointError, match="where a name belongs"):
        load(io.BytesIO(b"".join(rows) + b"\x80\x02]" + _TOWER + b"a."))


def test_a_record_before_the_file(tmp_path):
    data = bytearray(forged(b"\x80\x02N.").getvalue())
    place = data.rindex(b"PK\5\6") + 16  # where the list of records is said to begin
    data[place : place + 4] = (int.from_bytes(data[place : place + 4], "little") + 9).to_bytes(
        4, "little"
    )
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(CheckpointError, match="begins before the file"):
        load(tmp_path / "file")


def test_two_records_of_one_name():
    file = forged(b"\x80\x02N.")
    with zipfile.ZipFile(file, "a") as made, pytest.warns(UserWarning, match="Duplicate"):
        made.writestr("archive/data/0", b"1111")
    file.seek(0)
    with pytest.raises(CheckpointError, match="two of its records have one name"):
        load(file)


def test_places_that_are_not_there():
    from lucid_gpu.devices.cupy_backend import problem

    pickled = _REBUILD + _STORAGE + b"K\x00K\x01\x85K\x01\x85\x89NtR."
    assert load(forged(pickled)).tolist() == [0]
    places = ((b"cuda:0", "Attempting to deserialize object on a CUDA"), (b"mps:01", "'mps"))
    for place, words in places:
        elsewhere = pickled.replace(b"\x03\0\0\0cpu", b"\x06\0\0\0" + place)
        assert load(forged(elsewhere), "cpu").tolist() == [0]
        if problem() is not None or b"cuda" not in place:
            with pytest.raises(CheckpointError, match=words):
                load(forged(elsewhere))


def test_compressed_archives_are_refused():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("archive/data.pkl", b"\x80\x02" + b"]" * 10_000_000)
    file.seek(0)
    with pytest.raises(CheckpointError, match="larger than the file"):
        load(file)


def test_damaged_files_are_refused_or_read():
    found = list(damage.verdicts(damage.goods(), 300))
    assert "loaded" in found and found.count("refused") > 150


@pytest.mark.parametrize("make", [torch.Tensor, torch.nn.Parameter])
def test_attributes_of_tensors_are_read(make, archive):
    x = make(torch.ones(2))
    x.tags, x.numpy = {"a": 1}, 2
    back = passed(x, archive)
    assert (back.tags, back.detach().numpy().tolist()) == ({"a": 1}, [1.0, 1.0])


def test_archives_without_checksums():
    torch.serialization.set_crc32_options(False)
    try:
        file = io.BytesIO()
        torch.save(torch.arange(5.0), file)
    finally:
        torch.serialization.set_crc32_options(True)
    file.seek(0)
    assert load(file).tolist() == [0, 1, 2, 3, 4]


def test_one_checksum_of_zero_is_still_looked_at():
    file = io.BytesIO()
    torch.save([torch.arange(5.0), torch.ones(3)], file)
    data = bytearray(file.getvalue())
    entry = data.index(b"archive/data/0", data.index(b"PK\1\2")) - 46
    data[entry + 16 : entry + 20] = b"\0" * 4
    with pytest.raises(CheckpointError, match="does not match its checksum"):
        load(io.BytesIO(data))


def test_negated_views_stay_views(device):
    parts = lucid_gpu.tensor([1 + 2j, 3 - 1j], device=device).conj().imag
    file = io.BytesIO()
    lucid_gpu.save([parts, parts[1:]], file)
    file.seek(0)
    whole, part = load(file)
    assert whole.is_neg() and part.is_neg() and whole.stride() == (2,)
    whole[1] = 7
    assert (whole.tolist(), part.tolist()) == ([-2, 7], [7])
    file.seek(0)
    theirs = torch.load(file, "cpu")[1]
    assert theirs.is_neg() and theirs.tolist() == [1]


def test_a_tensor_without_elements_that_is_too_large():
    pickled = b"\x80\x02ctorch._utils\n_rebuild_meta_tensor_no_storage\n"
    huge = b"\x8a\x08" + (1 << 61).to_bytes(8, "little") + b"\x85"
    with pytest.raises(CheckpointError, match="on the device meta exceeds"):
        load(forged(pickled + b"(ctorch\nfloat32\n" + huge + b"K\x01\x85\x89tR."))


def test_two_archives_in_one_file():
    file = io.BytesIO()
    lucid_gpu.save({"a": lucid_gpu.arange(100.0)}, file)
    second = file.tell()
    lucid_gpu.save([2], file)
    file.seek(0)
    with pytest.raises(RuntimeError, match="failed reading zip archive"):
        torch.load(file)
    file.seek(0)
    with pytest.raises(CheckpointError, match="begins later in it"):
        load(file)
    file.seek(second)
    assert load(file) == [2]


def test_open_files_are_read_once(tmp_path):
    lucid_gpu.save(lucid_gpu.arange(500_000.0), tmp_path / "file")
    size = (tmp_path / "file").stat().st_size
    with open(tmp_path / "file", "rb") as file:
        tracemalloc.start()
        try:
            assert load(file)[-1].item() == 499_999
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 1.5 * size and file.tell() == size


@pytest.mark.parametrize("kind", ["memory", "disk", "behind other bytes"])
def test_objects_of_the_older_format_stand_in_a_row(kind, tmp_path):
    with open(tmp_path / "row", "w+b") as on_disk:
        file = on_disk if kind == "disk" else io.BytesIO()
        if kind == "behind other bytes":
            file.write(b"head")
        for obj in (torch.arange(3.0), ["a", torch.ones(2)], 5):
            torch.save(obj, file, _use_new_zipfile_serialization=False)
        file.write(b"tail")
        file.seek(4 if kind == "behind other bytes" else 0)
        first, (name, second), third = load(file), load(file), load(file)
        assert (first.tolist(), name, second.tolist(), third) == ([0, 1, 2], "a", [1, 1], 5)
        assert file.read() == b"tail"
