"""Strides told, views by strides and windows: values, gradients, memory and errors as in torch."""

from __future__ import annotations

import warnings
import weakref
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import agree, gives, modules, same_error, torch_module

RNG = np.random.default_rng(27)
CUBE = RNG.standard_normal((3, 4, 2))
CASES: dict[str, Any] = {
    "as_strided": lambda m, t: t.as_strided((3, 2), (4, 3)) * 1,
    "overlapping": lambda m, t: m.as_strided(t, (4, 3), (1, 2), 5) * 1,
    "of a view": lambda m, t: (t * 1)[1].as_strided((3,), (2,)) * 1,
    "of a part at an offset": lambda m, t: (t * 1)[1].as_strided((3,), (2,), storage_offset=9) * 1,
    "of a transpose": lambda m, t: t.mT.as_strided((2, 3), (1, 8)) * 1,
    "of an expanded one": lambda m, t: t[:, :1, :1].expand(3, 2, 2).as_strided((2, 2), (8, 0)) * 1,
    "written": lambda m, t: _written(t * 1),
    "as_strided_": lambda m, t: (t * 2).as_strided_((2, 2), (1, 5)).mul_(3),
    "unfold": lambda m, t: t.unfold(0, 2, 1) * 1,
    "windows apart": lambda m, t: t.unfold(1, 2, 2) * 1,
    "windows with gaps": lambda m, t: t.mT.unfold(dimension=-1, size=1, step=3) * 1,
    "windows twice": lambda m, t: t.unfold(0, 2, 1).unfold(1, 3, 1) * 1,
    "windows of nothing": lambda m, t: t.unfold(0, 0, 1) * 1,
    "unfolded number": lambda m, t: t[0, 0, 0].unfold(0, 1, 1) * 1,
}


def _written(t: Any) -> Any:
    view = t.as_strided((3,), (5,), 1)
    view *= 3
    t.unfold(0, 1, 2)[..., 0] += 1
    return t, view


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_torch(name: str, device: str) -> None:
    agree(CASES[name], CUBE, device=device)


def test_scattering_by_strides(device: str) -> None:
    """PyTorch's gradient of this is the complement of what it should be."""

    def scattered(m: Any, t: Any) -> Any:
        return m.as_strided_scatter(t, t[0, :3, 0] * 2, (3,), (4,), 1)

    agree(scattered, CUBE, device=device, order=0)
    t = lucid_gpu.arange(24.0, device=device).reshape(3, 4, 2).requires_grad_()
    scattered(lucid_gpu, t).sum().backward()
    assert t.grad.flatten().tolist() == [3, 0, 3, 1, 3, 0, 1, 1, 1, 0, *[1] * 14]


def test_what_is_told(device: str) -> None:
    def scenario(m: Any, where: str) -> Any:
        t = m.zeros(3, 4, 2, device=where)
        view = t[1:, 2]
        near = view.data_ptr() - t.data_ptr()
        strides = [tuple(x.stride()) for x in (t, t.mT, view, t[:0], m.tensor(1.0), t * 1)]
        ints = [t.stride(-1), t.stride(dim=0), view.storage_offset(), t.storage_offset(), near]
        sets = [t.is_set_to(t.view(3, 4, 2)), t.is_set_to(view), t.is_set_to(t.clone())]
        return strides, ints, sets

    strides = [(8, 2, 1), (8, 1, 2), (8, 1), (8, 2, 1), (), (8, 2, 1)]
    gives([strides, [1, 8, 12, 0, 48], [True, False, False]], scenario, device)


def test_resize(device: str) -> None:
    def scenario(m: Any, where: str) -> Any:
        t = m.arange(6.0, device=where)
        same = t.resize_(2, 2) is t
        square = t.tolist()
        return (
            same,
            square,
            t.resize_as_(m.zeros(3)),
            m.tensor([1, 2], device=where).resize_((2, 1)),
        )

    gives([True, [[0, 1], [2, 3]], [0, 1, 2], [[1], [2]]], scenario, device)


def test_resize_takes_an_order_of_memory(device: str) -> None:
    def scenario(m: Any, where: str) -> Any:
        t, last = m.arange(24.0, device=where), m.channels_last
        template = m.zeros(1, 2, 3, 4).to(memory_format=last)
        turned = m.arange(6.0, device=where).view(2, 3).t()
        return (
            t.clone().resize_(1, 2, 3, 4, memory_format=last).stride(),
            t.clone().resize_as_(template, memory_format=m.preserve_format).stride(),
            t.clone().resize_as_(template).stride(),
            turned.resize_as_(turned).stride(),
        )

    last = [24, 1, 8, 2]
    gives([last, last, [24, 12, 4, 1], [1, 3]], scenario, device)


def test_vmap_and_tangents(device: str) -> None:
    x = lucid_gpu.tensor(CUBE, device=device)
    windows = lucid_gpu.vmap(lambda t: t.unfold(0, 2, 1))(x)
    assert windows.tolist() == x.unfold(1, 2, 1).tolist()
    _, tangent = lucid_gpu.func.jvp(lambda t: t.as_strided((2, 3), (1, 1)) ** 2, (x,), (x,))
    assert tangent.allclose(2 * x.as_strided((2, 3), (1, 1)) ** 2)


STORAGES: dict[str, Any] = {
    "sizes": lambda t, s, u: (s.size(), len(s), s.nbytes(), u.nbytes(), u.size(), len(u)),
    "elements": lambda t, s, u: (s[1], s.tolist(), list(s), s.element_size(), u.element_size()),
    "bytes": lambda t, s, u: (u[3], u.tolist()),
    "places": lambda t, s, u: (s.data_ptr() == u.data_ptr() == t.data_ptr(), s.is_shared()),
    "of views": lambda t, s, u: [v.storage().data_ptr() == s.data_ptr() for v in (t.T, t[1])],
    "size of a view": lambda t, s, u: (t[1, 1:].storage().size(), t.view(6).untyped_storage() == u),
    "of others": lambda t, s, u: (t.clone().untyped_storage() == u, t.storage().untyped() == u),
    "of nothing": lambda t, s, u: (t[:0].storage().size(), t.new_zeros(0).storage().data_ptr()),
    "written": lambda t, s, u: (s.__setitem__(0, 7.0), t.tolist(), t[1].tolist()),
    "slices": lambda t, s, u: (u[4:9].tolist(), u[4:9][1:3].data_ptr() - u.data_ptr()),
    "numbers": lambda t, s, u: (s.double().tolist(), u.clone().fill_(3).tolist(), u.tolist()),
    "copied": lambda t, s, u: (u.copy_((t + 1).untyped_storage()), t.tolist())[1],
    "new": lambda t, s, u: (type(u)(3).nbytes(), type(u)([1, 2]).tolist(), u.new().size()),
    "typed": lambda t, s, u: type(s)(wrap_storage=u, dtype=t.view(-1).int().dtype).tolist(),
    "resized": lambda t, s, u: (
        *(u.resize_(40).size(), s.size(), t.tolist(), t.t()[0].tolist()),
        *(u.resize_(0).nbytes(), s.nbytes(), t.shape, t.stride(), u.data_ptr()),
        *(u.resize_(24).size(), t.fill_(2).tolist(), s.tolist()),
    ),
    "views of resized": lambda t, s, u: (
        (view := t[1]),
        u.resize_(0),
        u.resize_(24),
        t.copy_(t.new_ones(2, 3) * 5),
        view.tolist(),
        view.add_(1).tolist(),
        t.tolist(),
        view.untyped_storage() == u,
    )[4:],  # fmt: skip
    "of one type": lambda t, s, u: t.new_empty(0).set_(u).tolist(),
    "text": lambda t, s, u: repr(s).replace("lucid_gpu", "torch").replace("storage.", ""),
}


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("name", STORAGES)
def test_storages(name: str) -> None:
    def run(m: Any, where: str) -> Any:
        t = m.arange(6.0).reshape(2, 3)
        return STORAGES[name](t, t.storage(), t.untyped_storage())

    found = [run(m, where) for m, where in modules()]
    assert all(f == found[0] for f in found)


def test_a_storage_keeps_and_shares_the_memory(device: str) -> None:
    t = lucid_gpu.arange(6.0, device=device)
    doubled = t * 2  # pending: reads what was there before
    seen = t[3:].storage()
    del t
    seen[3] = 9.0
    assert seen.tolist() == [0, 1, 2, 9, 4, 5]
    assert doubled.tolist() == [0, 2, 4, 6, 8, 10]
    assert lucid_gpu.is_storage(seen)
    with pytest.raises(RuntimeError, match="can't index a"):
        seen["a"]


def test_a_resized_storage_gives_its_memory_back(device: str) -> None:
    w = lucid_gpu.arange(6.0, device=device).reshape(2, 3).clone().requires_grad_()
    x = lucid_gpu.ones(4, 2, device=device)
    y, doubled = x @ w, w.detach() * 2
    doubled.tolist()
    del doubled
    memory = weakref.ref(w.detach().untyped_storage()._bytes.array.base)
    w.untyped_storage().resize_(0)
    assert memory() is None
    with pytest.raises(RuntimeError, match="storage of this tensor was resized to 0 bytes"):
        (w * 2).tolist()
    w.untyped_storage().resize_(24)
    w.data.copy_(lucid_gpu.ones(2, 3, device=device))
    (y.sum() + w.sum()).backward()
    assert w.grad.tolist() == [[5.0] * 3] * 2


def test_a_storage_moves_to_memory_that_processes_share() -> None:
    t = lucid_gpu.arange(6.0)
    view = t[2:]
    t.untyped_storage().share_memory_()
    view[0] = 9
    assert t.is_shared() and view.is_shared() and t.tolist() == [0, 1, 9, 3, 4, 5]
    with pytest.raises(RuntimeError, match="Trying to resize storage that is not resizable"):
        t.untyped_storage().resize_(0)


MISUSE: dict[str, tuple[Any, str]] = {
    "beyond the memory": (
        lambda m: m.ones(2, 3).as_strided((2, 2), (5, 1)),
        "setStorage: sizes [2, 2], strides [5, 1], storage offset 0, and itemsize 4 requiring a "
        "storage size of 28 are out of bounds for storage of size 24",
    ),
    "lengths": (lambda m: m.ones(2).as_strided((2, 2), (1,)), "mismatch in length of strides"),
    "negative": (
        lambda m: m.ones(2).as_strided((2,), (-1,)),
        "Negative strides are not supported at the moment, got strides: [-1]",
    ),
    "window": (lambda m: m.ones(2).unfold(0, 5, 1), "dimension 0 is 2 but size is 5"),
    "window size": (lambda m: m.ones(2).unfold(0, -1, 1), "size is -1 but must be >= 0"),
    "window step": (lambda m: m.ones(2).unfold(0, 1, 0), "step is 0 but must be > 0"),
    "an order of another rank": (
        lambda m: m.ones(2).resize_(2, memory_format=m.channels_last),
        "required rank 4 tensor to use channels_last format",
    ),
    "bytes that begin between two elements": (
        lambda m: m.ones(2, 3)[:, 1:].view(m.float64),
        "self.storage_offset() must be divisible by 2",
    ),
    "expanded to a negative size": (
        lambda m: m.ones(2).expand(-1, 2),
        "The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension",
    ),
    "cut at a broken number": (
        lambda m: m.ones(4).tensor_split(m.tensor([1.5])),
        "tensor_split expected tensor_indices_or_sections to have dtype of long",
    ),
    "cut at a matrix": (
        lambda m: m.ones(4).tensor_split(m.tensor([[1]])),
        "to be a zero-dimensional or one-dimensional tensor, but got a tensor with 2 dims",
    ),
    "cut into a broken number": (lambda m: m.ones(4).tensor_split(1.5), "not float"),
    "resizing what is recorded": (
        lambda m: m.ones(2, requires_grad=True).resize_(1),
        "cannot resize variables that require grad",
    ),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name: str) -> None:
    same_error(*MISUSE[name])


def test_set_takes_storages_offsets_and_sizes(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        y = m.arange(6.0, device=device)

        def x() -> Any:
            return m.ones(4, device=device)

        whole = x().set_(y.untyped_storage())
        y[0] = 7
        return [
            x().set_(),
            x().set_(y.untyped_storage(), 1, (2, 2), (2, 1)),
            x().set_(y[2:].untyped_storage()),
            x().set_(y, 1, (2, 2)),
            x().set_(y[1:], 0, (2,)),
            x().set_(y, 1, (2, 2), (1, 1)),
            whole,
        ]

    wanted = [
        [], [[1, 2], [3, 4]], [7, 1, 2, 3, 4, 5], [[1, 2], [3, 4]], [1, 2], [[1, 2], [2, 3]],
        [7, 1, 2, 3, 4, 5],
    ]  # fmt: skip
    gives(wanted, scenario, device)


def test_memory_grows_for_what_set_and_resize_ask_of_it() -> None:
    def scenario(m: Any, device: str) -> Any:
        grown, taken, part, turned = [m.arange(6.0, device=device) for _ in range(4)]
        seen, view = part[2:4], part[4:]
        seen.resize_(8)[4:].fill_(9)
        turned = turned.reshape(2, 3).t().resize_(2, 3)
        whole = m.ones(4, device=device).set_(grown, 3, (2, 2)).fill_(3)
        rest = taken.resize_(2).resize_(6)
        sizes = [t.untyped_storage().nbytes() for t in (grown, part, rest)]
        again = part[2:].resize_(2, 2)
        part[5] = 7
        return grown, whole, part, view, turned, rest, sizes, again, again.storage_offset()

    wanted = [
        *([0, 1, 2, 3, 3, 3], [[3, 3], [3, 3]], [0, 1, 2, 3, 4, 7], [4, 7]),
        *([[0, 1, 2], [3, 4, 5]], [0, 1, 2, 3, 4, 5], [28, 40, 24], [[2, 3], [4, 7]], 2),
    ]
    gives(wanted, scenario, "cpu")
    lent = lucid_gpu.from_numpy(np.zeros(3))
    array = lent.numpy()
    with pytest.raises(RuntimeError, match="Trying to resize storage that is not resizable"):
        lent.resize_(4)
    assert lent.resize_(1).tolist() == array[:1].tolist()


def test_set_refuses_what_lies_in_no_storage() -> None:
    same_error(lambda m: m.ones(4, dtype=m.int32).set_(m.arange(6.0)))
    for lies in ((-1, (1,), (1,)), (0, (2,), (-1,)), (0, (2,), (1, 1))):
        same_error(lambda m, lies=lies: m.ones(2).set_(m.ones(3), *lies))


SHARERS: dict[str, Any] = {
    "a part": lambda m: m.arange(18.0).reshape(6, 3)[3:],
    "of other bytes": lambda m: m.arange(18.0)[4:].view(m.int16),
    "of a list": lambda m: m.tensor([float(i) for i in range(20)])[3:],
    "imaginary parts": lambda m: m.ones(6, dtype=m.complex64)[2:].imag,
    "truth values": lambda m: (m.arange(20) > 4)[3:].view(m.uint8),
    "of an array's part": lambda m: m.from_numpy(np.arange(10.0)[2:]),
    "a part of an array's part": lambda m: m.from_numpy(np.arange(10.0)[1::2])[1:],
    "bytes from one on": lambda m: m.frombuffer(bytearray(40), dtype=m.float32, offset=4),
    "shared": lambda m: m.arange(6.0).share_memory_()[2:],
}


@pytest.mark.parametrize("name", SHARERS)
def test_a_view_knows_all_of_its_memory(name: str) -> None:
    def run(m: Any) -> Any:
        t = SHARERS[name](m)
        told = []
        for view in (t, t.detach(), t.data, t[1:], t[1:].detach(), t.view(-1)):
            memory = view.untyped_storage()
            told.append((view.storage_offset(), memory.nbytes(), view.stride()))
            told.append((memory.data_ptr() - t.data_ptr(), view.is_set_to(t), memory.is_shared()))
        return told

    found = [run(m) for m, _ in modules()]
    assert all(f == found[0] for f in found)


def test_views_of_released_memory_are_refused() -> None:
    t = lucid_gpu.arange(18.0).reshape(6, 3)
    kept = t[3:]
    t.untyped_storage().resize_(0)
    assert (t.data_ptr(), kept.shape, kept.storage_offset()) == (0, (3, 3), 9)
    views = (lambda: t[3:], lambda: t[0], lambda: t.t(), lambda: t.unbind())
    for use in (*views, lambda: t.softmax(-1), lambda: t.sort()):
        with pytest.raises(RuntimeError, match="was resized to 0 bytes"):
            use()


@pytest.mark.parametrize("leave", ["data", "set_", "parameter"])
def test_a_tensor_that_took_other_memory_has_left_its_own(leave: str, device: str) -> None:
    """What is computed, written or moved there is not its value, and not the other's."""

    def scenario(m: Any, device: str) -> Any:
        before, other = m.ones(3, device=device) * 2, m.ones(3, device=device) * 5
        view = m.nn.Parameter(before) if leave == "parameter" else before.detach()
        if leave == "set_":
            view.set_(other)
        else:
            view.data = other
        values = [before.tolist(), view.tolist(), other.tolist()]
        before.add_(1)
        before.untyped_storage().resize_(24)
        other.mul_(2)
        return [*values, before.tolist(), view.tolist(), other.tolist()]

    gives([[2.0] * 3, [5.0] * 3, [5.0] * 3, [3.0] * 3, [10.0] * 3, [10.0] * 3], scenario, device)


STORAGE_WRITES: dict[str, Any] = {
    "fill_": lambda m, s: s.fill_(0),
    "an element": lambda m, s: s.__setitem__(3, 64),
    "a part": lambda m, s: s[4:8].fill_(0),
    "copy_": lambda m, s: s.copy_(m.ones(4, device=s.device).untyped_storage()),
    "anew": lambda m, s: (s.resize_(0), s.resize_(16), s.fill_(0)),
}


@pytest.mark.parametrize("write", STORAGE_WRITES)
def test_a_write_through_the_storage_is_not_counted(write: str, device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = m.arange(4.0, device=device).requires_grad_()
        y = (x.exp() * 1.5).sum()
        STORAGE_WRITES[write](m, x.untyped_storage())
        y.backward()
        return [x._version, x.grad.shape == x.shape]

    gives([0, True], scenario, device)


@pytest.mark.parametrize("target", ["result", "plain"])
def test_set_has_no_derivative_and_backward_says_so(target: str, device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        w = m.ones(2, device=device, requires_grad=True)
        x = w * 2 if target == "result" else m.zeros(2, device=device)
        x.set_(w if target == "plain" else m.ones(3, device=device))
        with pytest.raises(RuntimeError, match="derivative for set_ is not implemented"):
            (x * x).sum().backward()
        return [
            "NotImplemented" in x.grad_fn.name(),
            x.requires_grad,
            x.is_leaf,
            x.tolist(),
            w.grad,
        ]

    ones = [1.0] * (3 if target == "result" else 2)
    gives([True, True, False, ones, None], scenario, device)


@pytest.mark.parametrize("offset", [None, 0, 1])
@pytest.mark.parametrize("dim", [0, 1])
def test_each_example_of_a_batch_is_looked_at_from_its_own_start(
    dim: int, offset: int | None, device: str
) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = m.arange(24.0, device=device).reshape(4, 6)

        def looked(row: Any) -> Any:
            return m.as_strided(row, (2, 2), (1, 1), offset)

        if dim:
            x = x.t().contiguous().t()
        batch = m.vmap(looked, dim)(x)
        weights = m.arange(batch.numel(), device=device).reshape(batch.shape) * 1.0
        return batch, m.func.grad(lambda x: (m.vmap(looked, dim)(x) * weights).sum())(x)

    expected = scenario(torch_module(), "cpu")
    gives(expected, scenario, device)


NOTHING: dict[str, Any] = {
    "columns": lambda x: x[:, 4:],
    "rows": lambda x: x[1:1],
    "transposed": lambda x: x.t()[:, 1:1],
    "cut twice": lambda x: x.reshape(2, 3, 2)[:, :, 1][:, 1:1],
    "every second": lambda x: x[3:, ::2],
    "narrowed": lambda x: x.narrow(1, 2, 0),
    "with a new dimension": lambda x: x[:0, None],
    "split": lambda x: x.split([4, 0], 1)[1],
    "beside the diagonal": lambda x: x.diagonal(4),
    "by strides": lambda x: x.as_strided((0, 2), (7, 9)),
}


@pytest.mark.parametrize("name", NOTHING)
def test_a_view_of_nothing_keeps_its_strides(name: str, device: str) -> None:
    expected = NOTHING[name](torch_module().zeros(3, 4)).stride()
    assert NOTHING[name](lucid_gpu.zeros(3, 4, device=device)).stride() == expected


KINDS = "Float Double Half BFloat16 Int Long Short Char Byte Bool ComplexFloat ComplexDouble"


@pytest.mark.parametrize("kind", KINDS.split())
def test_storages_have_types_by_the_names_of_first_programs(kind: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        storage_type = getattr(m, f"{kind}Storage")
        made, other = storage_type([1, 0]), m.LongStorage if kind != "Long" else m.IntStorage
        x = m.zeros(3, dtype=storage_type.dtype)
        return [
            made.tolist(), storage_type().size(), storage_type(3).nbytes() // made.element_size(),
            isinstance(made, storage_type), isinstance(made, other),
            isinstance(x.storage(), storage_type), x.storage_type() is storage_type,
            isinstance(made, m.storage.TypedStorage), isinstance(made, m.UntypedStorage),
            issubclass(storage_type, m.TypedStorage), made.pickle_storage_type(),
            made.type().rpartition(".")[2], made.untyped().type().rpartition(".")[2],
            storage_type(wrap_storage=x.untyped_storage()).data_ptr() == x.data_ptr(),
            storage_type._new_shared(2).is_shared(),
            made.to(device="cpu").data_ptr() == made.data_ptr(),
            str(made.dtype).rpartition(".")[2], m.is_storage(made), made.get_device(),
        ]  # fmt: skip

    name = f"{kind}Storage"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gives(
            [
                [1, 0], 0, 3, True, False, True, True, True, False, True, name, name,
                "UntypedStorage", True, True, True,
                getattr(lucid_gpu, name).dtype.name, True, None,
            ],
            scenario,
        )  # fmt: skip


@pytest.mark.parametrize(
    "named",
    [
        {"byte_order": "little", "dtype": "int16"},
        {"byte_order": "big", "dtype": "int16"},
        {"byte_order": "big", "dtype": "complex64", "offset": 8},
        {"dtype": "uint8", "count": 2, "offset": 3},
        {"byte_order": "native", "dtype": "float32", "offset": 16},
        {"byte_order": "little", "dtype": "int16", "offset": 1},
        {"byte_order": "little", "dtype": "int16", "count": 9},
        {"byte_order": "little", "dtype": "int16", "offset": 17},
        {"byte_order": "middle", "dtype": "int16"},
        {"dtype": "int16"},
    ],
    ids=str,
)
def test_a_storage_of_a_buffer_is_a_copy_of_its_bytes(named: dict[str, Any]) -> None:
    def scenario(m: Any, device: str) -> Any:
        arguments = {**named, "dtype": getattr(m, named["dtype"])}
        buffer = bytearray(range(16))
        try:
            made = m.UntypedStorage.from_buffer(buffer, **arguments)
        except (RuntimeError, ValueError) as error:
            return type(error).__name__
        buffer[0] = buffer[3] = 99
        return [made.tolist(), made.resizable()]

    gives(scenario(torch_module(), "cpu"), scenario)


def test_bytes_of_elements_are_turned_around_in_place() -> None:
    def scenario(m: Any, device: str) -> Any:
        x = m.tensor([1, 256], dtype=m.int32)
        x.untyped_storage().byteswap(m.int32)
        return x

    gives([1 << 24, 1 << 16], scenario)


def test_storage_types_refuse_other_arguments() -> None:
    same_error(lambda m: m.FloatStorage(m.ones(2).untyped_storage()), "FloatStorage")
    same_error(lambda m: m.UntypedStorage(2)[2], "index 2 out of range for storage of size 2")


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_storages_are_made_of_a_numpy_length() -> None:
    def scenario(m: Any, device: str) -> Any:
        length = np.int64(3)
        return [m.FloatStorage(length).size(), m.UntypedStorage(length).nbytes()]

    gives([3, 3], scenario)


def test_tensors_are_made_on_storages() -> None:
    def scenario(m: Any, device: str) -> Any:
        x = m.tensor([1.0, 2.0])
        seen, copied = m.tensor([]).new(x.storage()), m.tensor(x.untyped_storage())
        own = m.FloatTensor(x.storage())
        seen[0] = 5.0
        meta = m.UntypedStorage(3, device="meta").copy_(m.UntypedStorage([1, 2, 3]))
        return [x.tolist(), own.tolist(), copied.shape[0], str(copied.dtype)[-5:], meta.size()]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gives([[5.0, 2.0], [5.0, 2.0], 1, "int64", 3], scenario)


def test_a_storage_type_maps_a_file(tmp_path: Any) -> None:
    def scenario(m: Any, device: str) -> Any:
        np.arange(3, dtype=np.float32).tofile(tmp_path / "numbers")
        mapped = m.FloatStorage.from_file(str(tmp_path / "numbers"), True, 3)
        m.tensor([]).set_(mapped).mul_(2)
        return np.fromfile(tmp_path / "numbers", np.float32).tolist()

    gives([0.0, 2.0, 4.0], scenario)


LAYOUTS: dict[str, Any] = {
    "rows": lambda m, d: m.arange(6.0, device=d).reshape(2, 3),
    "columns": lambda m, d: m.arange(6.0, device=d).reshape(3, 2).t(),
    "gaps": lambda m, d: m.arange(12.0, device=d).reshape(2, 6)[:, ::2],
    "columns with gaps": lambda m, d: m.arange(12.0, device=d).reshape(3, 4)[:, ::2].t(),
}


def looked_at(x: Any, steps: Any) -> Any:
    return x.as_strided((2, 1), steps) ** 2


def written_by_strides(x: Any, steps: Any) -> Any:
    x = x * 1
    x.as_strided((2, 1), steps).mul_(3)
    return x * x


def written_in_rows(x: Any, steps: Any) -> Any:
    x = x * 1
    x.reshape(-1)[1:4].mul_(3)
    return x * x


def tangents_of(m: Any, x: Any) -> Any:
    return m.arange(24.0, device=x.device).reshape(4, 2, 3)


DERIVATIVES: dict[str, Any] = {
    "jvp": lambda m, f, x: m.func.jvp(f, (x,), (tangents_of(m, x)[1],))[1],
    "jvp by columns": lambda m, f, x: m.func.jvp(f, (x,), (tangents_of(m, x).mT.clone().mT[1],))[1],
    "jacfwd": lambda m, f, x: m.func.jacfwd(f)(x),
    "jacrev": lambda m, f, x: m.func.jacrev(f)(x),
    "jacfwd of jacfwd": lambda m, f, x: m.func.jacfwd(m.func.jacfwd(lambda x: f(x * x)))(x),
    "hessian": lambda m, f, x: m.func.hessian(lambda x: (f(x) ** 2).sum())(x),
    "vmap of jvp": lambda m, f, x: m.vmap(lambda t: m.func.jvp(f, (x,), (t,))[1])(
        tangents_of(m, x)
    ),
    "vmap": lambda m, f, x: m.vmap(f)(m.stack([x, x + 1])),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("transform", DERIVATIVES)
@pytest.mark.parametrize("function", [looked_at, written_by_strides, written_in_rows])
def test_derivatives_do_not_depend_on_how_tangents_lie(
    function: Any, transform: str, layout: str, device: str
) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = LAYOUTS[layout](m, device)
        steps = x.stride()[::-1]
        return DERIVATIVES[transform](m, lambda x: function(x, steps), x)

    gives(scenario(torch_module(), "cpu"), scenario, device)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_write_by_strides_stops_the_gradient_of_what_was_there(layout: str, device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = LAYOUTS[layout](m, device).requires_grad_()
        y = x * 2
        y.as_strided((2, 1), y.stride()[::-1]).mul_(3)
        z = x.detach().expand(2, *x.shape)[0].clone().to(device)
        z.as_strided((2,), (2,)).copy_(x[0, :2])
        return m.autograd.grad((y * y).sum() + (z * z).sum(), x)

    gives(scenario(torch_module(), "cpu"), scenario, device)


def test_an_example_of_a_batch_has_no_memory_around_it(device: str) -> None:
    x = lucid_gpu.arange(12.0, device=device).reshape(4, 3)[1:]
    for looked in (lambda t: t.as_strided((2,), (1,), 0), lambda t: t.as_strided((4,), (1,))):
        with pytest.raises(RuntimeError, match="can access memory outside of `tensor`"):
            lucid_gpu.vmap(looked)(x)


def test_elements_that_share_memory_share_tangents_and_gradients(device: str) -> None:
    x = lucid_gpu.arange(3.0, device=device).expand(2, 3)

    def looked(x: Any) -> Any:
        return x.as_strided((2, 2), (0, 1))

    expected = lucid_gpu.func.jacrev(looked)(x)
    assert lucid_gpu.func.jacfwd(looked)(x).tolist() == expected.tolist()
    assert expected[0, 0].tolist() == [[0.5, 0.0, 0.0], [0.5, 0.0, 0.0]]


EMPTY = {
    "rows": lambda x: x[2:2],
    "columns": lambda x: x[:, 3:3],
    "after the end": lambda x: x[4:],
    "columns after the end": lambda x: x[:, 6:],
    "beyond": lambda x: x[9:],
    "backwards": lambda x: x[3:1],
    "of a part": lambda x: x[1:, 2:][1:1],
    "a part of none": lambda x: x[2:2, 1:3],
    "narrow": lambda x: x.narrow(0, 3, 0),
    "transposed": lambda x: x[2:2].t(),
    "then columns": lambda x: x[3:3].t()[2:4],
    "split": lambda x: x.split([1, 0, 3])[1],
    "tensor_split": lambda x: x.tensor_split((1, 1))[1],
    "chosen": lambda x: x.select(0, 2)[2:2],
    "in steps": lambda x: x.flatten()[3:8:2][1:1],
    "expanded": lambda x: x[2:2].expand(3, 0, 6),
    "windows": lambda x: x.unfold(1, 2, 1)[2:2],
    "in another shape": lambda x: x[2:2].reshape(0, 3),
    "permuted": lambda x: x.view(2, 3, 4).permute(2, 0, 1)[2:2],
    "with new dimensions": lambda x: x[None, ..., 2:2],
    "detached": lambda x: x[2:2].detach(),
}


@pytest.mark.parametrize("name", EMPTY)
def test_views_without_elements_begin_where_they_were_cut(name, device):
    if device != "cpu" and name in ("a part of none", "then columns", "transposed"):
        pytest.skip("CuPy does not move within what has no elements")

    def run(m, device):
        for dtype in (m.float32, m.bfloat16, m.bool):
            x = m.arange(24, device=device).to(dtype).reshape(4, 6)
            view = EMPTY[name](x)
            found = [tuple(view.shape), view.storage_offset(), tuple(view.stride())]
            if found[1] < 23:
                found.append(view.as_strided((2,), (1,)))
        return found

    gives(run(lucid_gpu, device), run, device)


def test_a_dimension_inserted_before_others_has_their_length_as_its_stride(device: str) -> None:
    def scenario(m: Any, where: str) -> Any:
        t = m.arange(24.0, device=where).reshape(2, 3, 4)
        inputs = t.mT, t.permute(2, 0, 1), t[:, ::2]
        return [[x.unsqueeze(d).stride() for d in range(3)] for x in inputs]

    turned = [[24, 12, 1, 4], [12, 4, 1, 4], [12, 1, 12, 4]]
    moved = [[4, 1, 12, 4], [1, 24, 12, 4], [1, 12, 12, 4]]
    gives([turned, moved, [[24, 12, 8, 1], [12, 16, 8, 1], [12, 8, 4, 1]]], scenario, device)
