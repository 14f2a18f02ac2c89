"""Memory shared with NumPy, CuPy and PyTorch: values, lifetimes, streams, what is refused."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import dtypes
from lucid_gpu.devices import backend, resolve
from tests.numpy.agreement import since_2_1
from tests.oracle import same_error, torch_module

TYPES = list(dtypes.ALL)
SHAPES: dict[str, Any] = {
    "rows": lambda x: x,
    "transposed": lambda x: x.T,
    "steps": lambda x: x[::2, 1:],
    "expanded": lambda x: x[:, :1].expand(4, 3),
    "0-d": lambda x: x[1, 1],
    "empty": lambda x: x[:0],
}


def xp_of(device: str) -> Any:
    return backend(resolve(device)).xp


def values(d: Any, device: str) -> Any:
    return lucid_gpu.arange(12, device=device).reshape(4, 3).to(d)


@pytest.mark.parametrize("d", TYPES, ids=lambda d: d.name)
def test_every_type_makes_the_round_trip(d: Any, device: str) -> None:
    for name, part in SHAPES.items():
        x = part(values(d, device))
        y = lucid_gpu.from_dlpack(Producer(x))
        assert y.dtype is d and y.device == x.device and y.shape == x.shape, name
        assert y.tolist() == x.tolist(), name
        if x.numel() > 1:
            assert y.stride() == x.stride(), name
            assert y.data_ptr() == x.data_ptr(), name
        made = lucid_gpu.from_dlpack(x.__dlpack__())  # a bare capsule, of the older kind
        assert made.dtype is d and made.tolist() == x.tolist(), name
        if d is not lucid_gpu.bfloat16:
            array = xp_of(device).from_dlpack(x)
            assert array.dtype == d.numpy and array.shape == tuple(x.shape)


class Producer:
    """Another library's array: it has the protocol and nothing else."""

    def __init__(self, x: Any, old: bool = False) -> None:
        self.x, self.old, self.asked = x, old, {}

    def __dlpack_device__(self) -> Any:
        return self.x.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        if self.old and set(options) - {"stream"}:
            raise TypeError("unexpected keyword argument")
        self.asked = options
        return self.x.__dlpack__(**options)


def test_both_sides_see_writes(device: str) -> None:
    for old in (False, True):
        x = lucid_gpu.zeros(3, device=device)
        y = lucid_gpu.from_dlpack(Producer(x, old))
        pending, kept = y * 2, (y + 0)
        x.add_(1)
        assert y.tolist() == [1] * 3 and pending.tolist() == [0] * 3 == kept.tolist()
        y.mul_(5)
        y[0] = 7
        assert x.tolist() == [7, 5, 5]
        del x
        gc.collect()
        y.add_(1)
        assert y.tolist() == [8, 6, 6]


@since_2_1
def test_where_and_whether_to_copy(device: str) -> None:
    x = values(lucid_gpu.float32, device)
    copied = lucid_gpu.from_dlpack(x, copy=True)
    assert copied.data_ptr() != x.data_ptr() and copied.tolist() == x.tolist()
    assert lucid_gpu.from_dlpack(x, copy=False).data_ptr() == x.data_ptr()
    assert lucid_gpu.from_dlpack(x, device=device).data_ptr() == x.data_ptr()
    producer = Producer(x)
    lucid_gpu.from_dlpack(producer, copy=False)
    assert producer.asked["copy"] is False and producer.asked["max_version"] == (1, 0)
    exported = lucid_gpu.from_dlpack(x.__dlpack__(copy=True, max_version=(1, 0)))
    assert exported.data_ptr() != x.data_ptr() and exported.tolist() == x.tolist()
    host = lucid_gpu.from_dlpack(x.__dlpack__(dl_device=(1, 0)))
    assert host.device.type == "cpu" and host.tolist() == x.tolist()
    assert lucid_gpu.from_dlpack(x, device="cpu").device.type == "cpu"
    if device != "cpu":
        with pytest.raises(ValueError, match="without copying"):
            x.__dlpack__(dl_device=(1, 0), copy=False)
        with pytest.raises(ValueError, match="without copying. Set copy=None or copy=True"):
            lucid_gpu.from_dlpack(x, device="cpu", copy=False)
    with pytest.raises(BufferError, match="move it with .to"):
        x.__dlpack__(dl_device=(7, 0))


def test_memory_lives_while_either_side_holds_it(device: str) -> None:
    xp = xp_of(device)
    source = xp.arange(200_000, dtype="f")
    gone = weakref.ref(source)
    y = lucid_gpu.from_dlpack(source)
    del source
    gc.collect()
    assert gone() is not None
    last = y[-1:] * 1
    assert y.max().item() == 199_999
    del y
    gc.collect()
    assert gone() is None and last.item() == 199_999

    x = lucid_gpu.arange(200_000, device=device).float()
    out = xp.from_dlpack(x)
    address = x.data_ptr()
    del x
    gc.collect()
    filler = [lucid_gpu.zeros(200_000, device=device) for _ in range(3)]
    assert all(f.data_ptr() != address for f in filler)
    assert float(out[-1]) == 199_999


def test_in_place_writes_reach_who_holds_the_memory(device: str) -> None:
    x = lucid_gpu.ones(3, device=device)
    x.mul_(2)  # alone: a new value
    out = xp_of(device).from_dlpack(x)
    x.add_(1)
    assert out.tolist() == [3] * 3
    if device != "cpu" or out.flags.writeable:  # NumPy 2.0's never are
        out[0] = 9
        assert x.tolist() == [9, 3, 3]


def test_interface_of_cuda_arrays(device: str) -> None:
    x = values(lucid_gpu.float32, device)
    if device == "cpu":
        assert not hasattr(x, "__cuda_array_interface__")
        same_error(lambda m: m.ones(2).__cuda_array_interface__, "on non-CUDA tensor type")
        return
    told = x.T.__cuda_array_interface__
    assert told["shape"] == (3, 4) and told["typestr"] == "<f4" and told["strides"] == (4, 12)
    assert told["version"] == 3 and told["stream"] == 1 and told["data"] == (x.data_ptr(), False)
    assert x.__cuda_array_interface__["strides"] is None
    assert lucid_gpu.ones(0, device=device).__cuda_array_interface__["data"][0] == 0
    bf = lucid_gpu.ones(2, device=device, dtype=lucid_gpu.bfloat16)
    assert bf.__cuda_array_interface__["typestr"] == "<V2"  # as PyTorch's
    x.add_(1)  # whoever read the address holds the tensor: it stays where it is
    assert x.data_ptr() == told["data"][0]
    stream = lucid_gpu.cuda.Stream()
    with lucid_gpu.cuda.stream(stream):
        assert x.__cuda_array_interface__["stream"] == stream.cuda_stream
    with pytest.raises(RuntimeError, match="Can't get __cuda_array_interface__ on Variable that"):
        lucid_gpu.ones(2, device=device, requires_grad=True).__cuda_array_interface__


def test_the_consumers_stream_waits(device: str) -> None:
    if device == "cpu":
        for stream in (None, -1):
            lucid_gpu.ones(2).__dlpack__(stream=stream)
        same_error(lambda m: m.ones(2).__dlpack__(stream=1), "stream should be None on cpu")
        return
    ours, theirs = lucid_gpu.cuda.Stream(), lucid_gpu.cuda.Stream()
    with lucid_gpu.cuda.stream(ours):
        x = lucid_gpu.arange(4, device=device).float() * 3
        capsule = x.__dlpack__(stream=theirs.cuda_stream, max_version=(1, 0))
    with lucid_gpu.cuda.stream(theirs):
        y = lucid_gpu.from_dlpack(capsule) + 1
        assert y.tolist() == [1, 4, 7, 10]
        producer = Producer(y)  # `from_dlpack` names the stream it reads on
        lucid_gpu.from_dlpack(producer)
        assert producer.asked["stream"] == theirs.cuda_stream
    with lucid_gpu.cuda.stream(ours):
        x = (x + 5).cos()
        capsule = x.__dlpack__(stream=-1)  # nobody waits
        unordered = lucid_gpu.cuda.Event()
        unordered.record()
    assert not unordered.query()
    with pytest.raises(TypeError, match="stream must be"):
        x.__dlpack__(stream="1")


def test_other_gpus_than_the_current_one(device: str) -> None:
    if device == "cpu" or lucid_gpu.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    there = lucid_gpu.device("cuda:1")
    stream = lucid_gpu.cuda.Stream(there)
    with lucid_gpu.cuda.stream(stream):
        x = lucid_gpu.arange(3, device=there) * 2
        x._realize()
        with lucid_gpu.cuda.device(0):
            y = lucid_gpu.from_dlpack(Producer(x))
            told = x.__cuda_array_interface__
        assert y.device == there and y.tolist() == [0, 2, 4]
    assert told["stream"] == stream.cuda_stream


def test_arrays_of_gpus_are_shared(device: str) -> None:
    xp = xp_of(device)
    array = xp.arange(3, dtype="f")
    for make in (lucid_gpu.as_tensor, lucid_gpu.asarray):
        x = make(array)
        assert x.device.type == device.split(":")[0]
        x.add_(1)
    assert array.tolist() == [2, 3, 4]
    y = lucid_gpu.tensor(array)
    y.add_(1)
    assert array.tolist() == [2, 3, 4] and y.tolist() == [3, 4, 5]
    if device != "cpu":
        other = Interface(array)
        x = lucid_gpu.as_tensor(other)
        x.add_(1)
        assert array.tolist() == [3, 4, 5] and x.device.type == "cuda"
        assert x.cupy().tolist() == [3, 4, 5]


class Interface:
    """An array of a GPU of some other library."""

    def __init__(self, array: Any) -> None:
        self.__cuda_array_interface__, self.array = array.__cuda_array_interface__, array


@since_2_1
def test_read_only_memory_is_not_written(device: str) -> None:
    if device != "cpu":
        return
    a = np.arange(3.0)
    a.flags.writeable = False
    for make in (lucid_gpu.from_numpy, lucid_gpu.as_tensor, lucid_gpu.from_dlpack):
        x = make(a)
        assert (x * 2 + 1).tolist() == [1, 3, 5] and not x.numpy().flags.writeable
        for write in WRITES:
            with pytest.raises(RuntimeError, match=r"is read-only.*x = x.clone\(\)"):
                write(x)
        with pytest.raises(RuntimeError, match="is read-only"):
            x[1:].zero_()
        assert a.tolist() == [0, 1, 2] == x.tolist() and x._version == 0
        assert x.clone().add_(1).tolist() == [1, 2, 3]
        assert not np.from_dlpack(x).flags.writeable
    p = lucid_gpu.nn.Parameter(lucid_gpu.from_numpy(a))
    p.grad = lucid_gpu.ones(3).double()
    with pytest.raises(RuntimeError, match="is read-only"):
        lucid_gpu.optim.SGD([p], 0.1).step()
    assert lucid_gpu.tensor(a).add_(1).tolist() == [1, 2, 3]


def _assigned(x: Any) -> None:
    x[0] = 5


WRITES = (lambda x: x.add_(1), lambda x: x.zero_(), _assigned, lambda x: x.copy_(x + 1),
          lambda x: x.index_add_(0, lucid_gpu.tensor([0]), x[:1] * 2))  # fmt: skip


def test_buffers_are_written_through() -> None:
    buffer = bytearray(3)
    x = lucid_gpu.frombuffer(buffer, dtype=lucid_gpu.uint8)
    x.add_(1)
    assert buffer == b"\1\1\1"
    later = x * 2
    buffer[0] = 9
    assert x.tolist() == [9, 1, 1] and later.tolist() == [2, 2, 2]


def test_torch_and_back() -> None:
    torch = torch_module()
    for d in TYPES:
        for name, part in SHAPES.items():
            x = part(values(d, "cpu"))
            t = lucid_gpu.to_torch(x)
            assert str(t.dtype) == f"torch.{d.name}" and t.shape == tuple(x.shape), (d, name)
            assert t.tolist() == x.tolist()
            y = lucid_gpu.from_torch(t)
            assert y.dtype is d and y.tolist() == x.tolist()
            if x.numel() > 1:
                assert t.stride() == x.stride() == y.stride()
                assert t.data_ptr() == x.data_ptr() == y.data_ptr()
    t = torch.ones(2)
    x = lucid_gpu.from_torch(t)
    later = x * 3
    t.zero_()
    x.add_(2)
    assert t.tolist() == [2, 2] and later.tolist() == [3, 3]
    assert lucid_gpu.from_torch(torch.tensor([1 + 2j]).conj()).tolist() == [1 - 2j]
    assert lucid_gpu.tensor(torch.ones(1, dtype=torch.float64)).dtype is lucid_gpu.float64
    assert lucid_gpu.as_tensor(t).data_ptr() == t.data_ptr()
    with pytest.raises(BufferError, match=r"to_torch\(tensor.detach\(\)\)"):
        lucid_gpu.to_torch(lucid_gpu.ones(2, requires_grad=True))
    with pytest.raises(BufferError, match=r"from_torch\(tensor.detach\(\)\)"):
        lucid_gpu.from_torch(torch.ones(2, requires_grad=True))
    with pytest.raises(TypeError, match="must be Tensor, not numpy.ndarray"):
        lucid_gpu.to_torch(np.ones(2))
    with pytest.raises(TypeError, match=r"expected a torch.Tensor, got ndarray"):
        lucid_gpu.from_torch(np.ones(2))
    for mixed in (lambda: lucid_gpu.ones(2) * t, lambda: t - lucid_gpu.ones(2)):
        with pytest.raises(TypeError, match=r"write lucid_gpu.from_torch\(x.detach\(\)\)"):
            mixed()
    for ours in (lucid_gpu.ones(2), lucid_gpu.nn.Parameter(lucid_gpu.ones(2))):
        with pytest.raises(TypeError):  # PyTorch's functions ask its class, which declines
            torch.sin(ours)
    with pytest.raises(BufferError, match="negative strides"):  # PyTorch would end the process
        torch.from_dlpack(lucid_gpu.from_numpy(np.arange(3)[::-1]))
    with pytest.raises(TypeError, match="no tensor type holds DLPack's float8_e4m3fn_8"):
        lucid_gpu.from_dlpack(torch.ones(2).to(torch.float8_e4m3fn))


def test_arrays_of_tensors() -> None:
    x = lucid_gpu.ones(3)
    shared = np.asarray(x)
    shared[0] = 5
    assert x.tolist() == [5, 1, 1]
    assert np.array(x).base is None and np.asarray(x, dtype="f8").dtype == np.float64
    assert np.asarray(x, copy=False).tolist() == [5, 1, 1]
    for refused in (
        lambda m: np.asarray(m.ones(2), dtype="f8", copy=False),
        lambda m: np.asarray(m.ones(2, requires_grad=True)),
        lambda m: np.array([m.ones(2, requires_grad=True)]),
        lambda m: m.from_dlpack(m.ones(2, requires_grad=True)),
        lambda m: m.from_dlpack([1]),
        lambda m: m.ones(2).__dlpack__(stream="a"),
    ):
        same_error(refused)


REFUSED: dict[str, tuple[Any, str]] = {
    "object": (np.array([1, None], object), "type object.*array.astype"),
    "text": (np.array(["a"]), "type <U1.*numpy.unique"),
    "bytes": (np.array([b"a"]), r"type \|S1.*array.astype\(float\)"),
    "structure": (np.zeros(2, [("x", "f4"), ("y", "i4")]), r"take a field, array\['x'\]"),
    "time": (np.array(["2020-01-01"], "M8[D]"), r"type datetime64\[D\].*numpy.timedelta64"),
    "duration": (np.array([1], "m8[s]"), r"type timedelta64\[s\].*numpy.timedelta64"),
    "longdouble": (np.ones(1, np.longdouble), r"type float128.*array.astype\('float64'\)"),
    "clongdouble": (np.ones(1, np.clongdouble), r"type complex256.*array.astype\('complex128'\)"),
    "float8": (np.ones(1, ml_dtypes.float8_e4m3fn), r"type float8_e4m3fn.*astype\('float32'\)"),
    "uint16": (np.ones(1, np.uint16), r"type uint16.*array.astype\('int64'\)"),
}
ENTRANCES: dict[str, Any] = {
    "tensor": lucid_gpu.tensor,
    "as_tensor": lucid_gpu.as_tensor,
    "asarray": lambda a: lucid_gpu.asarray(a),
    "from_numpy": lucid_gpu.from_numpy,
    "from_dlpack": lambda a: lucid_gpu.from_dlpack(a),
    "operator": lambda a: lucid_gpu.ones(1) + a,
    "reflected": lambda a: a * lucid_gpu.ones(1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name: str) -> None:
    array, words = REFUSED[name]
    for entrance, take in ENTRANCES.items():
        with pytest.raises(TypeError, match=words):
            take(array)
            raise AssertionError(entrance)


def test_arrays_of_other_classes() -> None:
    with pytest.raises(TypeError, match=r"masked array.*array.filled\(0\)"):
        lucid_gpu.from_numpy(np.ma.array([1.0, 2], mask=[0, 1]))
    x = lucid_gpu.from_numpy(np.matrix([[1.0, 2], [3, 4]]))
    assert type(x.numpy()) is np.ndarray and (x * x).tolist() == [[1, 4], [9, 16]]


class Table:
    """What a data frame is to us: `__array__`, and no more."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.arange(3.0)


def test_what_gives_arrays_keeps_its_type() -> None:
    assert lucid_gpu.tensor(Table()).dtype is lucid_gpu.float64
    assert lucid_gpu.as_tensor(Table(), dtype=lucid_gpu.float32).tolist() == [0, 1, 2]
