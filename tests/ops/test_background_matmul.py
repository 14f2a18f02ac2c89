"""A linear layer's weight gradient is computed beside the rest of the pass; nobody sees that."""

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import nn
from lucid_gpu.autograd import Function
from lucid_gpu.devices import background_matmul, blas, threads
from lucid_gpu.ops.matmul import BackgroundCell

pytestmark = pytest.mark.skipif(blas._controls is None, reason="this NumPy brings no OpenBLAS")


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    """Products of any size are background_matmul."""
    count, put = blas._controls
    before = count()
    put(2)
    monkeypatch.setattr(threads, "team", threads.Team(2))
    monkeypatch.setattr(blas, "SHARED_FROM", 1)
    monkeypatch.setattr(background_matmul, "PART", 1000)
    monkeypatch.setattr(background_matmul, "ROWS", 1)
    yield
    assert (count(), blas.begun.background) == (2, [])
    put(before)


@pytest.fixture
def begun(monkeypatch):
    """All background_matmul products, in the order in which they began."""
    found = []

    class Noted(background_matmul.BackgroundMatmul):
        def __init__(self, *given):
            found.append(self)
            super().__init__(*given)

    monkeypatch.setattr("lucid_gpu.devices.numpy_backend.BackgroundMatmul", Noted)
    return found


def network():
    lucid_gpu.manual_seed(0)
    return nn.Sequential(
        nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 40), nn.Tanh(), nn.Linear(40, 5)
    )


def gradients(model, x):
    model.zero_grad()
    model(x).square().sum().backward()
    return [p.grad.numpy().copy() for p in model.parameters()]


@pytest.fixture
def x():
    return lucid_gpu.randn(16, 20, generator=lucid_gpu.Generator().manual_seed(1))


def test_gradients_are_those_of_products_at_once(begun, x, monkeypatch):
    model = network()
    found = gradients(model, x)
    assert len(begun) == 2  # the first layer's input wants no gradient
    assert all((a == b).all() for a, b in zip(found, gradients(model, x), strict=True))
    monkeypatch.setattr(blas, "SHARED_FROM", 1 << 60)
    for a, b in zip(found, gradients(model, x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_all_have_ended_with_the_pass(begun, x):
    model = network()
    model(x).sum().backward()
    assert [one._order for one in begun] == [None, None]
    assert type(model[2].weight.grad._expr.leaves[0]) is BackgroundCell  # until somebody reads it
    model[2].weight.grad.sum().item()


def test_they_end_with_a_pass_that_fails(begun, x):
    class Fails(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            assert begun[0]._order is None  # it may write what the product reads
            raise KeyError("mine")

    one, two = nn.Linear(20, 30), nn.Linear(30, 5)
    with pytest.raises(KeyError, match="mine"):
        two(Fails.apply(one(x))).sum().backward()
    assert len(begun) == 1


@pytest.mark.parametrize("where", ["tensor", "leaf", "accumulated"])
def test_hooks_may_write_what_a_product_reads(begun, x, where):
    model = network()
    expected = gradients(model, x)
    begun.clear()
    hidden = model[1](model[0](x))
    seen = []

    def write(g):
        seen.extend([one._order for one in begun])
        hidden.data.fill_(0)

    if where == "tensor":
        hidden.register_hook(write)
    elif where == "leaf":
        model[2].weight.register_hook(write)
    else:
        model[2].weight.register_post_accumulate_grad_hook(write)
    model.zero_grad()
    model[4](model[3](model[2](hidden))).square().sum().backward()
    assert seen and not any(seen)
    assert (model[2].weight.grad.numpy() == expected[2]).all()


def test_gradients_add_up_and_are_shared(begun, x):
    """A weight that is used twice: its gradients are read within the pass."""
    layer = nn.Linear(20, 20)
    y = layer(layer(x.requires_grad_()))
    y.sum().backward()
    (once,) = lucid_gpu.autograd.grad(layer(layer(x)).sum(), layer.weight)
    assert (once == layer.weight.grad).all()
    layer(layer(x)).sum().backward()
    assert (layer.weight.grad == 2 * once).all()
    assert len(begun) == 6


def test_a_large_product_has_all_threads():
    count, _ = blas._controls
    ones = np.ones((8, 8), np.float32)
    one = background_matmul.BackgroundMatmul(ones, ones, np.empty_like(ones))
    assert count() == 1
    assert blas.on_few_threads(blas.SHARED_FROM, lambda: (count(), one._order)) == (2, None)
    assert (one.out == 8).all()


@pytest.mark.parametrize(
    "rows, multiplications, parts", [(512, 33e6, 2), (4096, 69e9, 16), (7, 1e9, 2)]
)
def test_parts_are_not_narrow(rows, multiplications, parts, monkeypatch):
    """All of the second matrix is read for each."""
    monkeypatch.undo()
    cuts = background_matmul._cuts(rows, int(multiplications))
    assert len(cuts) == parts
    assert sum([[*range(rows)][cut] for cut in cuts], []) == [*range(rows)]


def test_errors_of_helpers_are_raised_at_the_end():
    shapes = (8, 3), (4, 8), (8, 8)
    a = background_matmul.BackgroundMatmul(*[np.ones(shape, np.float32) for shape in shapes])
    with pytest.raises(ValueError, match="matmul"):
        a.end()
    a.end()
