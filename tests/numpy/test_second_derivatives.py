"""Second derivatives on every device, of a few functions of each family: HIPS autograd's."""

import numpy

from tests.numpy.agreement import named, numbers, same_gradients

X, V = numbers(3, 3, low=0.3, high=2.0), numbers(3, seed=1, low=0.5, high=1.5)
A = X + 2 * numpy.eye(3)

CASES = [
    ("elementwise", lambda m, x, v: m.exp(m.sin(x)) * m.log(v), (X, V)),
    ("extrema", lambda m, x: m.max(x**2, axis=0), (X,)),
    ("moments", lambda m, x: m.var(x, axis=0), (X,)),
    ("cumsum", lambda m, x: m.cumsum(x**2, axis=1), (X,)),
    ("picked", lambda m, x: x[1:, ::2] ** 3 * x[:2, 1:], (X,)),
    ("einsum", lambda m, x, v: m.einsum("ij,jk,k->i", x, x, v), (X, V)),
    ("solve", lambda m, a, v: m.linalg.solve(a, v), (A, V)),
    ("transform", lambda m, x: m.abs(m.fft.fft(x)) ** 2, (V,)),
]


@named(CASES)
def test_second_derivatives(call, arrays, device):
    same_gradients(call, arrays, device)
