"""What `save` writes, PyTorch reads: the same values, strides, sharing and kinds, and back."""

from __future__ import annotations

import collections
import io
import pickle
import random
import zipfile

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import nn
from lucid_gpu.serialization import load, save
from tests.oracle import torch_module

torch = torch_module()

KINDS = ["float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8"]
KINDS += ["bool", "complex64", "complex128"]


def numbers(kind: str, chance: random.Random, count: int) -> list[float]:
    return [chance.randrange(2 if kind == "bool" else 100) for _ in range(count)]


def views(memory, chance: random.Random) -> list:
    """Tensors on one memory."""
    found = [memory]
    for _ in range(chance.randrange(5)):
        t = chance.choice(found)
        step = chance.randrange(6)
        if step == 0 and t.ndim == 1 and t.numel() == 24:
            t = t.reshape(chance.choice(((2, 12), (2, 3, 4), (4, 6))))
        elif step == 1 and t.ndim:
            t = t[chance.randrange(t.shape[0]) :] if t.shape[0] else t
        elif step == 2 and t.ndim > 1:
            t = t.transpose(0, 1)
        elif step == 3 and t.ndim and t.shape[0]:
            t = t[0].unsqueeze(0).expand(3, *t.shape[1:])
        elif step == 4 and t.is_complex():
            t = t.conj()
        elif step == 5 and t.ndim:
            t = t[::2]
        found.append(t)
    return found


def program(m, seed: int):
    """An object to save: views, kinds of tensors and containers by chance."""
    chance = random.Random(seed)
    tensors = []
    for _ in range(3):
        kind = chance.choice(KINDS)
        dtype = getattr(m, kind)
        memory = m.tensor(numbers(kind, chance, 24), dtype=dtype)
        found = views(memory, chance)
        if kind in KINDS[:4]:
            found.append(m.nn.Parameter(found[-1].clone(), requires_grad=chance.random() < 0.7))
            found[-1].note = ("a", seed)
            leaf = m.ones(2, dtype=dtype, requires_grad=True)
            found += [leaf, leaf.detach(), (leaf * 2)[:1], m.nn.Buffer(leaf.detach().clone())]
            found.append(m.tensor([[0.0, 2], [3, 0]], dtype=dtype).to_sparse())
        tensors += found
    made: list = [
        {"dtype": m.bfloat16, "device": m.device("cuda", 1), "size": m.Size([2, 3])},
        collections.OrderedDict(z=1, a=None),
        [m.zeros(0, 3), m.tensor(2.5), m.ones(2, 3, device="meta").t()],
        (1, 1 << 70, -2.5, True, "é", b"\x00\xff", {1}, 2 - 1j),
    ]
    chance.shuffle(tensors)
    return {"tensors": tensors, "more": made}


def described(value, places: dict):
    """What there is to say about an object, in words that both libraries share."""
    if type(value).__name__ in ("Tensor", "Parameter", "SparseTensor", "Buffer"):
        # PyTorch has no class of its own for buffers
        kind = "Parameter" if type(value).__name__ == "Parameter" else "Tensor"
        head = (kind, str(value.dtype).rpartition(".")[2], tuple(value.shape))
        kept = {k: v for k, v in vars(value).items() if k[0] != "_"}
        if value.is_sparse:
            return (*head, value._indices().tolist(), value._values().tolist())
        if value.is_meta:
            return (*head, value.stride(), value.requires_grad)
        place = value.untyped_storage().data_ptr() if value.numel() else None
        shared = places.setdefault(place, len(places))
        lies = value.storage_offset(), tuple(value.stride()), value.untyped_storage().nbytes()
        marks = value.is_conj(), value.is_neg(), value.requires_grad, value.is_leaf
        return (*head, shared, lies, marks, value.detach().tolist(), kept)
    if isinstance(value, dict):
        return type(value).__name__, [(k, described(v, places)) for k, v in value.items()]
    if type(value) in (list, tuple):
        return [described(v, places) for v in value]
    if type(value).__name__ in ("dtype", "device", "Size"):
        return str(value).replace("lucid_gpu", "torch")
    return type(value).__name__, value


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("weights_only", [True, False])
def test_programs_pass_both_ways(seed, weights_only):
    expected = described(program(torch, seed), {})
    ours = io.BytesIO()
    save(program(lucid_gpu, seed), ours)
    theirs = io.BytesIO()
    torch.save(program(torch, seed), theirs)
    for module, file in ((torch, ours), (lucid_gpu, theirs), (lucid_gpu, ours)):
        file.seek(0)
        loaded = module.load(file, weights_only=weights_only)
        assert as_saved(described(loaded, {})) == as_saved(expected)


def as_saved(value):
    """A description without what no file keeps: that a tensor was computed from another."""
    if isinstance(value, tuple) and len(value) == 8 and value[0] in ("Tensor", "Parameter"):
        return (*value[:5], value[5][:3], *value[6:])
    if isinstance(value, (list, tuple)):
        return type(value)(as_saved(v) for v in value)
    return value


def test_a_model_trained_here_is_served_there(tmp_path, device):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.LazyLinear(2))
    model = model.to(device)
    x = lucid_gpu.rand(5, 1, 6, 6, device=device)
    model(x)
    optimizer = lucid_gpu.optim.AdamW(model.parameters(), lr=0.1)
    model(x).square().sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
    save(state, tmp_path / "model.pt")
    for settings in ({}, {"mmap": True}):
        back = torch.load(tmp_path / "model.pt", map_location="cpu", **settings)
        other = torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(),
            torch.nn.Linear(64, 2),
        )  # fmt: skip
        other.load_state_dict(back["model"])
        its = torch.optim.AdamW(other.parameters(), lr=0.1)
        its.load_state_dict(back["optimizer"])
        assert back["model"]._metadata == model.state_dict()._metadata and back["epoch"] == 3
        expected = model.eval()(x).detach().cpu().numpy()
        y = torch.from_numpy(x.cpu().numpy())
        np.testing.assert_allclose(other.eval()(y).detach().numpy(), expected, rtol=1e-4)
        other.train()(y).square().sum().backward()
        its.step()


def test_the_archive_is_laid_out_as_theirs(tmp_path):
    state = {"a": lucid_gpu.ones(3), "b": lucid_gpu.arange(5), "c": lucid_gpu.zeros(0)}
    same = {"a": torch.ones(3), "b": torch.arange(5), "c": torch.zeros(0)}
    save(state, tmp_path / "ours.pt")
    torch.save(same, tmp_path / "theirs.pt")
    with zipfile.ZipFile(tmp_path / "ours.pt") as a, zipfile.ZipFile(tmp_path / "theirs.pt") as b:
        names = [i.filename.partition("/")[2] for i in a.infolist()]
        assert names == [i.filename.partition("/")[2] for i in b.infolist()]
        for name in set(names) - {".data/serialization_id", ".format_version"}:
            assert a.read(f"ours/{name}") == b.read(f"theirs/{name}"), name
    reader = torch._C.PyTorchFileReader(str(tmp_path / "ours.pt"))
    assert all(reader.get_record_offset(f"data/{n}") % 64 == 0 for n in range(2))
    save(state, file := io.BytesIO(), _disable_byteorder_record=True)
    assert zipfile.ZipFile(file).namelist()[3] == "archive/data/0"
    assert load(io.BytesIO(file.getvalue()))["a"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5, -1])
def test_protocols(protocol):
    saved = {"x": lucid_gpu.ones(2, dtype=lucid_gpu.float64), "a": np.arange(3), "n": [1]}
    save(saved, file := io.BytesIO(), pickle_protocol=protocol)
    for module, weights_only in ((torch, False), (lucid_gpu, True), (lucid_gpu, False)):
        file.seek(0)
        back = module.load(file, weights_only=weights_only)
        assert back["x"].tolist() == [1, 1] and back["a"].tolist() == [0, 1, 2]
        assert str(back["x"].dtype).endswith("float64") and back["n"] == [1]
    with pytest.raises(ValueError, match="protocol 2 or a later one, not 1"):
        save(saved, file, pickle_protocol=1)


class Logged(pickle._Pickler):
    """A pickler of another module."""


class Module:
    Pickler, Unpickler, __name__ = Logged, pickle.Unpickler, "other"


def test_a_pickler_of_another_module():
    save([lucid_gpu.ones(1), 3], file := io.BytesIO(), pickle_module=Module)
    file.seek(0)
    assert load(file, pickle_module=Module) == [1, 3]
    file.seek(0)
    assert torch.load(file)[0].item() == 1
    with pytest.raises(RuntimeError, match="weights when explicit pickle_module is specified"):
        load(file, weights_only=True, pickle_module=Module)


def test_storages_come_back_as_storages():
    x = lucid_gpu.arange(3.0)
    saved = {"typed": x.storage(), "x": x, "bytes": lucid_gpu.UntypedStorage([1, 2])}
    save(saved, file := io.BytesIO())
    for module in (torch, lucid_gpu):
        file.seek(0)
        back = module.load(file)
        assert back["typed"].tolist() == [0, 1, 2] and back["bytes"].tolist() == [1, 2]
        assert isinstance(back["typed"], module.TypedStorage)
        back["typed"][1] = 7
        assert back["x"].tolist() == [0, 7, 2]


def test_one_memory_as_two_types_is_refused(tmp_path):
    for m in (torch, lucid_gpu):
        x = m.zeros(4)
        with pytest.raises(RuntimeError, match="multiple tensors or storages that view the same"):
            m.save([x, x.view(m.int32)], tmp_path / m.__name__)
    assert not (tmp_path / "lucid_gpu").exists()


def test_negative_strides_are_straightened():
    x = lucid_gpu.from_numpy(np.arange(3.0)[::-1])
    save(x, file := io.BytesIO())
    file.seek(0)
    assert torch.load(file).tolist() == [2, 1, 0]


def test_many_storages():
    save([lucid_gpu.tensor([n]) for n in range(300)], file := io.BytesIO())
    file.seek(0)
    assert [t.item() for t in torch.load(file)] == [*range(300)]


class OnlyWrites:
    def __init__(self):
        self.data = b""

    def write(self, data):
        self.data += bytes(data)


def test_files_that_only_take_bytes():
    save({"x": lucid_gpu.ones(2)}, file := OnlyWrites())
    assert torch.load(io.BytesIO(file.data))["x"].tolist() == [1, 1]


class Narrow(io.BytesIO):
    """A file that takes a part of what it is given, as those without a buffer do."""

    room = 10**9

    def write(self, data) -> int:
        taken = super().write(memoryview(data).cast("B")[: min(7, self.room)])
        self.room -= taken
        return taken


def test_files_that_take_a_part_at_a_time():
    file = Narrow()
    save({"a": lucid_gpu.arange(40.0)}, file)
    file.seek(0)
    assert torch.load(file)["a"].tolist() == [*range(40)]


def test_files_that_take_no_more():
    file = Narrow()
    file.room = 100
    with pytest.raises(OSError, match="and then no more"):
        save({"a": lucid_gpu.arange(40.0)}, file)


def test_files_open_for_appending(tmp_path):
    with open(tmp_path / "file", "ab") as file:
        save({"x": lucid_gpu.ones(2)}, file)
    assert torch.load(tmp_path / "file")["x"].tolist() == [1, 1]


class Tagged(lucid_gpu.Tensor):
    pass


def test_subclasses_and_lazy_parameters():
    x = lucid_gpu.ones(2).as_subclass(Tagged)
    x.tag = 3
    lazy = nn.LazyLinear(2).state_dict()
    save({"x": x, "lazy": lazy}, file := io.BytesIO())
    file.seek(0)
    back = load(file, weights_only=False)
    assert type(back["x"]) is Tagged and back["x"].tag == 3 and back["x"].tolist() == [1, 1]
    assert type(back["lazy"]["weight"]) is nn.UninitializedParameter
    save(lazy, file := io.BytesIO())
    file.seek(0)
    assert torch.nn.parameter.is_lazy(torch.load(file, weights_only=False)["bias"])
