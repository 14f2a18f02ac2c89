"""A sum over what was broadcast is the gradient itself: writes to one leave the others alone."""

import itertools

import numpy as np
import pytest

import lucid_gpu

WRITES = [lambda g: g.add_(1), lambda g: g.mul_(-2), lambda g: g.zero_()]
PROGRAMS = {
    "one": (1, lambda x, b: x + b),
    "two of one sum": (2, lambda x, b, c: x + b + c),
    "three of one sum": (3, lambda x, b, c, d: x - b + c + d),
    "a sum and what is made of it": (2, lambda x, b, c: x * (b * c) + c),
    "twice": (1, lambda x, b: (x + b) * b),
    "by a view": (2, lambda x, b, c: x * b.reshape(1, -1) + c.reshape(-1)),
    "of a sum": (2, lambda x, b, c: x + (b + c).exp()),
}


def _made(device, count, columns=5, rows=3):
    rng = np.random.default_rng(count)
    x = rng.standard_normal((rows, columns))
    leaves = [x, *[rng.standard_normal(columns) for _ in range(count)]]
    return [lucid_gpu.tensor(a, device=device, requires_grad=True) for a in leaves]


def _gradients(device, program, count, columns, rows, passes):
    leaves = _made(device, count, columns, rows)
    y = program(*leaves)
    g = lucid_gpu.arange(y.numel(), device=device, dtype=y.dtype).reshape(y.shape) + 1
    for _ in range(passes):
        y.backward(g, retain_graph=True)
    return leaves, y, g


@pytest.mark.parametrize("shape", [(3, 5), (1, 5)], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_writing_a_gradient_leaves_the_others_alone(name, shape, device):
    count, program = PROGRAMS[name]
    rows, columns = shape
    leaves, _, _ = _gradients(device, program, count, columns, rows, 1)
    wanted = [leaf.grad.tolist() for leaf in leaves]
    for written, write in itertools.product(range(len(leaves)), WRITES):
        leaves, y, g = _gradients(device, program, count, columns, rows, 1)
        write(leaves[written].grad)  # nobody has read it yet
        for i, leaf in enumerate(leaves):
            if i != written:
                assert leaf.grad.tolist() == wanted[i], (written, i)
        again = lucid_gpu.autograd.grad(y, leaves, g)
        assert [a.tolist() for a in again] == wanted
        assert g.flatten().tolist() == [i + 1.0 for i in range(g.numel())]


@pytest.mark.parametrize("name", PROGRAMS)
def test_passes_add_up(name, device):
    count, program = PROGRAMS[name]
    once, _, _ = _gradients(device, program, count, 5, 3, 1)
    thrice, _, _ = _gradients(device, program, count, 5, 3, 3)
    for a, b in zip(once, thrice, strict=True):
        assert np.allclose(3 * np.array(a.grad.tolist()), b.grad.tolist())


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_that_are_given_are_apart(name, device):
    count, program = PROGRAMS[name]
    leaves = _made(device, count)
    y = program(*leaves)
    g = lucid_gpu.ones_like(y)
    first = lucid_gpu.autograd.grad(y, leaves, g, retain_graph=True)
    kept = [a.clone() for a in first]
    for i, a in enumerate(first):
        a.add_(7)
        for j, other in enumerate(first):
            assert lucid_gpu.equal(other, kept[j] + (7 if j <= i else 0))
    assert lucid_gpu.equal(g, lucid_gpu.ones_like(y))
