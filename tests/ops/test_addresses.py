"""Memory whose address was handed out: readers keep what was there, writers write there."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import Tensor
from lucid_gpu.autograd import Function
from lucid_gpu.devices import xp_of
from lucid_gpu.nn import Linear, Parameter

ASKS: dict[str, Callable[[Tensor], int]] = {
    "tensor": lambda t: t.data_ptr(),
    "untyped storage": lambda t: t.untyped_storage().data_ptr(),
    "storage": lambda t: t.storage().data_ptr(),
}


def at(address: int, like: Tensor) -> Any:
    """Return the elements at an address as an array of another library: who kept the number."""
    count = like.numel()
    if like.device.type == "cpu":
        kind = np.ctypeslib.as_ctypes_type(like.dtype.numpy)
        return np.ctypeslib.as_array((kind * count).from_address(address))
    cupy = xp_of(like)
    memory = cupy.cuda.UnownedMemory(address, count * like.element_size(), None)
    return cupy.ndarray((count,), like.dtype.numpy, cupy.cuda.MemoryPointer(memory, 0))


class Twice(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 2


class AddsOne(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.add_(1)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g


def _into(x: Tensor) -> Tensor:
    return lucid_gpu.empty_like(x).copy_(x * 3)


def _rows(x: Tensor) -> Tensor:
    return lucid_gpu.stack([row * 2 for row in x])


READERS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum with a number": lambda x: x + 0.5,
    "product": lambda x: x * x,
    "chain": lambda x: (x * 2).sin() + 1,
    "sum": lambda x: x.sum(),
    "sum of products": lambda x: (x * x).sum(0),
    "mean": lambda x: x.mean(1, keepdim=True) + 1,
    "maximum": lambda x: (x * 2).amax(0),
    "slice": lambda x: x[1:] * 2,
    "row": lambda x: x[0] + 1,
    "rows": _rows,
    "column": lambda x: x[:, 1] * x[:, 0],
    "steps": lambda x: x[:, ::2] - 1,
    "transposed": lambda x: x.t() * 2,
    "expanded": lambda x: x[0].expand(3, 3) * 2,
    "reshaped": lambda x: x.view(-1) / 2,
    "comparison": lambda x: (x > 0).to(x.dtype),
    "where": lambda x: lucid_gpu.where(x > 0, x, -x),
    "cast": lambda x: x.to(lucid_gpu.float32) * 2,
    "copy": _into,
    "clone": lambda x: x.clone(),
    "matrix product": lambda x: x @ x.t(),
    "gather": lambda x: x[[1, 0]] + 1,
    "softmax": lambda x: x.softmax(1),
    "function": lambda x: Twice.apply(x),
    "function in place": lambda x: AddsOne.apply(x * 2),
    "detached": lambda x: x.detach() * 2 + 1,
    "data": lambda x: x.data * 2,
    "loss": lambda x: (x.tanh() ** 2).mean(),
    "in place on a copy": lambda x: (x + 1).mul_(2).sub_(1),
    "norm": lambda x: x.norm() * 2,
    "joined": lambda x: lucid_gpu.cat([x * 2, x + 1]),
    "cumulative": lambda x: (x + 1).cumsum(0),
}


def _start(device: str) -> Tensor:
    return lucid_gpu.tensor([[0.5, -1.5, 2.0], [3.0, 0.25, -4.0]], device=device)


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("name", READERS)
def test_readers_keep_what_was_there(name: str, ask: str, device: str) -> None:
    reader, address_of = READERS[name], ASKS[ask]
    expected = reader(_start(device)).tolist()
    x = _start(device)
    pending = reader(x)
    at(address_of(x), x)[...] = 9
    assert pending.tolist() == expected
    assert x.tolist() == [[9.0] * 3] * 2
    y = _start(device)
    address = address_of(y)
    later = reader(y)  # the address is known already
    at(address, y)[...] = 9
    assert later.tolist() == expected


@pytest.mark.parametrize("name", READERS)
def test_backward_reads_what_was_there(name: str, device: str) -> None:
    if name in ("comparison", "detached", "data", "matrix product"):
        return  # no gradient; the last saves x itself, and reads its memory as PyTorch's does
    reader = READERS[name]
    x, y = (_start(device).requires_grad_() for _ in range(2))
    reader(x).sum().backward()
    result = reader(y).sum()
    at(y.data_ptr(), y)[...] = 9
    result.backward()
    assert y.grad.tolist() == x.grad.tolist()


def test_what_backward_reads_was_computed_before(device: str) -> None:
    h = lucid_gpu.ones(4, device=device, requires_grad=True)
    address = h.data_ptr()
    y = (h * 2).sin()  # saves h * 2
    at(address, h)[...] = 0
    y.sum().backward()
    assert h.grad.tolist() == pytest.approx([2 * np.cos(2.0)] * 4)


# What an op in place takes beside its tensor; those left out take nothing, a number or a tensor.
_index = lucid_gpu.tensor([1, 0])
_ones, _square = lucid_gpu.ones(2, 3), lucid_gpu.ones(2, 2)
GIVEN: dict[str, tuple[Any, ...]] = {
    "addbmm_": (lucid_gpu.ones(2, 3, 1), lucid_gpu.ones(2, 1, 3)),
    "addmm_": (_square, _ones),
    "addmv_": (_square, lucid_gpu.ones(2)),
    "addr_": (lucid_gpu.ones(2), lucid_gpu.ones(3)),
    "apply_": (abs,),
    "cumprod_": (0,),
    "cumsum_": (0,),
    "baddbmm_": (lucid_gpu.ones(2, 2, 1), lucid_gpu.ones(2, 1, 2)),
    "fill_diagonal_": (1.0,),
    "index_add_": (0, _index, _ones),
    "index_copy_": (0, _index, _ones),
    "index_fill_": (0, _index, 2.0),
    "index_put_": ((_index,), _ones),
    "index_reduce_": (0, _index, _ones, "amax"),
    "masked_fill_": (_ones > 0, 2.0),
    "masked_scatter_": (_ones > 0, _ones),
    "map_": (_ones, lambda a, b: a + b),
    "map2_": (_ones, _ones, lambda a, b, c: a + b + c),
    "put_": (_index, lucid_gpu.ones(2)),
    "renorm_": (2, 0, 1.0),
    "scatter_": (0, _index[:, None], _ones),
    "scatter_add_": (0, _index[:, None], _ones),
    "scatter_reduce_": (0, _index[:, None], _ones, "sum"),
    "lerp_": (_ones, 0.5),
    "addcdiv_": (_ones, _ones),
    "addcmul_": (_ones, _ones),
    "mvlgamma_": (1,),
    "polygamma_": (1,),
    "log_normal_": (),
}
# Views, marks and other memory: nothing is written.
NOT_WRITES = (
    *("as_strided_", "detach_", "requires_grad_", "resize_", "resize_as_", "set_", "share_memory_"),
    *("squeeze_", "swapaxes_", "swapdims_", "t_", "transpose_", "unsqueeze_"),
)
WRITES = sorted(
    name for name in dir(Tensor) if name[-1] == "_" and name[0] != "_" and name not in NOT_WRITES
)
SHAPES = {"addbmm_": (3, 3), "addr_": (2, 3), "addmv_": (2,), "baddbmm_": (2, 2, 2)}


def _moved(value: Any, device: str) -> Any:
    if isinstance(value, tuple):
        return tuple([_moved(v, device) for v in value])
    return value.to(device) if isinstance(value, Tensor) else value


@pytest.mark.parametrize("name", WRITES)
def test_in_place_ops_write_where_the_address_is(name: str, device: str) -> None:
    if name in ("apply_", "map_", "map2_") and device != "cpu":
        return  # for the CPU only, as in PyTorch
    there = [_moved(a, device) for a in GIVEN.get(name, ())]
    shape = SHAPES.get(name, (2, 3))
    start = lucid_gpu.full(shape, 0.5, device=device)
    attempts = [there] if name in GIVEN else [[], [0.25], [start.clone()]]
    kinds = [start.double() if name == "float_power_" else start, start.int() + 1]
    for kind in kinds:
        for arguments in attempts:
            x = kind.clone()
            if not kind.is_floating_point():
                arguments = [
                    a.int() if isinstance(a, Tensor) and a is not _index else a for a in arguments
                ]
            address = x.data_ptr()
            place = at(address, x)
            with suppress(RuntimeError, TypeError, NotImplementedError, IndexError):
                getattr(x, name)(*arguments)
                assert x.data_ptr() == address
                assert str(place.tolist()) == str(x.view(-1).tolist())  # NaN too
                place[...] = 5
                assert x.tolist() == kind.new_full(shape, 5).tolist()
                return
    pytest.fail(f"{name} was called with nothing that it takes")


def _grown(x: Tensor) -> None:
    x += 1
    x *= 2
    x[0] = 3
    x[x > 2] = 4


def _loaded(x: Tensor) -> None:
    module = Linear(3, 2, bias=False).to(x.device)
    module.weight = Parameter(x)
    module.load_state_dict({"weight": lucid_gpu.full((2, 3), 2.0)})
    assert module.weight.data_ptr() == x.data_ptr()


def _stepped(x: Tensor) -> None:
    p = Parameter(x)
    for rule in (lucid_gpu.optim.SGD, lucid_gpu.optim.Adam, lucid_gpu.optim.Adagrad):
        p.grad = lucid_gpu.ones_like(p)
        rule([p], lr=0.5).step()


def _out(x: Tensor) -> None:
    lucid_gpu.add(x, 1, out=x)
    lucid_gpu.matmul(lucid_gpu.ones(2, 2, device=x.device), x.clone(), out=x)


def _data(x: Tensor) -> None:
    x.data.add_(1)
    x.detach().mul_(3)
    x.view(-1)[1:].sub_(1)
    x.t().add_(1)


def _init(x: Tensor) -> None:
    lucid_gpu.nn.init.normal_(x)
    lucid_gpu.nn.init.xavier_uniform_(x)


@pytest.mark.parametrize("write", [_grown, _loaded, _stepped, _out, _data, _init])
def test_other_writes_go_where_the_address_is(write: Callable[[Tensor], None], device: str) -> None:
    x = _start(device)
    address = x.data_ptr()
    write(x)
    assert x.data_ptr() == address and at(address, x).tolist() == x.view(-1).tolist()


def test_gradients_are_added_where_the_address_is(device: str) -> None:
    x = _start(device).requires_grad_()
    (x * 2).sum().backward()
    address = x.grad.data_ptr()
    (x * 3).sum().backward()
    assert x.grad.data_ptr() == address and at(address, x.grad).tolist() == [5.0] * 6


def test_comparing_places_hands_nothing_out() -> None:
    x = lucid_gpu.ones(3)
    assert x.untyped_storage() == x.view(3).untyped_storage() and x.is_set_to(x.view(3))
    assert not x._memory().is_lent()
    x.data_ptr()
    assert x._memory().is_lent()


def test_a_block_whose_address_was_asked_for_is_not_computed_into(device: str) -> None:
    if device == "cpu":
        return  # its memory has no order of streams that a freed block would be safe by
    n = 64
    makers: dict[str, Callable[[], Tensor]] = {
        "expression": lambda: lucid_gpu.full((n,), 2.0).to(device) * 3,
        "constant": lambda: lucid_gpu.full((n,), 6.0, device=device),
        "zeroed": lambda: lucid_gpu.empty(n, device=device).zero_() + 6,
        "reduction": lambda: lucid_gpu.full((n, 2), 3.0, device=device).sum(1),
        "slice": lambda: (lucid_gpu.full((2 * n,), 3.0, device=device) * 2)[n:],
    }
    a = lucid_gpu.ones(n, device=device)
    for name, make in makers.items():
        u, out = make(), lucid_gpu.empty(n, device=device)
        places = (a * 100).data_ptr(), u.contiguous().data_ptr(), out.data_ptr()
        at(places[2], out)[...] = at(places[0], a) + at(places[1], a)
        assert out.tolist() == [106.0] * n, name


def test_streams_events_and_memory_go_to_ctypes(device: str) -> None:
    if device == "cpu":
        return
    stream, event = lucid_gpu.cuda.current_stream(), lucid_gpu.cuda.Event()
    event.record()
    for thing, address in ((stream, stream.cuda_stream), (event, event.cuda_event)):
        assert type(thing._as_parameter_) is ctypes.c_void_p
        assert (thing._as_parameter_.value or 0) == address
    for where in (None, stream, stream.cuda_stream):
        taken = lucid_gpu.cuda.caching_allocator_alloc(64, stream=where)
        array = at(taken, lucid_gpu.empty(16, device=device))
        array[...] = 3
        assert array.tolist() == [3.0] * 16
        lucid_gpu.cuda.caching_allocator_delete(taken)
    with pytest.raises(ValueError, match="no memory of caching_allocator_alloc is there"):
        lucid_gpu.cuda.caching_allocator_delete(taken)
    with pytest.raises(TypeError, match="Invalid type for stream argument"):
        lucid_gpu.cuda.caching_allocator_alloc(64, stream="0")


def test_names_that_cupy_took_away_say_what_to_write() -> None:
    cupy = pytest.importorskip("cupy")

    class Old(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, back: bool) -> Tensor:
            return x * 2 if back else cupy.cuda.compile_with_cache("")

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            return cupy.util.memoize()

    x = lucid_gpu.ones(2, requires_grad=True)
    with pytest.raises(AttributeError, match=r"'compile_with_cache' since CuPy 14; .*RawModule"):
        Old.apply(x, False)
    with pytest.raises(AttributeError, match=r"'util' since CuPy 14; write cupy.memoize"):
        Old.apply(x, True).sum().backward()


def test_other_attribute_errors_pass_unchanged() -> None:
    class Wrong(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Any:
            raise AttributeError("their own words")

    with pytest.raises(AttributeError, match="^their own words$"):
        Wrong.apply(lucid_gpu.ones(2))
