"""In-place writes and the graph: histories through views as in torch, and version errors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import agree, gives, same_error, torch_module

pytestmark = pytest.mark.usefixtures("on_device")

X = np.random.default_rng(4).uniform(0.3, 1.5, (3, 4))


def write_all(m: Any, x: Any) -> Any:
    y = x * 2
    y.mul_(3)
    return y * x


def write_twice(m: Any, x: Any) -> Any:
    y = x * 2
    y += x
    y *= 5
    return y


def write_row(m: Any, x: Any) -> Any:
    y = x * 2
    y[1] = x[0] * 3
    return y * x


def write_row_view(m: Any, x: Any) -> Any:
    y = x * 2
    y[1].mul_(3)
    return y


def write_a_constant(m: Any, x: Any) -> Any:
    y = x * 2
    y[:, 1] = 7
    return y * x


def write_into_a_constant(m: Any, x: Any) -> Any:
    y = m.zeros(3, 4, dtype=m.float64)
    y[0] = x[1]
    y[2].add_(x[0])
    return y * 2


def write_a_view_of_a_view(m: Any, x: Any) -> Any:
    y = x * 2
    y.t()[1:3][0].add_(x[:, 0])
    return y


def write_base_then_read_view(m: Any, x: Any) -> Any:
    y = x * 2
    row = y[1]
    y.mul_(x)
    return row * 3


def write_view_then_read_other_view(m: Any, x: Any) -> Any:
    y = x * 2
    a, b = y[:2], y[1:]
    a.mul_(3)
    return b + 0


def write_disjoint_views(m: Any, x: Any) -> Any:
    y = x * 2
    a, b = y[:1], y[1:]
    a.mul_(3)
    b.add_(x[1:])
    return y


def write_masked(m: Any, x: Any) -> Any:
    y = x * 2
    y[x > 0.8] = 0
    return y * x


def write_with_tensors(m: Any, x: Any) -> Any:
    y = x * 2
    y[[0, 2], [1, 1]] = x[0, :2] * 4
    return y


def copy_into(m: Any, x: Any) -> Any:
    y = m.zeros(3, 4, dtype=m.float64)
    y.copy_(x * x)
    return y * x


def copy_into_a_view(m: Any, x: Any) -> Any:
    y = x * 2
    y[:, :2].copy_(x[:, 2:])
    return y


def fill(m: Any, x: Any) -> Any:
    y = x * 2
    z = y + x
    y.zero_()
    return y + z


def detach_then_write(m: Any, x: Any) -> Any:
    y = x * 2
    return (y.detach().clone() + 1) * y


def loop(m: Any, x: Any) -> Any:
    h = x * 1.5
    for i in range(3):
        h[i] = h[i] * x[i].detach() + x[0] * i
    return h


def relu_in_place(m: Any, x: Any) -> Any:
    y = x - 0.8
    return m.relu_(y) * x if hasattr(m, "relu_") else y.relu_() * x


CASES = [
    write_all, write_twice, write_row, write_row_view, write_a_constant, write_into_a_constant,
    write_a_view_of_a_view, write_base_then_read_view, write_view_then_read_other_view,
    write_disjoint_views, write_masked, write_with_tensors, copy_into, copy_into_a_view, fill,
    detach_then_write, loop, relu_in_place,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_histories_are_as_in_torch(case: Any, device: str) -> None:
    if device == "cpu":
        agree(case, X, device=device)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_histories_of_realized_values_are_the_same(case: Any, device: str) -> None:
    with lucid_gpu.fusion.eager():
        agree(case, X, device=device)


def test_a_views_node_follows_its_base(device: str) -> None:
    x = lucid_gpu.ones(4, device=device, requires_grad=True)
    y = x * 2
    row = y[1:]
    y.mul_(3)
    assert row.requires_grad and row.tolist() == [6.0] * 3
    row.sum().backward()
    assert x.grad.tolist() == [0.0, 6.0, 6.0, 6.0]


def test_a_constant_written_with_a_gradient_requires_grad(device: str) -> None:
    x = lucid_gpu.ones(2, device=device, requires_grad=True)
    y = lucid_gpu.zeros(2, device=device)
    view = y[:1]
    y.add_(x)
    assert y.requires_grad and not y.is_leaf and view.requires_grad
    view.sum().backward()
    assert x.grad.tolist() == [1.0, 0.0]


# --- versions -------------------------------------------------------------------------------------


def saved_input(m: Any, x: Any) -> Any:
    y = x * 2
    z = y * y
    z.sum()
    return z, lambda: y.add_(1)


def saved_output(m: Any, x: Any) -> Any:
    y = x.exp()
    str(y)
    z = y * 1
    return z, lambda: y.mul_(2)


def saved_by_matmul(m: Any, x: Any) -> Any:
    w = m.ones(2, 2)
    return x @ w, lambda: w.add_(1)


def saved_through_a_view(m: Any, x: Any) -> Any:
    y = x * 2
    view = y[1:]
    z = y * y
    str(z)
    return z, lambda: view.zero_()


def saved_leaf(m: Any, x: Any) -> Any:
    def write() -> None:
        with m.no_grad():
            x.add_(1)

    return x * x, write


def saved_constant(m: Any, x: Any) -> Any:
    c = m.ones(2, 2)
    return x * c, lambda: c.__setitem__(0, 5)


def saved_by_a_reduction(m: Any, x: Any) -> Any:
    y = x * 2
    return y.amax(1) * y.prod(1), lambda: y.zero_()


VERSIONS = [
    saved_input, saved_output, saved_by_matmul, saved_through_a_view, saved_leaf, saved_constant,
    saved_by_a_reduction,
]  # fmt: skip
WORDS = "one of the variables needed for gradient computation has been modified by an inplace"


def gradient(m: Any, case: Any, write: bool, realize: bool = False) -> Any:
    x = m.tensor([[0.5, 1.5], [1.0, 2.0]], requires_grad=True)
    z, change = case(m, x)
    if realize:
        z.tolist()
    if write:
        change()
    z.sum().backward()
    return x.grad.tolist()


@pytest.mark.parametrize("case", VERSIONS, ids=lambda c: c.__name__)
def test_a_saved_value_that_was_written_is_refused_or_the_old_one_used(case: Any) -> None:
    """Torch always refuses. Here the old value may still be at hand, and then nothing is wrong."""
    with pytest.raises(RuntimeError, match=WORDS):
        gradient(torch_module(), case, write=True)
    for realize in (False, True):
        expected = gradient(lucid_gpu, case, write=False, realize=realize)
        try:
            got = gradient(lucid_gpu, case, write=True, realize=realize)
        except RuntimeError as error:
            assert WORDS in str(error)
            assert "version" in str(error)
        else:
            assert got == expected


@pytest.mark.parametrize(
    "case",
    [saved_by_matmul, saved_leaf, saved_constant, saved_by_a_reduction],
    ids=lambda c: c.__name__,
)
def test_a_saved_array_that_was_written_is_refused(case: Any) -> None:
    with pytest.raises(RuntimeError, match=WORDS):
        gradient(lucid_gpu, case, write=True)


def not_saved_by_a_sum(m: Any, x: Any) -> Any:
    y = x * 2
    return y + 1, lambda: y.mul_(5)


def not_saved_by_a_constant_factor(m: Any, x: Any) -> Any:
    y = x * 2
    return y * 3, lambda: y.zero_()


def not_saved_output(m: Any, x: Any) -> Any:
    y = x.exp() * 2
    return y, lambda: y.add_(1)


def not_saved_quotient(m: Any, x: Any) -> Any:
    y = (x * 2) / (x + 1)
    return y, lambda: y.mul_(3)


def not_saved_by_a_view(m: Any, x: Any) -> Any:
    y = x * 2
    return y.reshape(4).sum(), lambda: y.zero_()


NOT_SAVED = [
    not_saved_by_a_sum, not_saved_by_a_constant_factor, not_saved_output, not_saved_quotient,
    not_saved_by_a_view,
]  # fmt: skip


@pytest.mark.parametrize("realize", [False, True])
@pytest.mark.parametrize("case", NOT_SAVED, ids=lambda c: c.__name__)
def test_a_value_nobody_saved_may_be_written(case: Any, realize: bool) -> None:
    got, expected = (
        np.array(gradient(m, case, write=True, realize=realize))
        for m in (lucid_gpu, torch_module())
    )
    np.testing.assert_allclose(got, expected, rtol=1e-6)


MISUSE: dict[str, tuple[Any, str]] = {
    "a leaf": (
        lambda m: m.ones(2, requires_grad=True).mul_(2),
        "a leaf Variable that requires grad is being used in an in-place operation",
    ),
    "a view of a leaf": (
        lambda m: [x := m.ones(2, requires_grad=True), x[0].mul_(2)],
        "a view of a leaf Variable that requires grad is being used in an in-place operation",
    ),
    "an element of a leaf": (
        lambda m: m.ones(2, requires_grad=True).__setitem__(0, 1.0),
        "a leaf Variable that requires grad",
    ),
    "out of what requires grad": (
        lambda m: m.exp(m.ones(2, requires_grad=True), out=m.zeros(2)),
        "don't support automatic differentiation",
    ),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name: str) -> None:
    function, words = MISUSE[name]
    same_error(function, words)


def test_a_refused_write_changes_nothing(device: str) -> None:
    x = lucid_gpu.ones(2, device=device, requires_grad=True)
    for write in (lambda: x.mul_(2), lambda: x[0].mul_(2), lambda: x.__setitem__(0, 5)):
        with pytest.raises(RuntimeError):
            write()
    assert x.tolist() == [1.0, 1.0] and x._version == 0


def test_a_flip_that_moves_nothing_is_a_copy_all_the_same(device: str) -> None:
    x = lucid_gpu.ones(4, 1, device=device)
    x.flip(1).detach().mul_(2)
    assert x.tolist() == [[1.0]] * 4


def test_the_gradient_of_an_assigned_slice_has_memory_of_its_own(device: str) -> None:
    x = lucid_gpu.zeros(4, device=device)
    value = lucid_gpu.ones(2, device=device, requires_grad=True)
    x[2:] = value
    cotangent = lucid_gpu.ones(4, device=device)
    x.backward(cotangent)
    other = cotangent.detach()
    other.mul_(5)
    assert cotangent.tolist() == [5.0] * 4
    assert value.grad.tolist() == [1.0, 1.0]


def test_a_copy_of_an_expanded_value_has_elements_of_its_own(device: str) -> None:
    x = lucid_gpu.zeros(3, device=device)
    x.copy_(lucid_gpu.tensor(5.0, device=device).expand(3))
    x[0].mul_(2)
    assert x.tolist() == [10.0, 5.0, 5.0]


def test_a_pending_reader_of_a_copy_keeps_what_it_read(device: str) -> None:
    x = lucid_gpu.tensor([1.0, 2.0, 3.0], device=device)
    x.copy_(lucid_gpu.tensor([4.0, 5.0, 6.0], device=device))
    view = x[:2]
    pending = x * 2
    view.fill_(0.0)
    assert pending.tolist() == [8.0, 10.0, 12.0]
    assert x.tolist() == [0.0, 0.0, 6.0]


REPLACED: dict[str, Any] = {
    "copy_": lambda m, x, y: x.copy_(y),
    "copy_ of one element": lambda m, x, y: x.copy_(y[0]),
    "copy_ of another type": lambda m, x, y: x.copy_(y.double()),
    "copy_ of a constant": lambda m, x, y: x.copy_(y.detach()),
    "fill_": lambda m, x, y: x.fill_(y[0]),
    "fill_ of a number": lambda m, x, y: x.fill_(2.0),
    "zero_": lambda m, x, y: x.zero_(),
    "x[...] =": lambda m, x, y: x.__setitem__(..., y),
    "x[:] =": lambda m, x, y: x.__setitem__(slice(None), y),
    "x[mask] =": lambda m, x, y: x.__setitem__(m.ones_like(x).bool(), y),
    "masked_fill_": lambda m, x, y: x.masked_fill_(m.ones_like(x).bool(), y[0]),
    "index_copy_": lambda m, x, y: x.index_copy_(0, m.arange(3, device=x.device), y),
    "uniform_": lambda m, x, y: x.uniform_(),
    "twice": lambda m, x, y: (x.copy_(y), x.copy_(y * 2)),
    "a view's copy_": lambda m, x, y: x.view(1, 3).copy_(y),
    "under no_grad": lambda m, x, y: m.no_grad()(x.copy_)(y),
}


@pytest.mark.parametrize("name", REPLACED)
@pytest.mark.parametrize("realized", [False, True])
def test_what_was_replaced_has_a_gradient_of_zero(name: str, realized: bool, device: str) -> None:
    """Zeros, as in torch 2.13, and not None; what was written has its own."""

    def scenario(module: Any, where: str) -> Any:
        old = module.tensor([1.0, 2.0, 3.0], device=where).requires_grad_()
        new = module.tensor([4.0, 5.0, 6.0], device=where).requires_grad_()
        x = old * 2
        if realized:
            x.tolist()
        REPLACED[name](module, x, new)
        (x * 3).sum().backward()
        return [old.grad, new.grad]

    spread = {"copy_ of one element": [9.0, 0.0, 0.0], "twice": [6.0] * 3}
    spread |= dict.fromkeys(("fill_", "masked_fill_"), [9.0, 0.0, 0.0])
    constant = ("copy_ of a constant", "fill_ of a number", "zero_", "uniform_", "under no_grad")
    written = None if name in constant else spread.get(name, [3.0] * 3)
    gives([[6.0 if name == "under no_grad" else 0.0] * 3, written], scenario, device)


@pytest.mark.parametrize("at", [(), (0,), (0, 1)], ids=["all", "a row", "a part"])
def test_real_and_imaginary_parts_are_written_as_in_torch(at: Any) -> None:
    def gradient(m: Any) -> Any:
        x = m.tensor([1 + 2j, 3 - 1j], requires_grad=True)
        y = x * 2
        m.view_as_real(y)[at].mul_(3)
        (y.abs() ** 2).sum().backward()
        return np.array(x.grad.tolist())

    np.testing.assert_allclose(gradient(lucid_gpu), gradient(torch_module()), rtol=1e-6)


IN_PART: dict[str, Any] = {
    "masked_fill_": lambda m, x, where: x.masked_fill_(m.eye(3, device=where).bool(), 7.0),
    "index_fill_": lambda m, x, where: x.index_fill_(1, m.tensor([0], device=where), 3.0),
    "fill_diagonal_": lambda m, x, where: x.fill_diagonal_(5.0),
    "tril_": lambda m, x, where: x.tril_(),
    "triu_": lambda m, x, where: x.triu_(1),
    "index_put_": lambda m, x, where: x.__setitem__(
        (m.tensor([0, 1], device=where), m.tensor([0, 1], device=where)), m.ones(2, device=where)
    ),
}


@pytest.mark.parametrize("shape", [(1, 3), (3, 1), (1, 1)], ids=str)
@pytest.mark.parametrize("name", IN_PART)
def test_writes_to_parts_of_expanded_tensors_reach_what_they_show(
    name: str, shape: tuple[int, int], device: str
) -> None:
    torch_module()
    found = []
    for m, where in ((lucid_gpu, device), (torch_module(), "cpu")):
        base = m.tensor([4.0, float("nan"), 6.0], device=where)[: shape[0] * shape[1]].clone()
        x = base.view(*shape).expand(3, 3)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            IN_PART[name](m, x, where)
        told = [str(w.message).partition(" (Triggered")[0] for w in caught]
        found.append((str(base.tolist()), str(x.tolist()), base._version, told))
    assert found[0] == found[1]


@pytest.mark.parametrize("dtype", ["int64", "int32", "float16", "float64", "bool"])
@pytest.mark.parametrize(
    ("refused", "op"),
    [
        (True, lambda m, v, i: v * i),
        (True, lambda m, v, i: i / v),
        (True, lambda m, v, i: m.atan2(v, i)),
        (True, lambda m, v, i: ((v + 1) * i).exp() * 2),
        (False, lambda m, v, i: v + i),
        (False, lambda m, v, i: v * i.float()),
        (False, lambda m, v, i: v * i.to(m.complex64)),
    ],
)
def test_an_operand_of_another_type_that_was_written(refused: bool, op: Any, dtype: str) -> None:
    """The op saves the operand itself, not what it converts it to."""
    for m in (lucid_gpu, torch_module()):
        v = m.tensor([0.5, 1.5], requires_grad=True)
        i = m.tensor([1, 1]).to(getattr(m, dtype)).clone()
        i.tolist()
        y = op(m, v, i).abs().sum()
        i.fill_(0)
        if refused:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.backward()
        else:
            y.backward()
            assert v.grad.tolist() == [1, 1]


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
@pytest.mark.parametrize(
    "op, result",
    [
        (lambda m, x, y: m.exp(x * 0, out=y), [1.0, 1.0]),
        (lambda m, x, y: m.add(x, 1, out=y), [3.0, 4.0]),
        (lambda m, x, y: m.sort(x, out=(y, m.zeros(2, dtype=m.int64))), [2.0, 3.0]),
        (lambda m, x, y: m.mv(m.ones(2, 2), x.detach(), out=y), [5.0, 5.0]),
    ],
    ids=["exp", "add", "sort", "mv"],
)
def test_out_takes_a_tensor_that_requires_grad_where_nothing_is_recorded(
    op: Any, result: list[float], mode: str, device: str
) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = m.tensor([2.0, 3.0], device=device, requires_grad=True)
        leaf = m.zeros(2, device=device, requires_grad=True)
        row = (leaf * 5)[:]
        read = (leaf * leaf).sum()
        with getattr(m, mode)():
            op(m, x, leaf)
            op(m, x, row)
        leaf_written = [leaf.requires_grad, leaf.is_leaf, leaf._version, leaf.tolist()]
        (row * row).sum().backward()
        try:
            read.backward()
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            return [*leaf_written, row.tolist(), leaf.grad]

    gradient = [10 * r for r in result]
    gives([True, True, 1, result, result, gradient], scenario, device)


def test_many_recorded_writes_do_not_make_the_next_one_slower(device: str) -> None:
    y = lucid_gpu.ones(1, device=device, requires_grad=True).clone()
    for _ in range(200):
        y += y * 0.001
    assert len(y._memory().cells) < 20  # each write asks all of them
    y.backward()


NORMS: dict[str, Any] = {
    "group_norm": lambda x, w, b: lucid_gpu.nn.functional.group_norm(x, 2, w, b),
    "batch_norm": lambda x, w, b: lucid_gpu.nn.functional.batch_norm(
        x, None, None, w, b, training=True
    ),
}


@pytest.mark.parametrize("name", NORMS)
def test_a_pending_gradient_that_read_a_view_keeps_what_it_read(name: str, device: str) -> None:
    """The weight is read as a row, by a view whose leaf is gone once the values are stored."""
    found = []
    for early in (True, False):
        lucid_gpu.manual_seed(1)
        w = lucid_gpu.ones(6, device=device, requires_grad=True)
        b = lucid_gpu.zeros(6, device=device, requires_grad=True)
        x = lucid_gpu.randn(4, 6, device=device, requires_grad=True)
        y = x.relu() * 0.5
        z = NORMS[name](y, w, b)
        rows = (y * z).sum(1)
        z.argmax(1)
        ((z * z * z).sum() + rows.square().sum()).backward()
        if early:
            x.grad.tolist()
        lucid_gpu.optim.SGD([w, b], lr=0.05).step()
        found.append(x.grad.tolist())
    for one, other in zip(*found, strict=True):
        assert one == pytest.approx(other, 1e-4, 1e-5)


_TURNED: dict[str, Any] = {
    "t_": lambda y: y.t_(),
    "transpose_": lambda y: y.transpose_(0, 1),
    "unsqueeze_": lambda y: y.unsqueeze_(0),
    "twice": lambda y: y.t_().unsqueeze_(1),
}
_SEEN: dict[str, Any] = {
    "rows": lambda m, y: y[1:],
    "a column": lambda m, y: y[:, 1],
    "transposed": lambda m, y: y.t(),
    "flat": lambda m, y: y.view(-1),
    "parts of numbers": lambda m, y: m.view_as_real(m.complex(y, y * 2))[:, 1, 0],
}


@pytest.mark.parametrize("written", ["the view", "the base"])
@pytest.mark.parametrize("seen", _SEEN)
@pytest.mark.parametrize("turned", _TURNED)
def test_a_view_of_what_was_turned_in_place_is_written(
    turned: str, seen: str, written: str, device: str
) -> None:
    def case(m: Any, x: Any) -> Any:
        y = x * 2
        view = _SEEN[seen](m, y)
        base = y if view._base is y else view._base
        _TURNED[turned](base)
        one = view if written == "the view" else base
        one.mul_(one.detach() + 1)
        base = m.view_as_real(base) if base.is_complex() else base
        return (base * base).sum() + (view * view * 0.5).sum()

    agree(case, X, device=device)


@pytest.mark.parametrize("parts", [lambda y: y.unbind(0), lambda y: y.split(1), lambda y: y[:2]])
@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
def test_the_base_of_parts_that_retain_their_gradient_is_written(
    parts: Any, again: bool, device: str
) -> None:
    def scenario(m: Any, d: str) -> Any:
        x = m.tensor([1.0, 2.0, 3.0], device=d, requires_grad=True)
        y = x * 2
        part = parts(y)[1]
        part.retain_grad()
        y.mul_(3)
        if again:
            y[0] = 1
        (y * m.tensor([1.0, 2.0, 3.0], device=d)).sum().backward()
        return x.grad

    gives([0.0 if again else 6.0, 12.0, 18.0], scenario, device)
