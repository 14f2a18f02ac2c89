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
