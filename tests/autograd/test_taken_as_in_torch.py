"""What PyTorch's autograd takes: shapes changed in place under tangents, complex views of them,
Functions with a ctx in batched checks, second derivatives beside an intermediate.
"""

from __future__ import annotations

import importlib
import itertools
import warnings
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import torch_module


def outcome(module: Any, call: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            parts = call(module)
        except Exception as error:
            return type(error)
    return [np.array(p.detach().tolist()) if hasattr(p, "detach") else p for p in parts]


def compare(cases: Any, least: int) -> None:
    """Run cases on both modules; ``least`` of them have values in PyTorch."""
    torch, wrong, right = torch_module(), [], 0
    for name, call in cases:
        expected = outcome(torch, call)
        if isinstance(expected, type):
            continue
        right += 1
        found = outcome(lucid_gpu, call)
        alike = isinstance(found, list) and all(
            np.shape(a) == np.shape(b) and np.allclose(a, b, 1e-4, 1e-4)
            for a, b in zip(found, expected)
        )
        if not alike:
            wrong.append(f"{name}: {found} for {expected}")
    assert not wrong, f"{len(wrong)} of {right}\n" + "\n".join(wrong)
    assert right >= least, right


def forward_ad(m: Any) -> Any:
    return importlib.import_module(f"{m.__name__}.autograd.forward_ad")


# --- shapes changed in place ----------------------------------------------------------------------

CHANGES: dict[str, Any] = {
    "squeeze_": lambda m, x: x.squeeze_(),
    "squeeze_(1)": lambda m, x: x.squeeze_(0),
    "unsqueeze_": lambda m, x: x.unsqueeze_(-1),
    "t_": lambda m, x: x.t_(),
    "transpose_": lambda m, x: x.transpose_(0, 1),
    "swapaxes_": lambda m, x: x.swapaxes_(0, -1),
    "swapdims_": lambda m, x: x.swapdims_(0, 1),
    "as_strided_": lambda m, x: x.as_strided_((3, 1), (1, 3)),
    "two": lambda m, x: x.t_().unsqueeze_(0).squeeze_(-1),
    "written after": lambda m, x: x.t_().mul_(3.0),
    "written before": lambda m, x: x.mul_(3.0).t_(),
    "part written": lambda m, x: x.squeeze_()[1:].mul_(x[0] + 2),
}
MADE: dict[str, Any] = {
    "an input": lambda x: x,
    "a result": lambda x: x * 1,
    "pending": lambda x: x.sin(),
    "a view": lambda x: (x * 2).view(3, 1).t(),
    "a view of an input": lambda x: x[:],
    "turned": lambda x: (x * 2).t().contiguous().t(),
}


def test_shapes_that_change_under_tangents() -> None:
    def cases() -> Any:
        for (change, make), made, turned in itertools.product(CHANGES.items(), MADE, (False, True)):

            def run(x: Any, m: Any, make: Any = make, made: str = made) -> Any:
                y = MADE[made](x)
                base = y
                make(m, y)
                return (y * y).sin(), base * 2

            def tangent(m: Any, turned: bool = turned) -> Any:
                v = m.arange(3.0).view(1, 3) * 10 + 1
                return v.t().contiguous().t() if turned else v

            def dual(m: Any, run: Any = run, tangent: Any = tangent) -> Any:
                ad = forward_ad(m)
                x = m.arange(3.0).view(1, 3)
                with ad.dual_level():
                    pairs = [ad.unpack_dual(o) for o in run(ad.make_dual(x, tangent(m)), m)]
                    return [part for pair in pairs for part in pair]

            def jvp(m: Any, run: Any = run, tangent: Any = tangent) -> Any:
                out, moved = m.func.jvp(
                    lambda x: run(x * 1, m), (m.arange(3.0).view(1, 3),), (tangent(m),)
                )
                return [*out, *moved]

            def nested(m: Any, run: Any = run, tangent: Any = tangent) -> Any:
                x = (m.arange(3.0).view(1, 3),)
                return m.func.jvp(
                    lambda x: m.func.jvp(lambda x: run(x * x, m)[0], (x,), (tangent(m),))[1],
                    x,
                    (tangent(m),),
                )

            for how, call in (("dual", dual), ("jvp", jvp), ("nested", nested)):
                yield f"{change} of {made}, {turned}, {how}", call

    compare(cases(), 300)


# --- complex views --------------------------------------------------------------------------------

LAID: dict[str, Any] = {
    "as the primal": lambda m, v: v,
    "turned": lambda m, v: v.transpose(0, 2).contiguous().transpose(0, 2),
    "rows turned": lambda m, v: v.transpose(0, 1).contiguous().transpose(0, 1),
    "expanded": lambda m, v: v[:1].expand(2, 3, 2),
    "one number": lambda m, v: m.ones(()).expand(2, 3, 2),
    "with gaps": lambda m, v: m.arange(48.0).view(4, 6, 2)[::2, ::2],
}
BEFORE: dict[str, Any] = {
    "nothing": lambda m, x: x,
    "a product": lambda m, x: x * x,
    "a transpose": lambda m, x: x.transpose(0, 1),
    "a copied transpose": lambda m, x: x.transpose(0, 1).contiguous(),
    "a stack": lambda m, x: m.stack([x[..., 0], x[..., 1]], -1),
    "a matrix product": lambda m, x: x @ m.eye(2),
    "a slice": lambda m, x: x[:, 1:],
}
AFTER: dict[str, Any] = {
    "view_as_complex": lambda m, y: m.view_as_complex(y),
    "and back": lambda m, y: m.view_as_real(m.view_as_complex(y)).sin(),
    "flat": lambda m, y: m.view_as_complex(y.contiguous()).view(-1),
    "as_strided": lambda m, y: y.as_strided((2, 2), (1, 2), 1),
    "unflatten": lambda m, y: y.unflatten(-1, (2, 1)),
}


def test_views_by_layout_of_tangents_that_lie_otherwise() -> None:
    def cases() -> Any:
        for laid, before, after in itertools.product(LAID, BEFORE, AFTER):

            def function(m: Any, before: str = before, after: str = after) -> Any:
                return lambda x: AFTER[after](m, BEFORE[before](m, x))

            def given(m: Any, laid: str = laid) -> Any:
                x = m.arange(12.0).view(2, 3, 2)
                return x, LAID[laid](m, x + 100)

            def jvp(m: Any, f: Any = function, given: Any = given) -> Any:
                x, v = given(m)
                return m.func.jvp(f(m), (x,), (v,))

            def nested(m: Any, f: Any = function, given: Any = given) -> Any:
                x, v = given(m)
                return m.func.jvp(lambda x: m.func.jvp(f(m), (x * x,), (v,))[1], (x,), (v,))

            def batched(m: Any, f: Any = function, given: Any = given) -> Any:
                x, v = given(m)
                each = m.stack([v, v * 2])
                return (m.func.vmap(lambda v: m.func.jvp(f(m), (x,), (v,))[1])(each),)

            for how, call in (("jvp", jvp), ("nested", nested), ("batched", batched)):
                yield f"{after} after {before}, tangent {laid}, {how}", call

    compare(cases(), 450)


# --- Functions with a ctx -------------------------------------------------------------------------


def functions(m: Any) -> dict[str, Any]:
    class Cube(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            ctx.save_for_forward(x)
            return m.as_tensor(x.detach().numpy() ** 3)  # outside of what is batched

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return 3 * ctx.saved_tensors[0] ** 2 * g

        @staticmethod
        def jvp(ctx: Any, v: Any) -> Any:
            return 3 * ctx.saved_tensors[0] ** 2 * v

    class Both(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, k: float) -> Any:
            ctx.save_for_backward(x, y)
            ctx.save_for_forward(x, y)
            ctx.k = k
            return x * y, (x + y) * k

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            x, y = ctx.saved_tensors
            return g * y + h * ctx.k, g * x + h * ctx.k, None

        @staticmethod
        def jvp(ctx: Any, u: Any, v: Any, _: Any) -> Any:
            x, y = ctx.saved_tensors
            return u * y + x * v, (u + v) * ctx.k

    constant = m.tensor([0.3, 2.0, 1.5], dtype=m.float64)
    return {
        "one": lambda x, y: Cube.apply(x),
        "between": lambda x, y: Cube.apply(x * 2).sin() * y,
        "several": lambda x, y: Both.apply(x, y, 2.0),
        "of one of two": lambda x, y: Both.apply(x, constant, 2.0)[0] * y,
        "one in another": lambda x, y: Both.apply(Cube.apply(x), x * y, 3.0),
        "twice": lambda x, y: Cube.apply(Cube.apply(x)) + Cube.apply(y),
    }


@pytest.mark.parametrize("name", functions(lucid_gpu))
@pytest.mark.parametrize("fast", [False, True])
def test_batched_checks_of_functions_with_a_ctx(name: str, fast: bool) -> None:
    for m in (torch_module(), lucid_gpu):
        inputs = [
            m.tensor(v, dtype=m.float64, requires_grad=True)
            for v in ([1.0, 2.0, 0.5], [0.3, 2.0, 1.5])
        ]
        assert m.autograd.gradcheck(
            functions(m)[name],
            inputs,
            check_forward_ad=True,
            check_batched_forward_grad=True,
            fast_mode=fast,
        )


def test_vmap_still_refuses_functions_with_a_ctx() -> None:
    function = functions(lucid_gpu)["one"]
    with pytest.raises(RuntimeError, match="must override the setup_context staticmethod"):
        lucid_gpu.func.vmap(lambda x: function(x, x))(lucid_gpu.ones(2, 3))


# --- second derivatives beside an intermediate ----------------------------------------------------


def saving(backward: Any) -> Any:
    class Saves(lucid_gpu.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            e = x.exp()
            ctx.save_for_backward(e, y)
            return e * y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return backward(g, *ctx.saved_tensors)

    return Saves.apply


BACKWARDS: dict[str, Any] = {
    "recorded": lambda g, e, y: (g * e * y, g * e),
    "detached": lambda g, e, y: (g * e.detach() * y.detach(), g * e.detach()),
    "without history": lambda g, e, y: ((g * e * y).detach(), (g * e).detach()),
    "by NumPy": lambda g, e, y: (
        lucid_gpu.as_tensor(g.detach().numpy() * e.detach().numpy() * y.detach().numpy()),
        g * e,
    ),
    "a constant": lambda g, e, y: (e * y, e),
    "one": lambda g, e, y: (g * e * y, None),
}


@pytest.mark.parametrize("name", BACKWARDS)
def test_first_derivatives_are_given_and_second_ones_by_inputs_refused(name: str) -> None:
    x = lucid_gpu.tensor([0.5, 1.0], requires_grad=True)
    y = lucid_gpu.tensor([2.0, 3.0], requires_grad=True)
    v = lucid_gpu.ones(2, requires_grad=True)
    z = saving(BACKWARDS[name])(x, y)
    (g,) = lucid_gpu.autograd.grad(z, x, v, create_graph=True)
    np.testing.assert_allclose(g.tolist(), np.exp([0.5, 1.0]) * [2.0, 3.0], rtol=1e-6)
    for wanted in ([x], [y], [x, y], [x, v], None):
        with pytest.raises(RuntimeError, match=r"saved an intermediate, saved_tensors\[0\]"):
            if wanted is None:
                g.sum().backward(retain_graph=True)
            else:
                lucid_gpu.autograd.grad(g.sum(), wanted, retain_graph=True)
    if name in ("recorded", "detached", "one"):  # they are linear in the cotangent
        (by_cotangent,) = lucid_gpu.autograd.grad(g.sum(), v, retain_graph=True)
        np.testing.assert_allclose(by_cotangent.tolist(), g.tolist(), rtol=1e-6)
    z.sum().backward(create_graph=True)  # of which nobody asks more
    np.testing.assert_allclose(x.grad.tolist(), g.tolist(), rtol=1e-6)


# --- what backward returns ------------------------------------------------------------------------

Pair = namedtuple("Pair", "a b")
RETURNED: dict[str, Any] = {
    "list": (lambda g: [g, g], "return a tuple"),
    "generator": (lambda g: (g for _ in range(2)), "return a tuple"),
    "map": (lambda g: map(abs, [g, g]), "return a tuple"),
    "dict": (lambda g: {0: g, 1: g}, "return a tuple"),
    "set": (lambda g: {g}, "return a tuple"),
    "numpy.ndarray": (lambda g: np.ones(3), "return a tensor"),
    "float": (lambda g: 1.0, "return a tensor"),
    "numpy.float32": (lambda g: np.float32(1), "return a tensor"),
}


@pytest.mark.parametrize("kind", RETURNED)
def test_what_is_no_tuple_of_tensors_is_named(kind: str) -> None:
    value, mend = RETURNED[kind]

    def function(returned: Any) -> Any:
        class Returns(lucid_gpu.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any, y: Any) -> Any:
                return x * y

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return returned(g)

        x, y = [lucid_gpu.ones(3, requires_grad=True) for _ in range(2)]
        Returns.apply(x, y).sum().backward()
        return x.grad

    with pytest.raises(RuntimeError, match=rf"\(got {kind}\): Returns.backward ret.*{mend}"):
        function(value)
    with pytest.raises(RuntimeError, match=rf"\(got {kind}\) as gradient 1, of y: return a tenso"):
        function(lambda g: (g, value(g)))
    assert function(lambda g: Pair(g, g)).tolist() == [1.0] * 3


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("name", ["saved_tensors", "saved_variables"])
def test_setting_saved_tensors_names_save_for_backward(name: str, once: bool) -> None:
    class Sets(lucid_gpu.autograd.Function):
        clear_saved_tensors_on_access = once

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            setattr(ctx, name, (x,))
            return x * 1

    with pytest.raises(AttributeError, match=rf"'{name}' of 'SetsBackward'.*save_for_backward"):
        Sets.apply(lucid_gpu.ones(2, requires_grad=True))
