"""The tensor object: Python's protocols, in-place writes and versions, sharing, laziness."""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import modules, same_error, torch_module


def pending(t: Any) -> bool:
    return not t._expr.program.is_load


# --- laziness -------------------------------------------------------------------------------------


def test_ops_wait_until_their_bytes_are_needed(device: str) -> None:
    x = lucid_gpu.ones(3, device=device)
    for use in (
        lambda t: t.tolist(),
        lambda t: t.cpu().numpy(),
        lambda t: repr(t),
        lambda t: bool((t > 0).all()),
        lambda t: t.sum().item(),
        lambda t: t[0],
        lambda t: t.reshape(1, 3),
        lambda t: t @ t,
        lambda t: np.asarray(t.cpu()),
        lambda t: list(t),
        lambda t: copy.deepcopy(t),
        lambda t: pickle.dumps(t),
    ):
        y = x.exp() * 2
        assert pending(y)
        use(y)
    assert pending(x.exp())


def test_a_wrong_call_raises_on_its_own_line(device: str) -> None:
    x = lucid_gpu.ones(3, device=device)
    with pytest.raises(RuntimeError, match="must match the size"):
        x.exp() + lucid_gpu.ones(4, device=device)
    with pytest.raises(NotImplementedError):
        x.exp() & 1


def test_shape_type_and_device_are_known_without_computing(device: str) -> None:
    y = lucid_gpu.ones(3, 1, device=device) * lucid_gpu.ones(
        4, dtype=lucid_gpu.float64, device=device
    )
    assert y.shape == (3, 4) and y.dtype is lucid_gpu.float64 and y.device.type == device
    assert (y.ndim, y.dim(), y.numel(), y.size(), y.size(-1)) == (2, 2, 12, (3, 4), 4)
    assert (y.nbytes, y.itemsize, y.element_size()) == (96, 8, 8)
    assert y.is_floating_point() and not y.is_complex() and y.is_cuda == (device == "cuda")
    assert len(y) == 3
    assert pending(y)


def test_two_threads_may_realize_the_same_value(device: str) -> None:
    for _ in range(20):
        x = lucid_gpu.ones(1000, device=device)
        y = (x + 1).exp()
        found: list[float] = []
        barrier = threading.Barrier(4)

        def read(y: Any = y, found: Any = found, barrier: Any = barrier) -> None:
            barrier.wait()
            found.append(float(y.detach().cpu().numpy(force=True).sum()))

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [found[0]] * 4


def test_a_constant_takes_no_memory_until_it_is_read(device: str) -> None:
    x = lucid_gpu.ones(5, device=device, requires_grad=True)
    x.sum().backward()
    assert pending(x.grad)
    assert x.grad.tolist() == [1.0] * 5


# --- protocols ------------------------------------------------------------------------------------


def test_numbers_come_out(device: str) -> None:
    t = lucid_gpu.tensor([[2.5]], device=device)
    assert t.item() == float(t) == 2.5
    assert int(t) == 2 and complex(t) == 2.5 and bool(t)
    assert type(lucid_gpu.tensor(3, device=device).item()) is int
    assert type(lucid_gpu.tensor(True, device=device).item()) is bool
    assert type(lucid_gpu.tensor(1j, device=device).item()) is complex
    assert type(lucid_gpu.tensor(1, dtype=lucid_gpu.bfloat16, device=device).item()) is float
    assert [10, 20, 30][lucid_gpu.tensor(1, device=device)] == 20
    assert list(range(lucid_gpu.tensor(3, device=device))) == [0, 1, 2]


@pytest.mark.parametrize(
    "d", ["bool", "int8", "int64", "float16", "bfloat16", "float64", "complex64"]
)
def test_tolist_gives_nested_numbers(d: str, device: str) -> None:
    torch = torch_module()
    values = [[1.5, 0.0], [2.0, -1.0]]
    got = lucid_gpu.tensor(values, device=device).to(getattr(lucid_gpu, d)).tolist()
    expected = torch.tensor(values).to(getattr(torch, d)).tolist()
    assert got == expected
    assert type(got[0][0]) is type(expected[0][0])


def test_numpy_shares_memory_on_the_cpu() -> None:
    t = lucid_gpu.zeros(2, 3)
    array = t.numpy()
    array[0, 1] = 5
    assert t[0, 1].item() == 5
    t[1] = 7
    assert array[1].tolist() == [7, 7, 7]
    assert np.asarray(t).tolist() == t.tolist()
    assert np.array(t, dtype=np.float64).dtype == np.float64
    pending_value = t + 1
    assert pending_value.numpy().tolist() == [[1, 6, 1], [8, 8, 8]]


def test_numpy_of_what_requires_grad_must_be_detached() -> None:
    t = lucid_gpu.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"Use tensor.detach\(\).numpy\(\) instead"):
        t.numpy()
    assert t.detach().numpy().tolist() == t.numpy(force=True).tolist() == [1.0, 1.0]


def test_equality_is_elementwise_and_hashing_by_identity(device: str) -> None:
    a, b = lucid_gpu.ones(2, device=device), lucid_gpu.ones(2, device=device)
    assert (a == b).tolist() == [True, True]
    assert len({a, b}) == 2
    assert a.equal(b) and lucid_gpu.equal(a, b)
    assert not a.equal(lucid_gpu.ones(3, device=device))
    assert lucid_gpu.allclose(a, b + 1e-7)
    assert not lucid_gpu.allclose(a, b + 1)
    nan = lucid_gpu.tensor([float("nan")], device=device)
    assert not lucid_gpu.allclose(nan, nan)
    assert lucid_gpu.allclose(nan, nan, equal_nan=True)


def test_deep_copies_are_apart(device: str) -> None:
    x = lucid_gpu.ones(2, device=device, requires_grad=True)
    (x * 3).sum().backward()
    x.note = "mine"
    other = copy.deepcopy(x)
    with lucid_gpu.no_grad():
        x += 1
        x.grad.zero_()
    assert other.requires_grad and other.is_leaf
    assert (other.tolist(), other.grad.tolist()) == ([1.0, 1.0], [3.0, 3.0])
    assert other.note == "mine"
    pair = copy.deepcopy([x, x])
    assert pair[0] is pair[1]
    with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
        copy.deepcopy(x * 2)


@pytest.mark.parametrize("d", ["float32", "bfloat16", "bool", "complex64", "int64"])
def test_pickling_keeps_value_type_and_marks(d: str, device: str) -> None:
    x = lucid_gpu.tensor([[1, 0, 1]], device=device).to(getattr(lucid_gpu, d)).t()
    other = pickle.loads(pickle.dumps(x))
    assert (other.tolist(), other.dtype, other.device) == (x.tolist(), x.dtype, x.device)
    if x.is_floating_point():
        assert pickle.loads(pickle.dumps(x.detach().requires_grad_())).requires_grad
        other = pickle.loads(pickle.dumps(x.detach().requires_grad_() * 2))  # without its history
        assert other.is_leaf and other.requires_grad


def test_size_is_a_tuple_that_prints_as_torchs() -> None:
    size = lucid_gpu.ones(2, 3).shape
    assert size == (2, 3) and isinstance(size, tuple) and size.numel() == 6
    assert repr(size) == "lucid_gpu.Size([2, 3])"
    assert lucid_gpu.zeros(size).shape == size


@pytest.mark.parametrize(
    "part",
    [
        lambda s: s[1:],
        lambda s: s[:-1],
        lambda s: s + (4,),
        lambda s: (4,) + s,
        lambda s: s * 2,
        lambda s: 2 * s,
        lambda s: s[-1],
    ],
)
def test_parts_of_sizes_are_sizes(part: Any) -> None:
    for module, _ in modules():
        found, wanted = part(module.ones(2, 3, 5).shape), part((2, 3, 5))
        assert found == wanted
        assert type(found) is (module.Size if isinstance(wanted, tuple) else int)


# --- writing in place -----------------------------------------------------------------------------


def test_a_reader_keeps_the_value_it_was_made_with(device: str) -> None:
    for write in (
        lambda t: t.add_(1),
        lambda t: t.zero_(),
        lambda t: t.fill_(3),
        lambda t: t.copy_(lucid_gpu.zeros(3, device=device)),
        lambda t: t.__setitem__(0, 9),
        lambda t: t[1:].mul_(5),
        lambda t: t.detach().sub_(2),
        lambda t: t.uniform_(),
        lambda t: t.view(3, 1).neg_(),
    ):
        x = lucid_gpu.tensor([1.0, 2.0, 3.0], device=device)
        y = x * 2
        z = y + x
        write(x)
        assert y.tolist() == [2.0, 4.0, 6.0]
        assert z.tolist() == [3.0, 6.0, 9.0]


def test_every_write_counts_and_reads_do_not(device: str) -> None:
    x = lucid_gpu.ones(3, device=device)
    assert x._version == 0
    x + 1
    x.tolist()
    x[0]
    assert x._version == 0
    for count, write in enumerate(
        (
            lambda t: t.add_(1),
            lambda t: t.__setitem__(0, 1),
            lambda t: t[0].zero_(),
            lambda t: t.detach().mul_(2),
            lambda t: t.exp_(),
            lambda t: t.view(3).fill_(1),
        ),
        start=1,
    ):
        write(x)
        assert x._version == count
        assert x[1:]._version == x.detach()._version == count


def test_writing_under_no_grad_counts_too(device: str) -> None:
    x = lucid_gpu.ones(3, device=device, requires_grad=True)
    with lucid_gpu.no_grad():
        x.add_(1)
    assert x._version == 1
    assert x.is_leaf and x.requires_grad
    assert x.tolist() == [2.0] * 3


def test_in_place_methods_return_their_tensor(device: str) -> None:
    x = lucid_gpu.ones(3, device=device)
    for name, arguments in (
        ("add_", (1,)), ("clamp_", (0, 1)), ("exp_", ()), ("zero_", ()), ("fill_", (2,)),
        ("copy_", (x + 1,)), ("lerp_", (x, 0.5)), ("masked_fill_", (x > 0, 1)),
        ("requires_grad_", (False,)), ("detach_", ()),
    ):  # fmt: skip
        assert getattr(x, name)(*arguments) is x


def test_copying_converts_and_broadcasts(device: str) -> None:
    x = lucid_gpu.zeros(2, 3, device=device)
    assert x.copy_(lucid_gpu.tensor([1, 2, 3])).tolist() == [[1.0, 2.0, 3.0]] * 2
    row = lucid_gpu.ones(3, device=device)
    x.copy_(row)
    row += 1
    assert x.tolist() == [[1.0] * 3] * 2
    x.copy_(x * 2 + row)
    assert x.tolist() == [[4.0] * 3] * 2
    with pytest.raises(RuntimeError, match="must match|broadcast"):
        x.copy_(lucid_gpu.ones(4, device=device))


def test_copying_from_a_viewed_tensor_leaves_its_views_in_place(device: str) -> None:
    for view_first in (True, False):
        x, y = lucid_gpu.ones(2, 2, device=device), lucid_gpu.zeros(2, 2, device=device)
        row = x[0] if view_first else None
        y.copy_(x)
        row = x[0] if row is None else row
        x.add_(1)
        assert row.tolist() == [2.0, 2.0]
        assert y.tolist() == [[1.0, 1.0]] * 2
        y[0].add_(5)
        assert (y[0].tolist(), row.tolist()) == ([6.0, 6.0], [2.0, 2.0])
    row = x[0]
    x.copy_(x)
    x.mul_(3)
    assert row.tolist() == [6.0, 6.0]


def test_copying_from_memory_that_others_write_takes_it_as_it_is() -> None:
    x, y = lucid_gpu.ones(2), lucid_gpu.zeros(2)
    array = x.numpy()
    y.copy_(x)
    array[...] = 9
    assert y.tolist() == [1.0, 1.0]


def test_overlapping_reads_and_writes_act_as_if_the_value_came_first(device: str) -> None:
    x = lucid_gpu.arange(6.0, device=device)
    x[1:] = x[:-1]
    assert x.tolist() == [0, 0, 1, 2, 3, 4]
    x[:3].add_(x[2:5])
    assert x.tolist() == [1, 2, 4, 2, 3, 4]
    m = lucid_gpu.arange(4.0, device=device).reshape(2, 2)
    m.copy_(m.t())
    assert m.tolist() == [[0, 2], [1, 3]]


def test_views_of_views_write_the_same_memory(device: str) -> None:
    x = lucid_gpu.zeros(4, 4, device=device)
    x[1:].t()[2][1:].unsqueeze(0).add_(1)
    assert x.sum().item() == 2
    assert x[2:, 2].tolist() == [1, 1]


def test_a_pending_value_that_was_viewed_stays_one_memory(device: str) -> None:
    x = lucid_gpu.ones(2, 2, device=device)
    y = x + 1
    row = y[0]
    y += 5
    assert row.tolist() == [7.0, 7.0]
    row.zero_()
    assert y.tolist() == [[0.0, 0.0], [7.0, 7.0]]


def test_clone_and_alias_are_not_written_with_their_source(device: str) -> None:
    for make in (
        lambda t: t.clone(),
        lambda t: t * 1,
        lambda t: t + 0,
        lambda t: t.double().float(),
    ):
        x = lucid_gpu.ones(3, device=device)
        other = make(x)
        x.add_(1)
        assert other.tolist() == [1.0] * 3
        other.add_(5)
        assert x.tolist() == [2.0] * 3
        x[0] = 9
        assert other.tolist() == [6.0] * 3


def test_a_multiplication_by_one_is_an_op(device: str) -> None:
    x = lucid_gpu.ones(2, device=device, requires_grad=True)
    for y in (x * 1, 1 * x, x / 1, x**1):
        assert not y.is_leaf
        assert y.grad_fn is not None


def test_setting_data_replaces_value_and_keeps_marks(device: str) -> None:
    x = lucid_gpu.ones(2, device=device, requires_grad=True)
    x.data = lucid_gpu.zeros(3, device=device)
    assert x.requires_grad and x.is_leaf and x.tolist() == [0.0] * 3
    x.data.add_(1)
    assert x.tolist() == [1.0] * 3
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0] * 3


# --- whose memory is it ---------------------------------------------------------------------------


def test_a_pending_gradient_is_spared_writes_through_views(device: str) -> None:
    x = lucid_gpu.ones(3, device=device, requires_grad=True)
    y = x.exp()
    y.tolist()
    view = y[1:]
    y.sum().backward()
    with lucid_gpu.no_grad():
        view.zero_()  # y is what the gradient reads
    np.testing.assert_allclose(x.grad.tolist(), [np.e] * 3, rtol=1e-6)


def test_a_gradient_taken_from_a_cotangent_is_spared_its_writes(device: str) -> None:
    for view_first in (True, False):
        x = lucid_gpu.ones(2, device=device, requires_grad=True)
        g = lucid_gpu.ones(2, device=device)
        view = g[:1] if view_first else None
        (x + 0).backward(g)
        view = g[:1] if view is None else view
        view.zero_()
        assert x.grad.tolist() == [1.0, 1.0]
        x.grad[1] = 7
        assert g.tolist() == [0.0, 1.0]
        g.add_(1)
        assert (view.tolist(), x.grad.tolist()) == ([1.0], [1.0, 7.0])


def test_a_gradient_returned_for_a_cotangent_is_not_its_memory(device: str) -> None:
    x = lucid_gpu.ones(2, device=device, requires_grad=True)
    g = lucid_gpu.ones(2, device=device)
    view = g[:1]
    (by_x,) = lucid_gpu.autograd.grad(x + 0, x, g)
    by_x[0] = 5
    assert (g.tolist(), view.tolist(), by_x.tolist()) == ([1.0, 1.0], [1.0], [5.0, 1.0])
    g.mul_(3)
    assert view.tolist() == [3.0]


def test_a_cotangent_that_numpy_refills_was_taken_as_it_was() -> None:
    x = lucid_gpu.ones(2, requires_grad=True)
    buffer = np.ones(2, np.float32)
    (x * 2).backward(lucid_gpu.from_numpy(buffer))
    (x + 1).backward(lucid_gpu.from_numpy(buffer))
    buffer[...] = 100
    assert x.grad.tolist() == [3.0, 3.0]


def test_readers_from_before_a_mark_are_spared_writes_after_it(device: str) -> None:
    x = lucid_gpu.ones(3, device=device)
    y = x + 1
    x.requires_grad_()
    z = x * 2
    x.detach()[1:].zero_()
    assert (y.tolist(), z.tolist()) == ([2.0] * 3, [2.0] * 3)
    x.requires_grad_(False)
    y = x + 1
    x[0] = 5
    assert y.tolist() == [2.0, 1.0, 1.0]


def test_a_copy_that_became_a_parameter_is_apart_from_its_source(device: str) -> None:
    x, p = lucid_gpu.ones(3, device=device), lucid_gpu.zeros(3, device=device)
    p.copy_(x)
    p.requires_grad_()
    with lucid_gpu.no_grad():
        p[0] = 5
        p.detach().add_(1)
    assert (x.tolist(), p.tolist()) == ([1.0] * 3, [6.0, 2.0, 2.0])


def test_a_chain_of_copies_is_apart(device: str) -> None:
    a = lucid_gpu.full((2,), 3.0, device=device) + 0
    view = a.reshape(2, 1)
    b, c = lucid_gpu.zeros(2, device=device), lucid_gpu.zeros(2, device=device)
    b.copy_(a)
    c.copy_(b)
    b.mul_(b)
    a.mul_(10)
    c[0] = 1
    assert [t.tolist() for t in (a, b, c)] == [[30.0] * 2, [9.0] * 2, [1.0, 3.0]]
    assert view.tolist() == [[30.0], [30.0]]


def test_a_strided_reader_keeps_its_layout(device: str) -> None:
    for view in (lambda t: t.t(), lambda t: t[:, ::2], lambda t: t[1].expand(3, 4)):
        x = lucid_gpu.arange(12.0, device=device).reshape(3, 4)
        strided = view(x)
        before = strided.tolist()
        y = strided + 0.5
        x.zero_()
        assert (lucid_gpu.tensor(before) + 0.5).tolist() == y.tolist()
        assert strided.sum().item() == 0


# --- marks ----------------------------------------------------------------------------------------


def test_detach_shares_memory_but_no_history(device: str) -> None:
    x = lucid_gpu.ones(2, device=device, requires_grad=True)
    y = x * 2
    d = y.detach()
    assert not d.requires_grad and d.is_leaf and d.grad_fn is None
    d.zero_()
    assert y.tolist() == [0.0, 0.0]
    y.detach_()
    assert not y.requires_grad


def test_requires_grad_can_be_set_on_leaves_only(device: str) -> None:
    x = lucid_gpu.ones(2, device=device)
    x.requires_grad = True
    assert x.requires_grad
    x.requires_grad_(False)
    assert not x.requires_grad
    y = x.requires_grad_() * 2
    with pytest.raises(RuntimeError, match="you can only change requires_grad flags of leaf"):
        y.requires_grad_(False)
    assert y.requires_grad_() is y


def test_a_pending_value_can_become_a_leaf(device: str) -> None:
    y = lucid_gpu.ones(2, device=device) * 3
    y.requires_grad_()
    assert y.is_leaf
    (y * y).sum().backward()
    assert y.grad.tolist() == [6.0, 6.0]


# --- memory ---------------------------------------------------------------------------------------


def test_values_die_with_their_last_user(device: str, without_gc: None) -> None:
    x = lucid_gpu.ones(1000, device=device)
    y = x + 1
    cell = weakref.ref(x._expr.leaves[0])
    del x
    assert cell() is not None  # y reads it
    y.tolist()
    assert cell() is None  # y is computed


def test_a_view_keeps_its_base(device: str) -> None:
    x = lucid_gpu.ones(1000, device=device)
    reference = weakref.ref(x)
    row = x[:3]
    del x
    assert reference() is row._base
    alone = row.detach()
    del row
    assert reference() is None
    row = alone
    assert row.tolist() == [1.0] * 3


MISUSE: dict[str, tuple[Any, str]] = {
    "item of several": (
        lambda m: m.ones(2).item(),
        "a Tensor with 2 elements cannot be converted to Scalar",
    ),
    "truth of several": (
        lambda m: bool(m.ones(2)),
        "Boolean value of Tensor with more than one value is ambiguous",
    ),
    "truth of none": (lambda m: bool(m.zeros(0)), "with no values is ambiguous"),
    "float of several": (lambda m: float(m.ones(2)), "only one element tensors can be converted"),
    "copy of a misfit": (
        lambda m: m.ones(2, 3).copy_(m.ones(4)),
        "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1",
    ),
    "copy of too many": (lambda m: m.ones(3).copy_(m.ones(2, 3)), ""),
    "fill with several": (
        lambda m: m.ones(2).fill_(m.ones(2)),
        "fill_ only supports 0-dimension value tensor but got tensor with 1 dimensions",
    ),
    "float as index": (lambda m: [1, 2][m.ones(1)], "only integer tensors of a single element"),
    "integers that want gradients": (
        lambda m: m.arange(2).requires_grad_(),
        "floating point dtype can require gradients",
    ),
    "another shape as grad": (
        lambda m: setattr(m.ones(2, requires_grad=True), "grad", m.ones(3)),
        "attempting to assign a gradient of size",
    ),
    "another type as grad": (
        lambda m: setattr(m.ones(2, requires_grad=True), "grad", m.ones(2).double()),
        "attempting to assign a gradient with dtype",
    ),
    "a number as grad": (
        lambda m: setattr(m.ones(2, requires_grad=True), "grad", 3),
        "assigned grad",
    ),
    "hook on a constant": (
        lambda m: m.ones(1).register_hook(print),
        "cannot register a hook on a tensor that doesn't require gradient",
    ),
    "retain_grad of a constant": (
        lambda m: m.ones(1).retain_grad(),
        "can't retain_grad on Tensor that has requires_grad=False",
    ),
    "unknown argument of to": (lambda m: m.ones(1).to(color="red"), "color"),
    "unknown device": (lambda m: m.ones(1).to("tpu9"), ""),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name: str) -> None:
    function, words = MISUSE[name]
    same_error(function, words)


def test_a_device_that_is_not_there_says_what_mends_it(device: str) -> None:
    if device == "cuda" or lucid_gpu.cuda.is_available():
        pytest.skip("there is a GPU")
    for use in (lambda: lucid_gpu.ones(1, device="cuda"), lambda: lucid_gpu.ones(1).cuda()):
        with pytest.raises(RuntimeError, match="install|GPU|driver"):
            use()


def test_mixed_devices_are_named(device: str) -> None:
    if device == "cpu":
        pytest.skip("needs two devices")
    with pytest.raises(RuntimeError, match="same device.*cpu and cuda|same device.*cuda.*cpu"):
        lucid_gpu.ones(2, device=device) + lucid_gpu.ones(2)
    assert (lucid_gpu.ones(2, device=device) + lucid_gpu.tensor(1.0)).tolist() == [2.0, 2.0]


class Reflecting:
    """An operand of a class of its own."""

    def __radd__(self, other: Any) -> str:
        return "added"

    def __rmatmul__(self, other: Any) -> str:
        return "multiplied"

    def __rmul__(self, other: Any) -> str:
        return "scaled"


def test_operators_leave_other_classes_their_turn() -> None:
    for m, _ in modules():
        x = m.ones(2)
        assert (x + Reflecting(), x @ Reflecting(), x * Reflecting()) == (
            "added",
            "multiplied",
            "scaled",
        )
        y = m.ones(2)
        y += Reflecting()
        assert y == "added"


@pytest.mark.parametrize("other", ["text", None, [1.0, 2.0], {}])
def test_operators_in_place_refuse_what_is_no_operand(other: Any) -> None:
    def add(m: Any) -> None:
        x = m.ones(2)
        x += other

    same_error(add, "unsupported operand type")


@pytest.mark.parametrize("extents", [[1.5], ["a"], [2, None], 5])
def test_sizes_are_of_whole_numbers(extents: Any) -> None:
    same_error(lambda m: m.Size(extents))


def test_a_size_of_tensors_and_bools_is_of_integers() -> None:
    assert lucid_gpu.Size([lucid_gpu.tensor(2), True, np.int64(3)]) == (2, 1, 3)
    assert all(type(n) is int for n in lucid_gpu.Size([lucid_gpu.tensor(2), True, np.int64(3)]))


def _warned(m: Any, of: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        of(m)
    return [w.category.__name__ for w in caught]


@pytest.mark.parametrize(
    ("of", "count"),
    [
        (lambda m: float(m.ones(1, requires_grad=True)), 1),
        (lambda m: float(m.ones(1)), 0),
        (lambda m: m.ones(1, requires_grad=True).item(), 0),
        (lambda m: m.meshgrid(m.ones(2), m.ones(2)), 1),
        (lambda m: m.meshgrid(m.ones(2), m.ones(2), indexing="xy"), 0),
        (lambda m: m.cartesian_prod(m.ones(2), m.ones(2)), 0),
        (lambda m: m.ones(1).std(), 1),
        (lambda m: m.ones(2, 1).var(1), 1),
        (lambda m: m.ones(1).std(correction=0), 0),
        (lambda m: m.ones(2)[m.ones(2, dtype=m.uint8)], 1),
        (lambda m: m.tensor(m.ones(2)), 1),
        (lambda m: m.as_tensor(m.ones(2)), 0),
        (lambda m: m.nn.Linear(0, 3), 1),
        (lambda m: m.nn.Linear(3, 2), 0),
    ],
)
def test_warnings_are_pytorchs(of: Any, count: int) -> None:
    assert _warned(lucid_gpu, of) == ["UserWarning"] * count


WHERE = {
    "None": lambda m: [None],
    "device": lambda m: ["cpu"],
    "device, dtype": lambda m: [m.device("cpu"), m.float64],
    "dtype": lambda m: [m.float64],
    "own dtype": lambda m: [m.float32],
    "tensor": lambda m: [m.ones(1)],
    "list": lambda m: [[]],
    "device, tensor": lambda m: ["cpu", m.ones(1)],
    "device twice": lambda m: [m.float64, "cpu"],
}
FLAGS = {
    "no flag": ((), {}),
    "one flag": ((True,), {}),
    "two flags": ((False, True), {}),
    "three flags": ((False, True, True), {}),
    "a number": ((1,), {}),
    "copy": ((), {"copy": True}),
    "dtype": ((), {"dtype": None}),
    "device": ((), {"device": "cpu"}),
    "unknown": ((), {"size": 1}),
}


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("where", WHERE)
def test_forms_of_to_are_torchs(where: str, flags: str) -> None:
    more, settings = FLAGS[flags]

    def run(m: Any, module: bool) -> Any:
        start = m.nn.Linear(1, 1) if module else m.ones(2)
        try:
            result = start.to(*WHERE[where](m), *more, **settings)
        except (TypeError, RuntimeError) as error:
            return type(error)
        kind = next(result.parameters()).dtype if module else result.dtype
        return result is start, kind is m.float64

    for module in (False, True):
        outcomes = [run(m, module) for m, _ in modules()]
        assert all(outcome == outcomes[0] for outcome in outcomes)


@pytest.mark.parametrize("m", [m for m, _ in modules()], ids=lambda m: m.__name__)
def test_subclasses_made_of_tensors(m: Any) -> None:
    class Named(m.Tensor):  # type: ignore[misc, name-defined]
        name = "it"

    x = m.ones(2, requires_grad=True)
    y = x * 2
    z = y.as_subclass(Named)
    assert type(z) is Named and z.name == "it" and z.requires_grad and z.data_ptr() == y.data_ptr()
    z.mul_(3)
    (z + y).sum().backward()
    assert x.grad.tolist() == [12.0, 12.0] and y.tolist() == [6.0, 6.0]
    leaf = m.Tensor._make_subclass(Named, m.zeros(2), True)
    assert type(leaf) is Named and leaf.is_leaf and leaf.requires_grad
    with pytest.raises(TypeError):
        x.as_subclass(int)


@pytest.mark.parametrize("count", [3, 64, 65, 200])
def test_iteration_gives_rows_a_few_at_a_time(count: int, device: str) -> None:
    x = lucid_gpu.zeros(count, 2, device=device)
    x.tolist()
    rows = iter(x)
    first = next(rows)
    assert len(x._memory().others(x)) <= 65
    for number, row in enumerate((first, *rows)):
        assert row._base is x and row.shape == (2,)
        row += number
    assert x.tolist() == [[i, i] for i in range(count)]
    w = lucid_gpu.ones(count, device=device, requires_grad=True)
    parts = list(w)
    assert len({part.grad_fn for part in parts}) == 1
    sum(parts).backward()
    assert w.grad.tolist() == [1.0] * count


@pytest.mark.parametrize("count", [3, 130])
def test_rows_are_those_of_what_was_iterated_over(count: int, device: str) -> None:
    x = lucid_gpu.arange(count, device=device).float().unsqueeze(1) * 1
    rows = iter(x)
    x.data = x.detach() + 1000
    assert [row.item() for row in rows] == [float(i) for i in range(count)]
    rows = iter(x)
    next(rows)
    x.t_()
    assert len(list(rows)) == count - 1
