"""vmap: its arguments, nesting, randomness, in-place writes, and what it refuses."""

from __future__ import annotations

import gc
import math
import os
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.func import vmap
from tests.func.comparing import agree, tensor
from tests.oracle import modules, plain, same_error, torch_module

pytestmark = pytest.mark.usefixtures("on_device")


def x23(m: Any) -> Any:
    return tensor(m, 2, 3)


def test_torch_has_vmap_at_top_level() -> None:
    assert lucid_gpu.vmap is vmap


def test_in_dims() -> None:
    agree(lambda m: m.vmap(lambda x, y: x * y, (0, None))(x23(m), tensor(m, 3)))
    agree(lambda m: m.vmap(lambda x, y: x * y, (1, 0))(x23(m), tensor(m, 3, 2)))
    agree(lambda m: m.vmap(lambda x, y: x * y, (-1, 0))(x23(m), tensor(m, 3, 2)))
    agree(lambda m: m.vmap(lambda x, n: x * n, (0, None))(x23(m), 3.0))
    agree(lambda m: m.vmap(lambda x, k=1: x * k)(x23(m), k=2))
    agree(lambda m: m.vmap(lambda x, k: x * k)(x23(m), k=tensor(m, 3)))


def test_trees_in_and_out() -> None:
    agree(lambda m: m.vmap(lambda d: {"o": d["a"] + d["b"][0]})({"a": x23(m), "b": [x23(m)]}))
    agree(lambda m: m.vmap(lambda d: d["a"] * d["b"], in_dims=({"a": 0, "b": None},))(
        {"a": x23(m), "b": tensor(m, 3)}
    ))  # fmt: skip
    agree(lambda m: m.vmap(lambda x: (x, [x * 2]), out_dims=(0, 1))(x23(m)))
    agree(lambda m: m.vmap(lambda x: (x, x * 2), out_dims=1)(x23(m)))


def test_out_dims() -> None:
    agree(lambda m: m.vmap(lambda x: x.unsqueeze(0) * 2, out_dims=1)(x23(m)))
    agree(lambda m: m.vmap(lambda x: x * 2, out_dims=(-1,))(x23(m)))
    agree(lambda m: m.vmap(lambda x: m.ones(2), out_dims=None)(x23(m)))
    agree(lambda m: m.vmap(lambda x: (x, "a", 3), out_dims=(0, None, None))(x23(m)))
    agree(lambda m: m.vmap(lambda x: "a", out_dims=None)(x23(m)))
    assert vmap(lambda x: "a", out_dims=None, chunk_size=1)(x23(lucid_gpu)) == "a"
    agree(lambda m: m.vmap(lambda x: m.ones(2))(x23(m)))


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 5])
def test_chunk_size(chunk_size: int) -> None:
    agree(lambda m: m.vmap(
        lambda x, y: (x * y, x.sum()), (1, None), (1, 0), chunk_size=chunk_size
    )(x23(m), tensor(m, 2)))  # fmt: skip


def test_a_batch_of_nothing() -> None:
    agree(lambda m: m.vmap(lambda x: (x * 2).sum(0))(m.ones(0, 3)))


def test_nested() -> None:
    agree(lambda m: m.vmap(m.vmap(lambda x: x * 2 + 1))(x23(m)))
    agree(lambda m: m.vmap(lambda x: m.vmap(lambda y: x @ y)(x23(m)))(tensor(m, 4, 3)))
    agree(lambda m: m.vmap(lambda x: m.vmap(lambda y: (x * y).sum(), 1)(x23(m)))(tensor(m, 4, 2)))
    agree(lambda m: m.vmap(m.vmap(m.vmap(lambda x, y: x - y)))(
        tensor(m, 2, 3, 4), tensor(m, 2, 3, 4, seed=1)
    ))  # fmt: skip
    agree(lambda m: m.vmap(m.vmap(lambda x, y: m.cat([x, y]), (None, 0)), (0, None))(
        tensor(m, 2, 2), tensor(m, 3, 1)
    ))  # fmt: skip
    agree(lambda m: m.vmap(m.vmap(lambda x, y: m.softmax(x @ y, -1), (None, 0)), (0, None))(
        tensor(m, 2, 3, 4), tensor(m, 5, 4, 3)
    ))  # fmt: skip
    agree(lambda m: m.vmap(m.vmap(lambda x, i: x[i], (None, 0)), (0, 0))(
        tensor(m, 2, 5), tensor(m, 2, 3, 2, kind=5)
    ))  # fmt: skip


def test_gradients_nest_with_it() -> None:
    def f(x: Any, y: Any) -> Any:
        return (x * y.sin()).sum() * x.sum()

    agree(lambda m: m.vmap(m.vmap(m.func.grad(f, (0, 1)), (None, 0)), (0, None))(
        tensor(m, 2, 3), tensor(m, 4, 3)
    ))  # fmt: skip
    agree(lambda m: m.func.grad(lambda x: m.vmap(m.func.grad(f), (None, 0))(
        x, tensor(m, 4, 3)
    ).sum())(tensor(m, 3)))  # fmt: skip
    agree(lambda m: m.vmap(m.func.grad(lambda x: m.func.grad(f)(x, x).sum()))(tensor(m, 2, 3)))
    agree(lambda m: m.vmap(m.func.jacrev(lambda x: x.sin() * x.sum()))(tensor(m, 2, 3)))
    agree(lambda m: m.vmap(lambda x: m.func.jacrev(m.func.jacrev(lambda y: (y * x).sum() ** 3))(
        x
    ))(tensor(m, 2, 3)))  # fmt: skip
    agree(lambda m: m.func.jacrev(m.vmap(lambda x: (x.sin() * x.sum()).sum()))(tensor(m, 2, 3)))
    agree(lambda m: m.vmap(lambda x, v: m.func.vjp(lambda x: x.sin(), x)[1](v))(
        tensor(m, 2, 3), tensor(m, 2, 3, seed=1)
    ))  # fmt: skip


def test_per_sample_gradients_of_a_model() -> None:
    def call(m: Any) -> Any:
        weight, bias = tensor(m, 4, 3), tensor(m, 4)
        target = tensor(m, 5, kind=4)

        def loss(weight: Any, bias: Any, x: Any, y: Any) -> Any:
            scores = m.nn.functional.linear(x, weight, bias).tanh()
            return m.nn.functional.cross_entropy(scores, y)

        by = m.vmap(m.func.grad(loss, (0, 1)), (None, None, 0, 0))
        return by(weight, bias, tensor(m, 5, 3), target)

    agree(call)


LOSSES: list[dict[str, Any]] = [
    {}, {"reduction": "sum"}, {"reduction": "none"}, {"ignore_index": 1}, {"weight": True},
    {"weight": True, "ignore_index": 2}, {"label_smoothing": 0.2},
]  # fmt: skip


@pytest.mark.parametrize("options", LOSSES, ids=str)
def test_cross_entropy(options: dict[str, Any]) -> None:
    def call(m: Any) -> Any:
        given = dict(options)
        if "weight" in given:
            given["weight"] = tensor(m, 4).abs()

        def loss(x: Any, y: Any) -> Any:
            return m.nn.functional.cross_entropy(x, y, **given)

        x, y = tensor(m, 3, 5, 4), tensor(m, 3, 5, kind=4)
        summed = m.func.grad(lambda x, y: loss(x, y).sum())
        return [m.vmap(loss)(x, y), m.vmap(summed)(x, y), m.vmap(loss, (0, None))(x, y[0])]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        agree(call)


def test_autograd_grad_of_batched_cotangents() -> None:
    def call(m: Any) -> Any:
        x = x23(m).requires_grad_()
        y = (x.sin() * x.sum()).reshape(-1)
        return m.vmap(lambda v: m.autograd.grad(y, x, v, retain_graph=True)[0])(m.eye(6).double())

    agree(call)


def test_autograd_grad_by_a_tensor_that_examples_share() -> None:
    w = tensor(lucid_gpu, 3).requires_grad_()  # PyTorch refuses this

    def slope(x: Any) -> Any:
        return lucid_gpu.autograd.grad((x * w * w).sum(), w)[0]

    x = x23(lucid_gpu)
    each = lucid_gpu.stack([slope(row) for row in x])
    assert lucid_gpu.equal(vmap(slope)(x), each)


BATCHED_COTANGENTS = {
    "through elementwise ops": lambda m, x: (x.sin() * x + 1).tanh(),
    "through matmul and sum": lambda m, x: (x @ x.mT).sum(0),
    "with a new graph": lambda m, x: x**3,
    "through an index": lambda m, x: x[:, [0, 2, 2]],
    "through a view": lambda m, x: x.t()[1:],
    "through softmax": lambda m, x: m.softmax(x, -1),
    "through a number": lambda m, x: x.sum() * x,
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("name", BATCHED_COTANGENTS)
def test_is_grads_batched(name: str, create_graph: bool) -> None:
    def call(m: Any) -> Any:
        x = x23(m).requires_grad_()
        y = BATCHED_COTANGENTS[name](m, x)
        v = tensor(m, 4, *y.shape)
        (found,) = m.autograd.grad(y, x, v, is_grads_batched=True, create_graph=create_graph)
        if not found.requires_grad:
            return [found]
        return [found, m.autograd.grad((found * found).sum(), x)[0]]

    agree(call)


def test_is_grads_batched_rules() -> None:
    def call(m: Any, **options: Any) -> Any:
        x, y = m.ones(2, requires_grad=True), m.ones(3, requires_grad=True)
        return m.autograd.grad(x.sum(), (x, y), m.ones(4), is_grads_batched=True, **options)

    agree(lambda m: call(m, allow_unused=True)[0])
    assert call(lucid_gpu, allow_unused=True)[1] is None
    agree(lambda m: call(m, materialize_grads=True))
    same_error(call, "The differentiated Tensor at index 1 appears to not have been used")


# --- randomness -----------------------------------------------------------------------------------


RANDOM = {
    "rand": lambda m, x: m.rand(4),
    "randn": lambda m, x: m.randn(4),
    "randint": lambda m, x: m.randint(0, 100, (6,)),
    "rand_like": lambda m, x: m.rand_like(x),
    "randperm": lambda m, x: m.randperm(20),
    "bernoulli": lambda m, x: m.bernoulli(m.full((30,), 0.5)),
    "bernoulli of a batched one": lambda m, x: m.bernoulli((x * 0 + 0.5).repeat(10)),
    "dropout": lambda m, x: m.nn.functional.dropout(m.ones(30)),
    "dropout of a batched one": lambda m, x: m.nn.functional.dropout((x * 0 + 1).repeat(10)),
    "normal_": lambda m, x: (x * 1).normal_(),
    "uniform_": lambda m, x: (x * 1).uniform_(),
    "exponential_": lambda m, x: (x * 1).exponential_(),
}


@pytest.mark.parametrize("name", RANDOM)
def test_randomness(name: str) -> None:
    x = lucid_gpu.ones(3, 4)

    def f(x: Any) -> Any:
        return RANDOM[name](lucid_gpu, x)

    rows = vmap(f, randomness="different")(x)
    assert not any(lucid_gpu.equal(rows[i], rows[j]) for i, j in ((0, 1), (0, 2), (1, 2)))
    rows = vmap(f, randomness="same")(x)
    assert lucid_gpu.equal(rows[0], rows[1]) and lucid_gpu.equal(rows[0], rows[2])
    same_error(
        lambda m: m.vmap(lambda x: RANDOM[name](m, x))(m.ones(3, 4)),
        "vmap: called random operation while in randomness error mode",
    )


def test_the_same_randomness_in_all_chunks() -> None:
    def draw(x: Any) -> Any:
        return x * 0 + lucid_gpu.rand(4)

    rows = vmap(draw, randomness="same", chunk_size=2)(lucid_gpu.ones(5, 4))
    assert (rows == rows[0]).all()
    rows = vmap(draw, randomness="different", chunk_size=2)(lucid_gpu.ones(5, 4))
    assert len(rows.unique()) == 20


def test_strides_of_an_example() -> None:
    def seen(m: Any, x: Any, *in_dims: int) -> Any:
        told: list[Any] = []

        def look(x: Any) -> Any:
            told.append((x.stride(), x.stride(-1), x.is_contiguous()))
            return x

        for in_dim in in_dims:
            look = m.vmap(look, in_dim)
        look(x)
        return told

    for shape, in_dims in (((3, 2, 5), (0,)), ((2, 3, 5), (1,)), ((4, 3, 5), (0, 1))):
        expected = seen(torch_module(), torch_module().ones(shape), *in_dims)
        assert seen(lucid_gpu, lucid_gpu.ones(shape), *in_dims) == expected


def test_randomness_of_nested_vmaps() -> None:
    def both(outer: str, inner: str) -> Any:
        f = vmap(lambda x: lucid_gpu.rand(3), randomness=inner)
        rows = vmap(f, randomness=outer)(lucid_gpu.ones(2, 2)).reshape(4, 3)
        return len({tuple(row) for row in rows.tolist()})

    assert [both(a, b) for a in ("same", "different") for b in ("same", "different")] == [
        1,
        2,
        2,
        4,
    ]


def test_different_randomness_for_a_shared_tensor_is_refused() -> None:
    same_error(
        lambda m: m.vmap(lambda x: m.zeros(2).normal_(), randomness="different")(m.ones(3)),
        "Cannot ask for different inplace randomness on an unbatched tensor",
    )


# --- what it refuses ------------------------------------------------------------------------------


def branch(x: Any) -> Any:
    return x if x.sum() > 0 else -x


REFUSED = [
    ("item", lambda m, x: x.sum().item(), "It looks like you're calling .item() on a Tensor"),
    ("float", lambda m, x: float(x.sum()), "vmap: It looks like you're"),
    ("branch", lambda m, x: branch(x), "data-dependent control flow"),
    ("nonzero", lambda m, x: x.nonzero(), "output dynamic shape"),
    ("mask", lambda m, x: x[x > 0], "dynamic shape"),
    ("copy_", lambda m, x: m.zeros(2).copy_(x), "being vmapped over but `self` not being vmapped"),
    ("setitem", lambda m, x: m.zeros(2).__setitem__(0, x[0]), "but `self` not being vmapped"),
    ("no tensor", lambda m, x: 1, "must only return Tensors, got type"),
    ("data", lambda m, x: x.data, "accessing `data` under vmap transform is not allowed"),
    ("to data", lambda m, x: setattr(x, "data", x), "mutating directly with `.data` under vmap"),
    ("requires_grad_", lambda m, x: x.requires_grad_(), "attempting to call Tensor.requires_grad_"),
    ("backward", lambda m, x: x.sum().backward(), "backward() called inside a functorch transform"),
]  # fmt: skip


@pytest.mark.parametrize("one", REFUSED, ids=[r[0] for r in REFUSED])
def test_refused_with_pytorchs_sentence(one: Any) -> None:
    same_error(lambda m: m.vmap(lambda x: one[1](m, x))(m.ones(3, 2)), one[2])


@pytest.mark.parametrize("take", ["numpy", "tolist"])
def test_memory_of_a_batched_tensor_is_refused(take: str) -> None:
    with pytest.raises(RuntimeError, match="vmap: something asked for the memory"):
        vmap(lambda x: lucid_gpu.tensor(getattr(x, take)()))(lucid_gpu.ones(2))


def test_a_refused_write_changes_nothing() -> None:
    z = lucid_gpu.zeros(2)
    for write in (z.add_, z.copy_, lambda x: z.__setitem__(0, x[0])):
        with pytest.raises(RuntimeError, match="not possible"):
            vmap(write)(lucid_gpu.ones(3, 2))
    assert z.tolist() == [0, 0]


def test_batch_norm_with_running_figures_is_refused_before_they_change() -> None:
    layer = lucid_gpu.nn.BatchNorm1d(3)
    with pytest.raises(RuntimeError, match="running_mean"):
        vmap(layer)(lucid_gpu.randn(2, 4, 3))
    assert layer.running_mean.tolist() == [0, 0, 0]


WRONG = [
    ("no inputs", lambda m, x: m.vmap(lambda: x)(), "got no inputs"),
    ("in_dims a string", lambda m, x: m.vmap(abs, "a")(x), "expected `in_dims` to be int or a"),
    ("in_dims None", lambda m, x: m.vmap(abs, None)(x), "expected `in_dims` to be int or a"),
    ("in_dims a list", lambda m, x: m.vmap(abs, [0])(x), "expected `in_dims` to be int or a"),
    ("in_dims too many", lambda m, x: m.vmap(abs, (0, 0))(x), "is not compatible with the"),
    ("in_dims a float", lambda m, x: m.vmap(abs, (0.5,))(x), "in_dim must be either an integer"),
    ("in_dims out of range", lambda m, x: m.vmap(abs, 2)(x), "-2 <= in_dim < 2"),
    ("a number", lambda m, x: m.vmap(pow)(x, 3), "We cannot vmap over non-Tensor arguments"),
    ("sizes", lambda m, x: m.vmap(pow)(x, x[:2]), "got sizes [3, 2] for the mapped dimension"),
    ("out_dims too many", lambda m, x: m.vmap(lambda x: (x, x), 0, (0,))(x), "out_dims is not"),
    ("out_dims range", lambda m, x: m.vmap(abs, 0, 5)(x), "Dimension out of range"),
    ("out_dims None", lambda m, x: m.vmap(abs, 0, None)(x), "can not return a BatchedTensor"),
    ("randomness", lambda m, x: m.vmap(abs, randomness="x")(x), "Only allowed values for"),
    ("chunk_size", lambda m, x: m.vmap(abs, chunk_size=0)(x), "chunk_size should be None or"),
]


@pytest.mark.parametrize("one", WRONG, ids=[w[0] for w in WRONG])
def test_wrong_calls_say_what_was_expected(one: Any) -> None:
    same_error(lambda m: one[1](m, m.ones(3, 2)), one[2])


# --- what it leaves behind ------------------------------------------------------------------------


# an argument is filled with what all examples share, then each writes its own
FILLED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "zero_": lambda m, x, y: y.zero_(),
    "fill_": lambda m, x, y: y.fill_(2.0),
    "copy_ of a captured tensor": lambda m, x, y: y.copy_(m.ones(2, dtype=x.dtype)),
    "copy_ of an expanded row": lambda m, x, y: y.copy_(x[0].expand(2, 2)),
    "copy_ through a view": lambda m, x, y: y.t().copy_(m.ones(2, 2, dtype=x.dtype)).t(),
    "setting a row": lambda m, x, y: (y.__setitem__(0, 1.5), y)[1],
}
WRITTEN: dict[str, Callable[[Any, Any, Any], Any]] = {
    "mul_": lambda m, x, y: y.mul_(x),
    "setting a row": lambda m, x, y: y.__setitem__(0, x[1]),
    "copy_ of a row": lambda m, x, y: y.copy_(x[0]),
    "a view": lambda m, x, y: y[1:].add_(x[:1]),
}


@pytest.mark.parametrize("how", ["vmap", "jacfwd", "jacfwd of both", "jvp in vmap"])
@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("filled", FILLED)
def test_examples_write_memory_of_their_own(filled: str, written: str, how: str) -> None:
    def scenario(m: Any) -> Any:
        x, y = tensor(m, 3, 2, 2), tensor(m, 3, 2, 2, seed=1)

        def f(x: Any, y: Any) -> Any:
            z = FILLED[filled](m, x, y)
            WRITTEN[written](m, x, z)
            return z * 1, x * z

        if how == "vmap":
            return m.func.vmap(f)(x, y), y
        if how == "jvp in vmap":
            moved = m.func.vmap(lambda x, y, d: m.func.jvp(f, (x * 1, y * 1), (d * 1, d * 2)))
            return moved(x, y, tensor(m, 3, 2, 2, seed=2))
        return m.func.jacfwd(f, argnums=(0, 1) if "both" in how else 0)(x[0], y[0])

    agree(scenario)


def test_in_place_ops_reach_the_argument() -> None:
    agree(lambda m: (x := x23(m), m.vmap(lambda x: x.mul_(2))(x))[0])
    agree(lambda m: (x := x23(m), m.vmap(lambda x: x[1:].mul_(2))(x))[0])


def test_escaped_tensors_are_refused() -> None:
    kept: list[Any] = []
    vmap(lambda x: (kept.append(x), x)[1])(lucid_gpu.ones(2))
    for use in (lambda x: x + 1, lambda x: x.sum(), lambda x: x.reshape(1), repr):
        with pytest.raises(RuntimeError, match="escaped from inside a function being vmapped"):
            use(kept[0])


def test_an_escaped_tensor_is_refused_by_fused_sums() -> None:
    kept: list[Any] = []
    vmap(lambda r: kept.append(r) or r * 1)(x23(lucid_gpu))
    for one in (lambda t: t.sum(), lambda t: t.mean(), lambda t: bool(t.sum())):
        with pytest.raises(RuntimeError, match="may have escaped"):
            one(kept[0])


def test_arguments_by_name() -> None:
    agree(lambda m: m.vmap(lambda r: m.sum(input=r, keepdim=True, dim=0))(x23(m)))
    agree(lambda m: m.vmap(lambda r: m.nn.functional.softmax(input=r, dim=0))(x23(m)))
    agree(
        lambda m: m.vmap(lambda r: m.nn.functional.linear(weight=tensor(m, 4, 3), input=r))(x23(m))
    )
    agree(
        lambda m: m.vmap(lambda r: m.nn.functional.cross_entropy(target=m.tensor(1), input=r))(
            x23(m)
        )
    )


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda r: r.transpose(0), r"^transpose\(\) missing 1 required .* 'dim1'"),
        (lambda r: r.sum(0, True, 2, 3), r"^sum\(\) takes from 1 to 3 positional arguments"),
        (lambda r: r.sum(over=1), r"^sum\(\) got an unexpected keyword argument 'over'"),
    ],
)
def test_wrong_arguments_of_an_op_raise_what_they_raise_without_vmap(
    wrong: Any, sentence: str
) -> None:
    for run in (wrong, vmap(wrong)):
        with pytest.raises(TypeError, match=sentence):
            run(x23(lucid_gpu))


def test_an_index_that_is_batched_further_out() -> None:
    def picked(m: Any, mask: bool = False) -> Any:
        x, places = tensor(m, 2, 3, 4), m.tensor([[0, 2], [1, 1], [2, 0]])
        return m.vmap(lambda i: m.vmap(lambda r: r[i])(x))(places > 0 if mask else places)

    agree(picked)
    same_error(lambda m: picked(m, mask=True), "dynamic shape")


def test_nobody_is_behind_the_door_afterwards() -> None:
    from lucid_gpu.tape.door import interpreters

    seen: list[int] = []
    before = list(interpreters)

    def f(x: Any) -> Any:
        seen.append(len(interpreters))
        return x

    vmap(f)(lucid_gpu.ones(2))
    with pytest.raises(ZeroDivisionError):
        vmap(lambda x: 1 / 0)(lucid_gpu.ones(2))
    assert seen == [len(before) + 1]
    assert interpreters == before


def test_other_threads_see_ordinary_ops() -> None:
    found: list[Any] = []

    def elsewhere() -> None:
        x = lucid_gpu.ones(2, 3)
        found.append([x.sum(0).tolist(), x.reshape(-1).shape, lucid_gpu.rand(2).shape])

    def f(x: Any) -> Any:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        return x.sum()

    vmap(f)(lucid_gpu.ones(2, 3))
    assert found == [[[2.0, 2.0, 2.0], (6,), (2,)]]


def test_an_op_without_a_rule_runs_once_for_each_example() -> None:
    from lucid_gpu.func import entries

    entries._warned.clear()
    with pytest.warns(UserWarning, match="performance drop"):
        found = vmap(lambda x: x.median())(lucid_gpu.tensor([[1.0, 2.0, 3.0], [4.0, 6.0, 5.0]]))
    assert found.tolist() == [2.0, 5.0]


def test_one_kernel_computes_the_batch() -> None:
    if os.environ.get("LUCID_EAGER", "0") not in ("", "0"):
        pytest.skip("with LUCID_EAGER=1 every value is in memory")
    x = lucid_gpu.randn(64, 32)
    x.array
    with lucid_gpu.profiler.record() as launches:
        y = vmap(lambda x: (x.sin() * 2 + x).tanh())(x)
        y.array
    assert len(launches) == 1


def test_nothing_outlives_a_vmap() -> None:
    x = lucid_gpu.randn(3, 4, requires_grad=True)
    seen: list[Any] = []

    def f(x: Any) -> Any:
        y = x.sin()
        seen.append(weakref.ref(y))
        seen.append(weakref.ref(y._wrapper.value))
        return (y * x).sum()

    vmap(f)(x).sum().backward()
    gc.collect()
    assert [r() for r in seen] == [None, None]


def test_printing() -> None:
    texts: list[str] = []
    vmap(lambda x: (texts.append(repr(x)), x)[1])(lucid_gpu.tensor([1.0, 2.0]))
    texts = [text.replace(", device='cuda:0'", "") for text in texts]
    assert texts == ["BatchedTensor(lvl=1, bdim=0, value=\n    tensor([1., 2.])\n)"]


def test_random_functions_of_several_ops() -> None:
    """Compositions drawn at random, against a loop."""
    steps = [
        lambda x: x.sin(), lambda x: x * x.sum(-1, keepdim=True), lambda x: x.mT.contiguous(),
        lambda x: x.reshape(-1).reshape(x.shape[::-1]), lambda x: x[..., :1] + x,
        lambda x: lucid_gpu.softmax(x, 0), lambda x: x.flip(0) - x, lambda x: x @ x.mT,
        lambda x: lucid_gpu.cat([x, x * 2], 1), lambda x: x.amax(0) + x, lambda x: x.cumsum(0),
        lambda x: x.clone().mul_(2), lambda x: x[[0, -1]] * 3, lambda x: x.std(1).unsqueeze(1) * x,
    ]  # fmt: skip
    rng = np.random.default_rng(3)
    for _ in range(math.ceil(25 * float(os.environ.get("LUCID_TEST_EXAMPLES", "1")))):
        chosen = [steps[i] for i in rng.integers(0, len(steps), 4)]

        def f(x: Any, chosen: Any = chosen) -> Any:
            for step in chosen:
                x = step(x)
            return x

        x = lucid_gpu.from_numpy(rng.standard_normal((3, 2, 4)))
        expected = lucid_gpu.stack([f(row) for row in x])
        assert lucid_gpu.allclose(vmap(f)(x), expected, rtol=1e-9)
        slopes = vmap(lucid_gpu.func.grad(lambda x, f=f: (f(x).tanh() ** 2).sum()))(x)
        each = [lucid_gpu.func.grad(lambda x, f=f: (f(x).tanh() ** 2).sum())(row) for row in x]
        assert lucid_gpu.allclose(slopes, lucid_gpu.stack(each), rtol=1e-7, atol=1e-9)


def test_several_threads_at_once() -> None:
    x = lucid_gpu.randn(5, 4)
    expected = lucid_gpu.stack([(row.reshape(2, 2).sum(0) ** 2).sum() for row in x])
    slopes = vmap(lucid_gpu.func.grad(lambda x: (x**2).sum()))
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(20):
            found = vmap(lambda row: (row.reshape(2, 2).sum(0) ** 2).sum())(x)
            if not lucid_gpu.allclose(found, expected) or not lucid_gpu.equal(slopes(x), 2 * x):
                wrong.append(found)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert not vmap.__globals__["watching"].users


def test_dropout_that_draws_nothing_needs_no_randomness(device: str) -> None:
    for module, where in modules(device):
        x = module.ones(2, 3, device=where)
        f = module.nn.functional.dropout
        assert module.vmap(lambda x, f=f: f(x, 0.5, training=False))(x).tolist() == x.tolist()
        layer = module.nn.Dropout(0.5).eval()
        assert module.vmap(layer)(x).tolist() == x.tolist()


def test_flip_over_no_dimension_is_a_copy_also_here() -> None:
    x = lucid_gpu.arange(6.0).reshape(2, 3)
    assert vmap(lambda r: r.flip(()))(x).tolist() == x.tolist()
    with pytest.raises(TypeError, match='missing 1 required positional arguments: "dims"'):
        vmap(lambda r: r.flip())(x)


def test_cat_refuses_out() -> None:
    x, into = lucid_gpu.arange(4.0).reshape(2, 2), lucid_gpu.zeros(2, 4)
    with pytest.raises(NotImplementedError, match="use forward AD or vmap with cat_out"):
        vmap(lambda row, out: lucid_gpu.cat([row, row], out=out))(x, into)
    assert not into.any()


SHAPES_IN_PLACE: dict[str, Any] = {
    "squeeze_": lambda x: x.squeeze_(0),
    "squeeze_ of all": lambda x: x.squeeze_(),
    "unsqueeze_": lambda x: x.unsqueeze_(-1),
    "transpose_": lambda x: x.transpose_(0, 1),
    "t_": lambda x: x.t_(),
    "swapaxes_": lambda x: x.swapaxes_(0, 1),
}


@pytest.mark.parametrize("where", [0, 2])
@pytest.mark.parametrize("name", SHAPES_IN_PLACE)
def test_shapes_change_in_place(name: str, where: int) -> None:
    def scenario(m: Any, device: str) -> Any:
        leaf = m.arange(6.0, device=device).view(3, 1, 2).requires_grad_()
        x = leaf * 0.5

        def body(one: Any) -> Any:
            SHAPES_IN_PLACE[name](one)
            own = one.clone()
            SHAPES_IN_PLACE[name](own)
            own.mul_(3)
            return own, one.square()

        own, square = m.vmap(body, in_dims=where)(x)
        (own.sum() + square.sum()).backward()
        rows = leaf.detach().clone().view(3, 2, 1)
        nested = m.vmap(m.vmap(lambda one: one.unsqueeze_(0).squeeze_()))(rows)
        return own, list(own.shape), leaf.grad, nested

    theirs, ours = plain(scenario(torch_module(), "cpu")), plain(scenario(lucid_gpu, "cpu"))
    assert ours == theirs


def test_what_an_op_saved_and_was_written_since_is_refused() -> None:
    def loss(m: Any, write: Any) -> Any:
        def body(x: Any) -> Any:
            y = x * 1.5
            z = y.sin()
            write(m, y)
            return (z * 2).sum()

        return m.vmap(m.func.grad(body))(m.arange(6.0).view(3, 2))

    writes = (lambda m, y: y.mul_(2), lambda m, y: m.nn.functional.silu(y, inplace=True))
    for write in writes:
        same_error(lambda m, write=write: loss(m, write), "modified by an inplace operation")


@pytest.mark.parametrize("name", ["elu", "silu", "hardtanh", "mish", "relu"])
def test_an_op_in_place_keeps_what_it_read_itself(name: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = m.tensor([[0.5, -0.25], [2.0, -3.0]]).requires_grad_()
        function = getattr(m.nn.functional, name)
        m.vmap(lambda one: function(one * 1.0, inplace=True) * 2)(x).sum().backward()
        return x.grad

    theirs, ours = scenario(torch_module(), "cpu"), scenario(lucid_gpu, "cpu")
    np.testing.assert_allclose(np.array(ours.tolist()), np.array(theirs.tolist()), 1e-5)
