"""Saving and loading: everything comes back, damage is told, nothing is lost."""

import errno
import io
import json
import os
import subprocess
import sys
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import nn
from lucid_gpu.serialization import CheckpointError, load, save, saving
from tests.oracle import same_error
from tests.serialization import older_files

TENSORS = {
    "bool": [True, False],
    "uint8": [0, 255],
    "int8": [-128, 127],
    "int16": [-300, 300],
    "int32": [1 << 30],
    "int64": [1 << 60],
    "float16": [1.5, -2.0],
    "bfloat16": [1.5, 3e38],
    "float32": [1e-40, float("inf")],
    "float64": [1e300],
    "complex64": [1 + 2j],
    "complex128": [1 + 2j, 3j],
}
OBJECT = {
    "epoch": 3,
    "best": 0.1 + 0.2,
    "odd": [float("inf"), -float("inf"), None, True, "text \N{SNOWMAN}", b"\x00\xff", 2 - 1j],
    "tuple": (1, (2,), []),
    5: {"inner": {1.5: "key"}},
    ("a", 1): "a key that is a tuple",
    "ordered": OrderedDict(z=1, a=2),
    "dtype": lucid_gpu.bfloat16,
    "device": lucid_gpu.device("cpu"),
    "large": 1 << 80,
    "sets": [{1, "a"}, frozenset((2, (3,)))],
    "size": lucid_gpu.Size([1, 2]),
    "scalars": [np.float32(n) for n in range(9)],
}


def round_trip(obj, tmp_path, **settings):
    save(obj, tmp_path / "file")
    return load(tmp_path / "file", **settings)


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("shape", [(-1,), (-1, 1, 1)])
def test_every_type(name, shape, tmp_path, device):
    dtype = getattr(lucid_gpu, name)
    tensor = lucid_gpu.tensor(TENSORS[name], dtype=dtype).reshape(shape)
    back = round_trip({"t": tensor.to(device)}, tmp_path, map_location=device)["t"]
    assert back.dtype is dtype and back.shape == tensor.shape and back.device.type == device
    assert back.cpu().tolist() == tensor.tolist()


@pytest.mark.parametrize(
    "tensor",
    [
        lucid_gpu.tensor(3.5),
        lucid_gpu.zeros(0, 3),
        lucid_gpu.arange(12).reshape(3, 4).t(),
        lucid_gpu.arange(12)[::3],
        lucid_gpu.ones(3, requires_grad=True) * 2,
    ],
)
def test_every_layout(tensor, tmp_path):
    back = round_trip(tensor, tmp_path)
    assert back.tolist() == tensor.tolist() and back.shape == tensor.shape
    assert back.requires_grad == tensor.requires_grad and back.is_leaf


@pytest.mark.parametrize("kind", ["float32", "complex128"])
def test_dimensions_lie_as_they_did(kind, tmp_path):
    x = lucid_gpu.arange(120.0).reshape(2, 3, 4, 5).to(getattr(lucid_gpu, kind))
    last = x.contiguous(memory_format=lucid_gpu.channels_last)
    saved = {"last": last, "permuted": x.permute(3, 1, 0, 2).clone(), "plain": x}
    saved["parameter"] = lucid_gpu.nn.Parameter(last)
    for settings in ({}, {"mmap": True}):
        loaded = round_trip(saved, tmp_path, **settings)
        for name, tensor in saved.items():
            assert loaded[name].stride() == tensor.stride()
            assert lucid_gpu.equal(loaded[name], tensor)
            assert (loaded[name] * 2).stride() == tensor.stride()


def test_nested_objects(tmp_path):
    back = round_trip(OBJECT, tmp_path)
    assert back == OBJECT
    assert type(back["ordered"]) is OrderedDict and type(back["tuple"][1]) is tuple
    assert np.isnan(round_trip(float("nan"), tmp_path))


def test_arrays_stay_arrays(tmp_path):
    arrays = [np.arange(3), np.ones((2, 2))[:, ::-1], np.array(2 + 1j), np.arange(3, dtype=">i4")]
    for array, back in zip(arrays, round_trip(arrays, tmp_path)):
        assert isinstance(back, np.ndarray)
        np.testing.assert_array_equal(back, array)


def test_a_tensor_that_occurs_twice_is_one(tmp_path):
    tensor = lucid_gpu.ones(1000)
    first, second = round_trip([tensor, tensor], tmp_path)
    assert first is second
    assert (tmp_path / "file").stat().st_size < 6000


def test_memory_that_occurs_twice_is_stored_once(tmp_path):
    model = nn.Sequential(nn.Linear(50, 50, bias=False), nn.Linear(50, 50, bias=False))
    model[1].weight = model[0].weight
    back = round_trip(model.state_dict(), tmp_path)
    assert (tmp_path / "file").stat().st_size < 13_000
    back["0.weight"].zero_()
    assert not back["1.weight"].any()


def test_one_memory_in_several_guises(tmp_path):
    weight = nn.Parameter(lucid_gpu.ones(3))
    values = [weight, weight.detach(), weight.detach().numpy()]
    parameter, plain, array = round_trip(values, tmp_path)
    assert type(parameter) is nn.Parameter and not plain.requires_grad
    doubled = plain * 2
    with lucid_gpu.no_grad():
        parameter.zero_()
    assert plain.tolist() == [0, 0, 0] and doubled.tolist() == [2, 2, 2]
    assert array.tolist() == [1, 1, 1]


def test_parameters_stay_parameters(tmp_path):
    frozen = nn.Parameter(lucid_gpu.zeros(2), requires_grad=False)
    values = [nn.Parameter(lucid_gpu.ones(2)), frozen, lucid_gpu.ones(2, requires_grad=True)]
    back = round_trip(values, tmp_path)
    assert [type(t) for t in back] == [nn.Parameter, nn.Parameter, lucid_gpu.Tensor]
    assert [t.requires_grad for t in back] == [True, False, True]
    assert [t.tolist() for t in back] == [t.tolist() for t in values]


@pytest.mark.parametrize("make", [lambda x: x, nn.Parameter, nn.Buffer])
def test_attributes_of_tensors_are_kept(make, tmp_path):
    x = make(lucid_gpu.arange(3.0))
    x.tags, x.scale = ("a", 1), lucid_gpu.ones(2)
    save([x, x], tmp_path / "a")
    y, again = load(tmp_path / "a")
    assert y is again
    assert (y.tolist(), y.tags, y.scale.tolist()) == ([0.0, 1.0, 2.0], ("a", 1), [1.0, 1.0])


def test_what_is_saved_to_an_open_file_is_there(tmp_path):
    with open(tmp_path / "a", "wb") as file:
        save({"w": lucid_gpu.ones(2)}, file, _use_new_zipfile_serialization=False)
        assert load(tmp_path / "a")["w"].tolist() == [1.0, 1.0]


def test_models_and_optimizers_go_on(tmp_path, device):
    def step(model, optimizer):
        optimizer.zero_grad()
        model(lucid_gpu.ones(4, 3, device=device)).square().sum().backward()
        optimizer.step()

    def fresh():
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).to(device)
        return model, lucid_gpu.optim.Adam(model.parameters(), lr=0.1)

    model, optimizer = fresh()
    step(model, optimizer)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 1}
    back = round_trip(state, tmp_path)
    other, its_optimizer = fresh()
    other.load_state_dict(back["model"])
    its_optimizer.load_state_dict(back["optimizer"])
    for _ in range(2):
        step(model, optimizer)
        step(other, its_optimizer)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert a.tolist() == b.tolist()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(200, 2)
        self.register_buffer("steps", lucid_gpu.zeros(1))
        self.layer.bias.requires_grad_(False)

    def forward(self, x):
        return self.layer(x) + self.steps


def test_whole_modules_on_the_users_word(tmp_path):
    model = Net()
    model(lucid_gpu.ones(200)).sum().backward()
    save({"net": model, "epoch": 1}, tmp_path / "file")
    with pytest.raises(CheckpointError, match=r"it names .*Net, and using that would run"):
        load(tmp_path / "file")
    back = load(tmp_path / "file", weights_only=False)["net"]
    x = lucid_gpu.rand(200)
    assert back(x).tolist() == model(x).tolist()
    assert [p.requires_grad for p in back.parameters()] == [True, False]
    assert type(back.layer.weight) is nn.Parameter and "steps" in back.state_dict()


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.GELU(), nn.Dropout(0.2)),
        nn.LSTM(3, 4, 2, bidirectional=True),
        nn.TransformerEncoderLayer(8, 2),
        nn.ModuleDict({"a": nn.Embedding(4, 3), "b": nn.ParameterList([lucid_gpu.ones(2)])}),
        nn.CrossEntropyLoss(weight=lucid_gpu.ones(3)),
    ],
    ids=lambda m: type(m).__name__,
)
def test_modules_come_back_whole(module, tmp_path):
    back = round_trip(module, tmp_path, weights_only=False)
    assert repr(back) == repr(module)
    for (name, p), (same, q) in zip(
        module.named_parameters(), back.named_parameters(), strict=True
    ):
        assert name == same and p.tolist() == q.tolist() and q.requires_grad
    back.load_state_dict(round_trip(module.state_dict(), tmp_path))


def test_places(tmp_path, device):
    save({"here": lucid_gpu.ones(2, device=device), "cpu": lucid_gpu.zeros(1)}, tmp_path / "file")

    def types(map_location):
        return [t.device.type for t in load(tmp_path / "file", map_location).values()]

    assert types(None) == [device, "cpu"]
    assert (
        types("cpu") == types(lucid_gpu.device("cpu")) == types(lambda t, place: t) == ["cpu"] * 2
    )
    assert types(device) == [device] * 2
    assert types({"cuda:0": "cpu"}) == ["cpu"] * 2
    seen = []
    assert types(lambda t, place: seen.append(place)) == [device, "cpu"]
    assert seen == ["cpu" if device == "cpu" else "cuda:0", "cpu"]


@pytest.mark.parametrize("where", ["cuda", {"cpu": "cuda:0"}])
def test_a_place_that_is_not_there_is_no_damage(where, tmp_path):
    if lucid_gpu.cuda.is_available():
        pytest.skip("there is a GPU")
    save({"x": lucid_gpu.ones(2)}, tmp_path / "file")
    with pytest.raises(CheckpointError, match="on a CUDA device .* map_location='cpu' to have the"):
        load(tmp_path / "file", map_location=where)


def test_what_a_map_location_raises_is_told(tmp_path):
    save({"x": lucid_gpu.ones(2)}, tmp_path / "file")
    with pytest.raises(CheckpointError, match="file: map_location raised ZeroDivisionError: div"):
        load(tmp_path / "file", map_location=lambda t, place: 1 / 0)


def test_mapped_files(tmp_path):
    path = tmp_path / "file"
    save({"x": lucid_gpu.arange(1000.0), "e": lucid_gpu.zeros(0), "n": [1]}, path)
    before = path.read_bytes()
    back = load(path, mmap=True)
    assert back["x"].sum().item() == 499500 and back["e"].shape == (0,) and back["n"] == [1]
    back["x"] += 1
    assert back["x"][0].item() == 1 and path.read_bytes() == before
    with pytest.raises(ValueError, match="f must be a file path"):
        load(io.BytesIO(before), mmap=True)


def test_mapped_files_of_others_keep_their_order(tmp_path):
    header = b'{"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},'
    header += b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
    (tmp_path / "file").write_bytes(len(header).to_bytes(8, "little") + header + b"\1\2")
    for mapped in (False, True):
        assert [*load(tmp_path / "file", mmap=mapped).items()] == [("b", 2), ("a", 1)]


def test_files_of_the_first_version(tmp_path):
    structure = {"dict": [["x", {"tensor of pairs": "x"}], ["y", {"array of pairs": "x"}]]}
    metadata = {"lucid_gpu.version": "1", "lucid_gpu.structure": json.dumps(structure)}
    pairs = np.array([[1.0, 2.0]])
    (tmp_path / "file").write_bytes(older_files.safetensors(metadata, {"x": pairs}))
    back = load(tmp_path / "file")
    assert back["x"].tolist() == back["y"].tolist() == [1 + 2j]


def test_names_that_clash(tmp_path):
    back = round_trip({"a.b": lucid_gpu.zeros(1), "a": {"b": lucid_gpu.ones(1)}}, tmp_path)
    assert back["a.b"].item() == 0 and back["a"]["b"].item() == 1


def test_the_order_of_a_state_dict_is_kept(tmp_path):
    state = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1)).state_dict()
    back = round_trip(state, tmp_path)
    assert list(back) == list(state) and type(back) is type(state)


def test_loaded_tensors_can_be_written(tmp_path):
    back = round_trip(lucid_gpu.ones(2), tmp_path)
    back += 1
    assert back.tolist() == [2, 2]


def test_file_objects():
    buffer = io.BytesIO()
    save({"x": lucid_gpu.ones(2)}, buffer)
    buffer.seek(0)
    assert load(buffer)["x"].tolist() == [1, 1]


def test_safetensors_files_are_read(tmp_path):
    pytest.importorskip("safetensors", reason="pip install '.[test]'")
    from safetensors.numpy import save_file

    save_file({"x": np.arange(4.0), "y": np.array([True])}, tmp_path / "theirs")
    back = load(tmp_path / "theirs")
    assert back["x"].tolist() == [0, 1, 2, 3] and back["y"].tolist() == [True]


def test_files_of_before(tmp_path):
    (tmp_path / "file").write_bytes(older_files.NESTED)
    with pytest.raises(CheckpointError, match="it holds a pickled builtins.range, and unpickling"):
        load(tmp_path / "file")
    back = load(tmp_path / "file", weights_only=False)
    assert back["x"] is back["again"] and back["x"].tolist() == [0, 1, 2, 3]
    assert back["double"].dtype is lucid_gpu.float64 and back["double"].requires_grad
    assert back["complex"].tolist() == [1 + 2j] and back["half"].dtype is lucid_gpu.bfloat16
    assert back["last"].stride() == (8, 1, 4, 2) and back["last"].sum().item() == 28
    assert type(back["p"]) is nn.Parameter and back["p"].tags == ("a", 1)
    assert type(back["frozen"]) is nn.Parameter and not back["frozen"].requires_grad
    assert back["meta"].is_meta and back["meta"].shape == (2, 3)
    assert back["array"].tolist() == [0, 1, 2] and type(back["scalar"]) is np.float32
    assert list(back["ordered"]) == ["z", "a"] and back[5] == (1, [2], {3}, frozenset((4,)))
    assert type(back["size"]) is lucid_gpu.Size and back["bytes"] == b"\x00\xff"
    assert back["c"] == 2 - 1j and back["nan"] == float("inf") and back["none"] is None
    assert back["dtype"] is lucid_gpu.float16 and str(back["device"]) == "cpu"
    assert back["range"] == range(3)


@pytest.mark.parametrize("thing", [lambda: 0, {"a": [iter]}, {1, (i for i in ())}][::2])
def test_what_cannot_be_saved_is_named(thing, tmp_path):
    with pytest.raises(TypeError, match="save cannot store the"):
        save({"deep": thing}, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_arguments_that_are_no_files(tmp_path):
    for call in (
        lambda m: m.save("file", m.ones(1)),
        lambda m: m.save(m.ones(1), 3),
        lambda m: m.load(3),
        lambda m: m.load(b"file"),
        lambda m: m.load(m.ones(1)),
    ):
        same_error(call, "path")
    with pytest.raises(FileNotFoundError, match="Parent directory does not exist: .*nowhere'"):
        save(lucid_gpu.ones(1), tmp_path / "nowhere" / "file")


def test_code_is_never_run(tmp_path):
    import pickle

    (tmp_path / "file").write_bytes(pickle.dumps({"x": 1}))
    with pytest.raises(CheckpointError, match="it is a pickle"):
        load(tmp_path / "file")


# -- damage ------------------------------------------------------------------------------------


@pytest.fixture
def good(tmp_path):
    save({"w": lucid_gpu.arange(20.0), "n": [1, 2.5], "b": lucid_gpu.ones(3)}, tmp_path / "file")
    return (tmp_path / "file").read_bytes()


def test_every_cut_is_noticed(good):
    for end in range(len(good)):
        with pytest.raises(CheckpointError, match="cannot load"):
            load(io.BytesIO(good[:end]))


def test_every_flipped_bit_is_noticed(good):
    expected = repr(load(io.BytesIO(good)))
    for place in range(len(good)):
        broken = bytearray(good)
        broken[place] ^= 1 << (place % 8)
        try:
            assert repr(load(io.BytesIO(bytes(broken)))) == expected  # a space of the padding
        except CheckpointError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    "content", [b"", b"x", b"not a checkpoint at all", os.urandom(200), b"\xff" * 8 + b"{}"]
)
def test_other_files_are_told(content, tmp_path):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(CheckpointError, match="cannot load .*file: "):
        load(tmp_path / "file")


def entry(*shape):
    return '"t":{"dtype":"U8","shape":[' + ",".join(shape) + '],"data_offsets":[0,0]}'


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (f"{{{entry('0')},{entry('0')}}}", "a name stands twice"),
        (f"{{{entry('0', *['9' * 4000] * 3000)}}}", "entry for tensor 't'"),
        (f"{{{entry(*['0'] * 65)}}}", "entry for tensor 't'"),
        ('{"t":{"dtype":"U8","shape":"","data_offsets":[0,1]}}', "entry for tensor 't'"),
        ('{"__metadata__":' + "[" * 200_000, "damaged"),
    ],
)
def test_forged_headers(header, words):
    file = io.BytesIO(len(header).to_bytes(8, "little") + header.encode())
    with pytest.raises(CheckpointError, match=words):
        load(file)


def test_missing_files_are_os_errors(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing")


class FullDisk(io.BytesIO):
    """A file that takes 100 bytes."""

    def write(self, data):
        if self.tell() + len(data) > 100:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_an_older_file_survives(error, good, tmp_path, monkeypatch):
    def fail(*_):
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(type(error)):
        save({"w": lucid_gpu.zeros(1000)}, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == good
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


_DYING = """
import os, sys
import lucid_gpu

from lucid_gpu.serialization import torch_writing

def dying(self):
    for count, record in enumerate(whole(self)):
        if count == int(sys.argv[2]):
            os._exit(9)
        yield record

whole = torch_writing.Archive._records
torch_writing.Archive._records = dying
lucid_gpu.save({"a": lucid_gpu.ones(100_000), "b": lucid_gpu.ones(3)}, sys.argv[1])
"""


@pytest.mark.parametrize("records", [1, 5])
def test_an_older_file_survives_a_kill(records, good, tmp_path):
    died = subprocess.run([sys.executable, "-c", _DYING, tmp_path / "file", str(records)])
    assert died.returncode == 9
    assert (tmp_path / "file").read_bytes() == good


def test_what_a_kill_left_is_swept_by_the_next_save(tmp_path):
    others = [".file.tmp", ".file.0123456.tmp", ".file.0123456g.tmp", ".other.01234567.tmp"]
    for name in [*others, ".file.01234567.tmp"]:
        (tmp_path / name).write_bytes(b"half")
    (tmp_path / ".file.76543210.tmp").mkdir()
    (tmp_path / ".file.11111111.tmp").symlink_to(tmp_path / ".file.tmp")
    save(1, tmp_path / "file")
    kept = {*others, "file", ".file.76543210.tmp", ".file.11111111.tmp"}
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_what_a_living_save_writes_is_not_swept(tmp_path):
    with saving._replacing(str(tmp_path / "file")) as file:
        save(2, tmp_path / "file")
        save(1, whole := io.BytesIO())
        file.write(whole.getvalue())
    assert load(tmp_path / "file") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_many_save_to_one_name(tmp_path):
    def write(number):
        for _ in range(10):
            save([number] * 1000, tmp_path / "file")
            assert len(set(load(tmp_path / "file"))) == 1

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(write, range(4))] == [None] * 4
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_paths_that_name_no_file(tmp_path):
    (tmp_path / "round").symlink_to(tmp_path / "round")
    for path in ("", str(tmp_path / "round"), f"{tmp_path}/new/", str(tmp_path)):
        with pytest.raises(OSError):
            save(1, path)
    assert [path.name for path in tmp_path.iterdir()] == ["round"]


def test_a_folder_that_takes_no_files(tmp_path, monkeypatch):
    def refuse(path, mode):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(saving, "open", refuse, raising=False)  # root may write anywhere
    with pytest.raises(PermissionError, match="makes a new file in the target's folder") as caught:
        save(1, tmp_path / "file")
    assert caught.value.filename == str(tmp_path)


def test_the_longest_name(tmp_path):
    path = tmp_path / ("n\N{SNOWMAN}" * 63)  # 252 bytes; no file's name has more than 255
    save(1, path)
    assert load(path) == 1


def test_links_and_permissions_are_kept(tmp_path):
    place, link, again = tmp_path / "place", tmp_path / "link", tmp_path / "again"
    place.write_bytes(b"older")
    place.chmod(0o640)
    link.symlink_to("place")
    again.symlink_to(link)
    save(1, again)
    assert again.is_symlink() and link.is_symlink() and not place.is_symlink()
    assert load(place) == 1 and place.stat().st_mode & 0o777 == 0o640
    link.unlink()
    link.symlink_to("new")
    save(2, link)
    assert link.is_symlink() and load(tmp_path / "new") == 2
    assert {p.name for p in tmp_path.iterdir()} == {"place", "link", "again", "new"}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with a name here")
def test_pipes_are_written_and_stay_pipes(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    save([1, 2], tmp_path / "pipe")
    got = os.read(reader, 1 << 16)
    os.close(reader)
    assert load(io.BytesIO(got)) == [1, 2] and (tmp_path / "pipe").is_fifo()


def test_text_files_are_told(tmp_path):
    (tmp_path / "file").write_text("text")
    with (tmp_path / "file").open() as file, pytest.raises(TypeError, match="mode 'rb'"):
        load(file)


def test_pipes_are_read(good, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as pool:
        pool.submit((tmp_path / "pipe").write_bytes, good)
        assert load(tmp_path / "pipe").keys()


def test_folders_are_no_files(tmp_path):
    with pytest.raises(IsADirectoryError):
        save(1, tmp_path)
    assert not [*tmp_path.iterdir()]


def test_a_full_disk_is_an_os_error():
    with pytest.raises(OSError, match="No space left"):
        save({"w": lucid_gpu.zeros(1000)}, FullDisk())
