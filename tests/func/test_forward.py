"""func.jvp and func.jacfwd, alone and with the other transformations, as torch has them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import Function
from lucid_gpu.func import grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap
from lucid_gpu.tape.levels import open_levels
from tests.oracle import array_of, same_error, torch_module

pytestmark = pytest.mark.usefixtures("on_device")

RNG = np.random.default_rng(3)
X, T, W = (RNG.standard_normal(s) for s in ((3, 4), (3, 4), (4, 2)))
V = RNG.standard_normal(4)


def on(module: Any, *arrays: Any) -> list[Any]:
    return [module.from_numpy(a.copy()) if isinstance(a, np.ndarray) else a for a in arrays]


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree) for leaf in leaves(tree[key])]
    if isinstance(tree, (tuple, list)):
        return [leaf for child in tree for leaf in leaves(child)]
    return [tree]


def agree(scenario: Callable[[Any, Any], Any], *arrays: Any) -> None:
    """``scenario(module, *tensors)`` gives trees with equal leaves."""
    torch = torch_module()
    found, expected = (
        [array_of(leaf) for leaf in leaves(scenario(m, *on(m, *arrays)))]
        for m in (lucid_gpu, torch)
    )
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-10)
    assert open_levels == []


def network(m: Any, x: Any, w: Any) -> Any:
    """Products, normalization, maxima, sums and elementwise ops."""
    hidden = (x @ w).tanh()
    scores = m.nn.functional.softmax(hidden, 1)
    normal = m.nn.functional.layer_norm(x, (4,))
    return (scores * hidden).sum() + normal.exp().amax(1).sum() * w[0, 0] + (x[1:] ** 2).prod(1)[0]


def curve(x: Any) -> Any:
    return (x.sin() * x).sum() * x.exp() + x.cumsum(0)


# --- jvp ------------------------------------------------------------------------------------------


def test_jvp_of_several_primals() -> None:
    agree(lambda m, x, w, t: m.func.jvp(lambda a, b: network(m, a, b), (x, w), (t, w * 2)), X, W, T)


def test_jvp_of_trees() -> None:
    def scenario(m: Any, x: Any, t: Any) -> Any:
        def f(d: Any, pair: Any) -> Any:
            return {"a": d["x"] * pair[0], "b": [d["x"].sum(), pair[1]]}

        return m.func.jvp(f, ({"x": x}, (x + 1, x - 1)), ({"x": t}, (t, t * 3)))

    agree(scenario, X, T)


def test_jvp_with_aux() -> None:
    agree(lambda m, x, t: m.func.jvp(lambda a: (a * a, a + 1), (x,), (t,), has_aux=True), X, T)


def test_jvp_of_an_independent_output_is_zero_or_refused() -> None:
    agree(lambda m, x, t: m.func.jvp(lambda a: m.ones(2), (x,), (t,)), X, T)
    same_error(
        lambda m: m.func.jvp(lambda a: m.ones(2), (m.ones(3),), (m.ones(3),), strict=True),
        "The output of f is independent of the",
    )


def test_jvp_nests() -> None:
    def scenario(m: Any, x: Any, t: Any) -> Any:
        def first(a: Any) -> Any:
            return m.func.jvp(lambda b: (b**4).sum() * b, (a,), (t,))[1]

        def second(a: Any) -> Any:
            return m.func.jvp(first, (a,), (t * 2,))[1]

        return m.func.jvp(second, (x,), (t + 1,))

    agree(scenario, X, T)


def test_jvp_does_not_confuse_perturbations() -> None:
    """The derivative of ``x * d/dy (x + y)`` is 1."""
    one = lucid_gpu.tensor(1.0)

    def outer(x: Any) -> Any:
        return x * jvp(lambda y: x + y, (one,), (one,))[1]

    assert jvp(outer, (one,), (one,))[1].item() == 1.0


def test_jvp_inside_a_dual_level() -> None:
    """torch refuses to mix its two interfaces; here levels nest."""
    x = lucid_gpu.tensor(2.0)
    ad = lucid_gpu.autograd.forward_ad
    with ad.dual_level():
        dual = ad.make_dual(x, lucid_gpu.tensor(1.0))
        value, slope = jvp(lambda a: a**3, (dual,), (lucid_gpu.tensor(1.0),))
        assert ad.unpack_dual(value).tangent.item() == 12.0
        assert ad.unpack_dual(slope).tangent.item() == 12.0


def test_jvp_leaves_its_inputs_alone() -> None:
    x, t = lucid_gpu.rand(3), lucid_gpu.rand(3)
    jvp(lambda a: a.mul_(2) if False else a * 2, (x,), (t,))
    assert x._wrapper is None
    assert t._wrapper is None
    assert not x.requires_grad


@pytest.mark.parametrize("count", (1, 3))
def test_what_jvp_made_is_freed(count: int) -> None:
    x = lucid_gpu.rand(3)
    for _ in range(count):
        value, moved = jvp(lambda a: (a @ a) * a, (x,), (lucid_gpu.ones(3),))
        seen = [weakref.ref(value), weakref.ref(moved)]
        del value, moved
        gc.collect()
        assert [r() for r in seen] == [None, None]
    assert open_levels == []


JVP_REFUSED = {
    "primals that are no tuple": (
        lambda m: m.func.jvp(lambda a: a, m.ones(3), (m.ones(3),)),
        ("Expected primals to be a tuple. E.g. it should be valid to call f(*primals).",),
    ),
    "another structure": (
        lambda m: m.func.jvp(lambda a: a, (m.ones(3),), (m.ones(3), m.ones(3))),
        ("Expected primals and tangents to have the same python structure.",),
    ),
    "no primals": (
        lambda m: m.func.jvp(lambda: m.ones(3), (), ()),
        ("Expected primals to contain at least one Tensor.",),
    ),
    "a number": (
        lambda m: m.func.jvp(lambda a: a, (1.0,), (1.0,)),
        ("Expected primals to only contain Tensors, got",),
    ),
    "an output that is no tensor": (
        lambda m: m.func.jvp(lambda a: 3, (m.ones(3),), (m.ones(3),)),
        ("expected f(*primals) to return only tensors, got unsupported type",),
    ),
    "nothing returned": (
        lambda m: m.func.jvp(lambda a: None, (m.ones(3),), (m.ones(3),)),
        ("Expected f to be a function that has non-empty output (got output = [None])",),
    ),
    "no outputs": (
        lambda m: m.func.jacfwd(lambda a: ())(m.ones(3)),
        ("jvp(f, primals, tangents): Expected f to be a function that has non-empty output",),
    ),
    "a leaf marked inside": (
        lambda m: m.func.jvp(lambda a: a.requires_grad_(), (m.ones(3),), (m.ones(3),)),
        ("You are attempting to call Tensor.requires_grad_()",),
    ),
    "no aux": (
        lambda m: m.func.jvp(lambda a: a, (m.ones(3),), (m.ones(3),), has_aux=True),
        ("output of function f should be a tuple: (output, aux) if has_aux is True",),
    ),
}


@pytest.mark.parametrize("case", JVP_REFUSED)
def test_jvp_refuses_as_torch(case: str) -> None:
    function, words = JVP_REFUSED[case]
    same_error(function, *words)
    assert open_levels == []


# --- jacfwd ---------------------------------------------------------------------------------------


def test_jacfwd() -> None:
    agree(lambda m, x: m.func.jacfwd(lambda a: a.sin() @ a.t())(x), X)


@pytest.mark.parametrize("argnums", (0, 1, (0, 1), (1,)))
def test_jacfwd_argnums(argnums: Any) -> None:
    agree(lambda m, x, w: m.func.jacfwd(lambda a, b: (a @ b, a.sum()), argnums=argnums)(x, w), X, W)


def test_jacfwd_of_trees() -> None:
    def scenario(m: Any, x: Any, v: Any) -> Any:
        return m.func.jacfwd(lambda d: {"p": d["x"] * d["v"], "q": d["v"].sum()})({"x": x, "v": v})

    agree(scenario, X, V)


def test_jacfwd_with_aux() -> None:
    agree(lambda m, x: m.func.jacfwd(lambda a: (a.exp() * 3, {"twice": a * 2}), has_aux=True)(x), X)


def test_jacfwd_hands_keywords_on_and_counts_arguments_from_the_end() -> None:
    """Neither of which torch's does."""
    x = lucid_gpu.tensor(V)
    diagonal = jacfwd(lambda a, b, scale: b * scale, argnums=-1)(x, x, scale=3.0)
    assert diagonal.tolist() == (lucid_gpu.eye(4) * 3).tolist()


@pytest.mark.parametrize("chunk_size", (None, 1, 5, 100))
def test_jacfwd_in_chunks(chunk_size: int | None) -> None:
    x = lucid_gpu.tensor(X)
    found = jacfwd(lambda a: curve(a[0]), chunk_size=chunk_size)(x)
    np.testing.assert_allclose(array_of(found), array_of(jacrev(lambda a: curve(a[0]))(x)))


COMPOSED = {
    "jacfwd of jacrev": lambda m, f: m.func.jacfwd(m.func.jacrev(f)),
    "jacrev of jacfwd": lambda m, f: m.func.jacrev(m.func.jacfwd(f)),
    "jacfwd of jacfwd": lambda m, f: m.func.jacfwd(m.func.jacfwd(f)),
    "jacfwd of jacfwd of jacrev": lambda m, f: m.func.jacfwd(m.func.jacfwd(m.func.jacrev(f))),
    "jacrev of jacfwd of jacrev": lambda m, f: m.func.jacrev(m.func.jacfwd(m.func.jacrev(f))),
    "vmap of jacfwd": lambda m, f: lambda v: m.func.vmap(m.func.jacfwd(f))(m.stack([v, v * 2])),
    "jacfwd of vmap": lambda m, f: lambda v: m.func.jacfwd(m.func.vmap(f))(m.stack([v, v * 2])),
    "vmap of jacfwd of jacrev": lambda m, f: (
        lambda v: m.func.vmap(m.func.jacfwd(m.func.jacrev(f)))(m.stack([v, v * 2]))
    ),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_composed(name: str) -> None:
    agree(lambda m, v: COMPOSED[name](m, curve)(v), V)


def test_hessian_of_a_network_both_ways() -> None:
    torch = torch_module()

    def parts(m: Any, w: Any, x: Any, order: Any) -> Any:
        return order(lambda a: network(m, x, a))(w)

    (x, w), (tx, tw) = on(lucid_gpu, X, W), on(torch, X, W)
    expected = array_of(parts(torch, tw, tx, torch.func.hessian))
    for order in (
        lambda f: jacfwd(jacrev(f)),
        lambda f: jacrev(jacfwd(f)),
        lambda f: jacfwd(jacfwd(f)),
        hessian,
    ):
        found = array_of(parts(lucid_gpu, w, x, order))
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9)


def test_hessian_vector_products() -> None:
    def scenario(m: Any, x: Any, t: Any) -> Any:
        f = lambda a: (a.exp() @ a.t()).sum() + (a**3).prod()  # noqa: E731
        forward_over_reverse = m.func.jvp(m.func.grad(f), (x,), (t,))
        reverse_over_forward = m.func.grad(lambda a: m.func.jvp(f, (a,), (t,))[1])(x)
        return forward_over_reverse, reverse_over_forward

    agree(scenario, X, T)


def test_linearize() -> None:
    """torch traces for its linearize; the numbers are those of its jvp."""
    x, t, w = on(lucid_gpu, X, T, W)
    f = lambda d, b: {"p": d["x"].sin() @ b, "q": [b.sum() * 2, lucid_gpu.ones(2)]}  # noqa: E731
    output, push = linearize(f, {"x": x}, w)
    expected, _ = jvp(f, ({"x": x}, w), ({"x": t}, w))
    np.testing.assert_allclose(array_of(output["p"]), array_of(expected["p"]))
    for k in (1.0, 2.0):  # as often as wanted
        found = leaves(push({"x": t * k}, w))
        moved = leaves(jvp(f, ({"x": x}, w), ({"x": t * k}, w))[1])
        for mine, theirs in zip(found, moved, strict=True):
            np.testing.assert_allclose(array_of(mine), array_of(theirs), rtol=1e-12, atol=1e-14)
            assert not mine.requires_grad
    with pytest.raises(RuntimeError, match="same structure as the primals"):
        push(t, w)
    with pytest.raises(RuntimeError, match="shape and type of its primal"):
        push({"x": w}, w)


REPEATED: dict[str, Any] = {
    "setitem": lambda a, v, i: a.__setitem__(i, v),
    "add to an item": lambda a, v, i: a.__setitem__(i, a[i] + v[0]),
    "index_put_": lambda a, v, i: a.index_put_((i,), v),
    "scatter_": lambda a, v, i: a.scatter_(0, i, v),
    "index_copy_": lambda a, v, i: a.index_copy_(0, i, v),
}


@pytest.mark.parametrize("name", REPEATED)
def test_linearize_of_writes_of_one_place_twice(name: str) -> None:
    i = lucid_gpu.tensor([1, 1, 0], device="cpu")  # a GPU keeps any of the values

    def f(v: Any) -> Any:
        a = v.clone()
        REPEATED[name](a, v * 3, i)
        return a * a

    x = lucid_gpu.tensor([1.0, 2.0, 3.0], dtype=lucid_gpu.float64, device="cpu")
    t = x.flip(0) * 0.5
    expected = jvp(f, (x,), (t,))[1]
    np.testing.assert_allclose(array_of(linearize(f, x)[1](t)), array_of(expected))
    both = vmap(lambda x: linearize(f, x)[1](t))(lucid_gpu.stack([x * 2, x]))
    np.testing.assert_allclose(array_of(both[1]), array_of(expected))


@pytest.mark.parametrize("in_dim", [0, None])
def test_duals_made_inside_vmap(in_dim: int | None) -> None:
    """PyTorch refuses them."""
    forward_ad = lucid_gpu.autograd.forward_ad
    x = lucid_gpu.arange(6.0, dtype=lucid_gpu.float64).reshape(3, 2) + 1
    t = x.flip(0).sin()

    def both(p: Any, t: Any) -> Any:
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(p, t)
            dual[0].mul_(3)
            return tuple(forward_ad.unpack_dual((dual * dual).sum(0)))

    def loss(p: Any) -> Any:
        scaled = p * lucid_gpu.tensor([3.0, 1.0], dtype=p.dtype)
        return (scaled * scaled).sum(0)

    values, tangents = vmap(both, (in_dim, 0))(x * 1 if in_dim == 0 else x[0] * 1, t * 1)
    for i in range(3):
        value, tangent = jvp(loss, (x[i if in_dim == 0 else 0],), (t[i],))
        np.testing.assert_allclose(array_of(values[i]), array_of(value))
        np.testing.assert_allclose(array_of(tangents[i]), array_of(tangent))


def test_linearize_a_constant() -> None:
    x = lucid_gpu.ones(3)
    output, push = linearize(lambda a: a.detach() * 2, x)
    assert output.tolist() == [2.0, 2.0, 2.0]
    assert push(x).tolist() == [0.0, 0.0, 0.0]


def test_jvp_of_vjp() -> None:
    def scenario(m: Any, x: Any, t: Any) -> Any:
        def pulled(a: Any) -> Any:
            out, pull = m.func.vjp(lambda b: b.sin() @ b.t(), a)
            return pull(out)[0]

        return m.func.jvp(pulled, (x,), (t,))

    agree(scenario, X, T)


def test_vmap_of_jvp() -> None:
    def scenario(m: Any, x: Any, t: Any) -> Any:
        push = lambda a, d: m.func.jvp(curve, (a,), (d,))  # noqa: E731
        shared = m.func.vmap(push, in_dims=(None, 0))(x[0], t)
        return m.func.vmap(push)(x, t), shared, m.func.vmap(push, in_dims=(0, None))(x, t[0])

    agree(scenario, X, T)


def test_gradients_of_parameters_through_jvp() -> None:
    def scenario(m: Any, x: Any, t: Any, w: Any) -> Any:
        w.requires_grad_()
        out, moved = m.func.jvp(lambda a: (a @ w).tanh(), (x,), (t,))
        return m.autograd.grad((out * moved).sum(), w)

    agree(scenario, X, T, W)


class Cube(Function):
    """A custom function with everything a transformation asks for."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any) -> Any:
        return x * x * x

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 3 * x * x

    @staticmethod
    def jvp(ctx: Any, t: Any) -> Any:
        (x,) = ctx.saved_tensors
        return t * 3 * x * x


@pytest.mark.parametrize("outer", (jacfwd, jacrev), ids=("jacfwd", "jacrev"))
@pytest.mark.parametrize("inner", (jacfwd, jacrev), ids=("jacfwd", "jacrev"))
def test_transformations_of_a_custom_function(outer: Any, inner: Any) -> None:
    x = lucid_gpu.tensor([1.0, 2.0, -1.0])
    second = outer(inner(lambda a: Cube.apply(a).sum()))(x)
    np.testing.assert_allclose(array_of(second), np.diag([6.0, 12.0, -6.0]))


def test_jvp_of_a_custom_function_twice() -> None:
    x, t = lucid_gpu.tensor([1.0, 2.0]), lucid_gpu.tensor([1.0, 10.0])
    _, moved = jvp(lambda a: jvp(Cube.apply, (a,), (t,))[1], (x,), (t,))
    assert moved.tolist() == [6.0, 1200.0]


def test_the_three_names_agree(device: str) -> None:
    x = lucid_gpu.tensor(X, device=device)
    t = lucid_gpu.tensor(T, device=device)
    total = lambda a: (curve(a[0]) @ a[1]).sum()  # noqa: E731
    slope = grad(total)(x)
    moved = jvp(total, (x,), (t,))[1]
    _, pull = vjp(total, x)
    assert moved.item() == pytest.approx((slope * t).sum().item())
    assert (pull(lucid_gpu.ones_like(moved))[0] - slope).abs().max().item() < 1e-12
    columns = vmap(lambda d: jvp(total, (x,), (d,))[1])(lucid_gpu.stack([t, t * 2]))
    assert columns.tolist() == pytest.approx([moved.item(), 2 * moved.item()])


WRITES = {
    "all": lambda x, y: x.copy_(y),
    "numbers": lambda x, y: x.mul_(2),
    "a view": lambda x, y: x[..., ::2].copy_(y[..., ::2]),
    "a row": lambda x, y: x.__setitem__(0, y[1]),
    "nothing": lambda x, y: None,
}


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("name", WRITES)
def test_writes_to_what_jvp_is_called_with_are_seen_outside(name, batched):
    """Of values and of tangents, with and without a batch."""
    shape = (2, 6, 3) if batched else (2, 6)
    arrays = [np.random.default_rng(i).standard_normal(shape) for i in range(4)]

    def run(m):
        def written(x, y):
            WRITES[name](x, y)
            return x * y, x

        def along(x, y, dx, dy):
            return m.func.jvp(written, (x, y), (dx, dy))

        given = [m.tensor(a) for a in arrays]
        call = m.func.vmap(along, in_dims=2) if batched else along
        (value, x), (moved, dx) = call(*given)
        return [t.numpy() for t in (value, x, moved, dx, *given)]

    for mine, other in zip(run(lucid_gpu), run(torch_module()), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-12)


def _rows_set(m, x):
    out = m.zeros(3, dtype=x.dtype)
    out[0] = x[1]
    out[1:] = x[1:] * x[:2]
    out[2] *= x[0]
    return out


def _views_written(m, x):
    square = m.zeros(3, 3, dtype=x.dtype)
    square.diagonal().copy_(x)
    row = square[0]
    row += x * x
    return square @ x


def _added(m, x):
    out = m.zeros(3, dtype=x.dtype)
    out.index_put_((m.tensor([0, 1, 1]),), x * x, accumulate=True)
    return out.scatter_add_(0, m.tensor([2, 2, 0]), x)


@pytest.mark.parametrize("function", [_rows_set, _views_written, _added])
def test_jacfwd_of_functions_that_write_new_memory(function):
    """The memory has no batch, and takes the tangents of all columns."""

    def jacobians(m):
        x = m.tensor([1.0, 2.0, 3.0], dtype=m.float64)
        t = m.func

        def f(x):
            return function(m, x)

        nested = [t.jacfwd(t.jacfwd(f)), t.jacfwd(t.jacrev(f)), t.jacrev(t.jacfwd(f))]
        return [j(x).numpy() for j in (t.jacfwd(f), *nested)]

    for mine, other in zip(jacobians(lucid_gpu), jacobians(torch_module()), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-12)


def test_jacfwd_writes_an_argument_that_it_does_not_differentiate_by():
    x, y = lucid_gpu.tensor([1.0, 2.0, 3.0]), lucid_gpu.ones(3)
    part = y[:2]
    slope = jacfwd(lambda x, y: y.mul_(x) * 2)(x, y)
    assert slope.tolist() == [[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0]]
    assert (y.tolist(), part.tolist()) == ([1.0, 2.0, 3.0], [1.0, 2.0])
    assert type(y) is lucid_gpu.Tensor and y.add_(part.sum()).tolist() == [4.0, 5.0, 6.0]


def test_memory_without_a_batch_does_not_take_examples_that_differ():
    x = lucid_gpu.tensor([1.0, 2.0, 3.0])
    for f in (lambda x: lucid_gpu.zeros(()).copy_(x), lambda x: jvp(_stored, (x,), (x,))[1]):
        with pytest.raises(RuntimeError, match=r"vmap: copy_\(self, \*extra_args\)"):
            vmap(f)(x)


def _stored(x):
    return lucid_gpu.zeros(()).copy_(x)


@pytest.mark.parametrize("inner", ["grad", "jacrev", "vjp"])
@pytest.mark.parametrize("outer", ["jvp", "jacfwd", "linearize", "grad of jvp"])
def test_results_of_nested_transforms_require_no_grad(outer, inner):
    x = lucid_gpu.tensor([1.0, 2.0, 3.0])

    def along(f):
        return lambda x: jvp(f, (x,), (lucid_gpu.ones_like(x),))[1]

    first = {
        "grad": grad(lambda x: (x * x * x).sum()),
        "jacrev": lambda x: jacrev(lambda x: x * x * x)(x).sum(0),
        "vjp": lambda x: vjp(lambda x: x * x * x, x)[1](lucid_gpu.ones_like(x))[0],
    }[inner]
    second = {
        "jvp": along(first),
        "jacfwd": lambda x: jacfwd(first)(x).sum(0),
        "linearize": lambda x: linearize(first, x)[1](lucid_gpu.ones_like(x)),
        "grad of jvp": grad(lambda x: along(first)(x).sum()),
    }[outer]
    result = second(x)
    assert result.tolist() == ([6.0] * 3 if outer == "grad of jvp" else [6.0, 12.0, 18.0])
    assert not result.requires_grad


def test_linearize_inside_other_transforms():
    """PyTorch refuses vmap and gives no derivative."""
    x = lucid_gpu.tensor([1.0, 2.0, 3.0], dtype=lucid_gpu.float64)

    def slope(x):
        return linearize(lambda x: x * x * x, x)[1](lucid_gpu.ones_like(x))

    assert vmap(slope)(lucid_gpu.stack([x, 2 * x])).tolist() == [[3, 12, 27], [12, 48, 108]]
    assert grad(lambda x: slope(x).sum())(x).tolist() == [6, 12, 18]
    assert jvp(slope, (x,), (x,))[1].tolist() == [6, 24, 54]
    assert jacfwd(slope)(x).diagonal().tolist() == [6, 12, 18]
