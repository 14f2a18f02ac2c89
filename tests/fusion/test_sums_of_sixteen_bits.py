"""16-bit floats are rounded where they were written in place, before sums and before steps.

So compensated sums work, and steps of optimizers and levels do not depend on when they are read.
"""

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import modules, torch_module

KINDS = ["bfloat16", "float16"]


def _kahan(m, s, u):
    lost = m.zeros_like(s)
    for _ in range(30):
        y = u - lost
        t = s + y
        lost = (t - s) - y
        s = t
    return s, lost


def _in_place(m, s, u):
    s, left = s.clone(), m.zeros_like(s)
    for _ in range(30):
        left.add_(u)
        before = s.clone()
        s.add_(left)
        left.add_(before.sub_(s))
    return s, left


def _two_sum(m, a, b):
    t = a + b
    part = t.sub(a)
    return t, (a - (t - part)).add(b - part)


def _unchanged(m, w, _):
    before = w.clone()
    w = w.clone().mul_(1.001)
    return w, w - before, before * 1 - w, w.clone().neg_().add_(before)


def _error_feedback(m, w, g):
    error, w = m.zeros_like(w), w.clone()
    for _ in range(8):
        error.add_(g)
        w.add_(m.sign(error), alpha=0.5)
        error.sub_(m.sign(error).mul_(0.5))
    return w, error


def _negated(m, a, b):
    t = -(a + b)
    return t, b + (a + t), m.sub(b, -t), (a[:1] + b[:1]) + a


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "program", [_kahan, _in_place, _two_sum, _unchanged, _error_feedback, _negated]
)
def test_what_a_sum_lost_is_found(program, kind, device):
    torch_module()  # skips without it
    rng = np.random.default_rng(0)
    a, b = 10 * rng.standard_normal(40), 1e-2 * rng.standard_normal(40)
    results = [
        program(m, *(m.tensor(x, dtype=getattr(m, kind), device=where) for x in (a, b)))
        for m, where in modules(device)
    ]
    ours, theirs = [[x.float().cpu().numpy() for x in parts] for parts in results]
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_pass_what_is_rounded(kind, device):
    grads = []
    for m, where in modules(device):
        x, y = (
            m.tensor([v, 2.0], dtype=getattr(m, kind), device=where, requires_grad=True)
            for v in (3.0, -5.0)
        )
        z = (x + y) - x * 2 + (x - y)
        (gx,) = m.autograd.grad((z * z).sum(), x, create_graph=True)
        (gx * gx).sum().backward()
        grads.append([t.grad.float().tolist() for t in (x, y)])
    assert all(g == grads[0] for g in grads)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_does_not_depend_on_when_it_is_read(kind, device):
    weights = []
    for read in (True, False):
        rng = np.random.default_rng(1)
        kept = {"dtype": getattr(lucid_gpu, kind), "device": device}
        w, *gradients = lucid_gpu.tensor(rng.standard_normal((7, 30)), **kept).unbind(0)
        w, mean, square = w.clone(), lucid_gpu.zeros(30, **kept), lucid_gpu.zeros(30, **kept)
        for g in gradients:
            mean.mul_(0.9).add_(g, alpha=0.1)
            square.mul_(0.99).addcmul_(g, g, value=0.01)
            w.mul_(0.99).addcdiv_(mean, square.sqrt().add_(1e-3), value=-0.1)
            if read:
                w.tolist(), mean.tolist(), square.tolist()
        weights.append(w.tolist())
    assert weights[0] == weights[1]


STEPPED = {
    **{name: lambda m, p, q, name=name: getattr(m, name)(p)
       for name in ("floor", "ceil", "round", "trunc", "frac", "sign", "sgn")},
    "round to decimals": lambda m, p, q: m.round(p, decimals=1),
    "floor_divide": lambda m, p, q: p // 0.5,
    "fmod": lambda m, p, q: m.fmod(p, q),
    "remainder": lambda m, p, q: m.remainder(p, q),
    "int8": lambda m, p, q: p.round().clamp(-128, 127).to(m.int8),
    "written": lambda m, p, q: p.clone().round_(),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", STEPPED)
def test_functions_with_steps_read_what_would_be_stored(name, kind, device):
    torch_module()  # skips without it
    rng = np.random.default_rng(3)
    for size in (1e-5, 1.0, 8.0):
        x, y, q = (rng.standard_normal(2000).astype(np.float32) for _ in range(3))
        results = []
        for m, where in modules(device):
            a, b, c = (
                m.tensor(v, device=where).to(getattr(m, kind)) for v in (x * size, y * size, q)
            )
            results.append(STEPPED[name](m, a * b, c).float().cpu().numpy())
        np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [0.1, 0.3, -2.2])
def test_a_number_is_a_divisor_as_it_is_and_a_modulus_as_it_would_be_stored(number, kind, device):
    torch_module()  # skips without it
    x = np.append(np.random.default_rng(5).standard_normal(500) * 9, [-77.5, -20.5])
    results = []
    for m, where in modules(device):
        t = m.tensor(x, dtype=m.float32, device=where).to(getattr(m, kind))
        made = t // number, m.div(t, number, rounding_mode="trunc"), t % number, t.fmod(number)
        results.append([y.float().cpu().numpy() for y in made])
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_do_not_depend_on_when_their_operand_was_read(kind, device):
    rng = np.random.default_rng(4)
    x, y = (
        lucid_gpu.tensor(3 * rng.standard_normal(2000), device=device).to(getattr(lucid_gpu, kind))
        for _ in range(2)
    )
    stored, pending = x * y, x * y
    stored.tolist()
    assert stored.floor().tolist() == pending.floor().tolist()
    assert stored.frac().tolist() == pending.frac().tolist()
    assert stored.fmod(y).tolist() == pending.fmod(y).tolist()


def rounded(x, kind):
    """Float64 numbers as the nearest 16-bit ones, as float32: what one rounding gives."""
    return lucid_gpu.tensor(x).float().to(getattr(lucid_gpu, kind)).float().numpy()


PRODUCTS = {
    "addmm": ((6, 5), (6, 9), (9, 5)),
    "addmv": ((6,), (6, 9), (9,)),
    "baddbmm": ((3, 6, 5), (3, 6, 9), (3, 9, 5)),
    "addbmm": ((6, 5), (3, 6, 9), (3, 9, 5)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("factors", [(1, 1), (-4.75, 2.5), (0, 1)])
def test_what_is_added_to_a_product_is_rounded_with_it(name, factors, kind, device):
    beta, alpha = factors
    rng = np.random.default_rng(0)
    c, a, b = (rng.integers(-40, 41, shape) / 8 for shape in PRODUCTS[name])  # sums are exact
    product = (a @ b).sum(0) if name == "addbmm" else a @ b
    given = [
        lucid_gpu.tensor(x, dtype=getattr(lucid_gpu, kind), device=device, requires_grad=True)
        for x in (c, a, b)
    ]
    result = getattr(lucid_gpu, name)(*given, beta=beta, alpha=alpha)
    assert result.dtype is given[0].dtype
    expected = rounded(beta * c + alpha * product, kind)
    np.testing.assert_array_equal(result.detach().float().cpu().numpy(), expected)
    result.backward(lucid_gpu.ones_like(result))
    ones = np.ones_like(product)
    right = np.swapaxes(b, -1, -2) if b.ndim > 1 else b[None]
    of_a = rounded(alpha * ((ones[:, None] if b.ndim == 1 else ones) @ right), kind)
    assert [x.grad.dtype for x in given] == [result.dtype] * 3
    np.testing.assert_array_equal(given[0].grad.float().cpu().numpy(), np.full(c.shape, beta))
    np.testing.assert_array_equal(given[1].grad.float().cpu().numpy(), of_a)


def test_an_operand_that_no_gradient_reads_may_be_written(device):
    kept = {"dtype": lucid_gpu.bfloat16, "device": device}
    x, w = lucid_gpu.ones(2, 3, **kept), lucid_gpu.ones(3, 4, **kept).requires_grad_()
    frozen = lucid_gpu.ones(4, 5, **kept)
    y = lucid_gpu.addmm(lucid_gpu.zeros(5, **kept), lucid_gpu.addmm(w[0], x, w), frozen)
    w_before = w.detach().clone()
    with lucid_gpu.no_grad():
        w.add_(1)  # x needs no gradient
    y.sum().backward()
    assert w.grad.tolist() == [[20.0] * 4] + [[10.0] * 4] * 2 and (w == w_before + 1).all()


STEPS = {
    "lerp": lambda m, a, b, c: m.lerp(a, b, 0.3),
    "lerp from its end": lambda m, a, b, c: a.clone().lerp_(b, 0.7),
    "addcmul": lambda m, a, b, c: m.addcmul(a, b, c, value=0.3),
    "addcdiv": lambda m, a, b, c: a.clone().addcdiv_(b, c, value=-0.3),
    "add": lambda m, a, b, c: a.add(b, alpha=0.3),
    "sub": lambda m, a, b, c: m.sub(a, b, alpha=0.3),
    "add_": lambda m, a, b, c: a.clone().add_(b, alpha=3),
    "glu": lambda m, a, b, c: m.nn.functional.glu(a),
    "logaddexp2": lambda m, a, b, c: m.logaddexp2(a, b),
    "logit": lambda m, a, b, c: m.logit(a, eps=0.1),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", STEPS)
def test_one_op_is_rounded_once_where_each_is_computed_on_its_line(name, kind, device):
    rng = np.random.default_rng(1)
    given = [
        lucid_gpu.tensor(rng.standard_normal(998), dtype=getattr(lucid_gpu, kind), device=device)
        for _ in range(3)
    ]
    fused = STEPS[name](lucid_gpu, *given)
    assert fused.dtype is given[0].dtype
    with lucid_gpu.fusion.eager():
        assert STEPS[name](lucid_gpu, *given).tolist() == fused.tolist()
