"""Gradients flow through the standard's functions; their own compositions have them right."""

import numpy
import pytest

import lucid_gpu
import lucid_gpu.array_api as xp
from lucid_gpu.autograd import gradcheck

RNG = numpy.random.default_rng(0)
X, Y = RNG.normal(size=(2, 3)), RNG.normal(size=(3,))
PLACES = [2, 0]

CASES = {
    "clip by tensors": lambda x, y: xp.clip(x, min=y - 0.7, max=y + 0.7),
    "concat": lambda x, y: xp.concat([x, y], axis=None),
    "linspace": lambda x, y: xp.linspace(x[0, 0], y[0], 4, endpoint=False),
    "where": lambda x, y: xp.where(x > 0, x, y),
    "take": lambda x, y: xp.take(x, xp.asarray(PLACES, device=x.device), axis=1) + y[0],
    "sort": lambda x, y: xp.sort(x, descending=True) * xp.sort(y),
    "unique_values": lambda x, y: xp.unique_values(x * y),
    "cumulative_sum": lambda x, y: xp.cumulative_sum(x, axis=1, include_initial=True)[:, 1:] * y,
    "diff": lambda x, y: xp.diff(x, prepend=xp.expand_dims(y[:2], axis=1)),
    "std": lambda x, y: xp.std(x, axis=1, correction=1) * xp.var(y),
    "vecdot": lambda x, y: xp.vecdot(x, y),
    "cross": lambda x, y: xp.linalg.cross(x, y),
    "vector_norm": lambda x, y: xp.linalg.vector_norm(x, axis=1, ord=3) * y[0],
    "sum in a type": lambda x, y: xp.sum(x * y, dtype=xp.float64),
    "repeat": lambda x, y: xp.repeat(x, xp.asarray([1, 2, 0], device=x.device), axis=1) * y,
    "gammaincc": lambda x, y: xp.special.gammaincc(2.5, x * x) + xp.special.gammainc(1.0, y * y),
    "betainc": lambda x, y: xp.special.betainc(2.0, 0.5, xp.special.expit(x)) * y,
    "betaln": lambda x, y: xp.special.betaln(xp.exp(x), xp.exp(y)),
    "fft": lambda x, y: xp.real(xp.fft.fft(x * y)),
    "hypot in the common type": lambda x, y: xp.hypot(xp.astype(x, xp.float64), y),
}


WRITTEN = ["exp", "sqrt", "tanh", "reciprocal", "square", "expm1", "tan"]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_result_may_be_written(name, device):
    x = lucid_gpu.tensor([0.5, 0.7], dtype=lucid_gpu.float64, device=device, requires_grad=True)
    y = getattr(xp, name)(x)
    y[0] = 3.0
    xp.sum(y).backward()
    z = lucid_gpu.tensor(0.7, dtype=lucid_gpu.float64, device=device, requires_grad=True)
    getattr(xp, name)(z).backward()
    assert x.grad.tolist() == [0.0, z.grad.item()]


def test_parts_may_be_written(device):
    x = lucid_gpu.tensor([[1.0, 2.0], [3.0, 4.0]], device=device, requires_grad=True)
    first, second = xp.unstack(x * 2)
    first[0] = 7.0
    xp.sum(first * second).backward()
    assert x.grad.tolist() == [[0.0, 16.0], [14.0, 8.0]]


@pytest.mark.parametrize("name", CASES)
def test_gradients(name, device):
    if "inc" in name:
        pytest.importorskip("scipy", reason="it computes the values")
    inputs = [lucid_gpu.tensor(a, device=device, requires_grad=True) for a in (X, Y)]
    assert gradcheck(CASES[name], inputs)


def test_names_that_it_has_not():
    with pytest.raises(AttributeError, match="has no attribute 'bdtr'"):
        xp.special.bdtr
