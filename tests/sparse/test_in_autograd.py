"""Sparse tensors under what autograd does to graphs: checkpoints, hooks, functional, grad()."""

from __future__ import annotations

import pytest

import lucid_gpu
from lucid_gpu.autograd import functional, graph
from lucid_gpu.utils.checkpoint import checkpoint

PLACES = [[0, 0, 1], [1, 1, 0]]
EXPECTED = [10.0, 10.0, 2.0]


def product(values):
    where = values.device
    s = lucid_gpu.sparse_coo_tensor(lucid_gpu.tensor(PLACES, device=where), values, (2, 2))
    return s * 2 @ lucid_gpu.arange(4.0, device=where).reshape(2, 2)


@pytest.fixture
def values(device):
    return lucid_gpu.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)


def test_checkpoint(values):
    checkpoint(product, values, use_reentrant=False).sum().backward()
    assert values.grad.tolist() == EXPECTED


def test_saved_tensor_hooks_see_the_sparse_tensor(values):
    seen = []

    def pack(tensor):
        seen.append(tensor.is_sparse)
        return tensor

    d = lucid_gpu.ones(2, 2, device=values.device, requires_grad=True)
    with graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        s = lucid_gpu.sparse_coo_tensor(PLACES, values, (2, 2), device=values.device)
        y = s @ d
    y.sum().backward()
    assert seen == [True, False]
    assert values.grad.tolist() == [2.0] * 3 and d.grad.tolist() == [[3.0, 3.0]] * 2


def test_save_on_cpu(values):
    with graph.save_on_cpu():
        y = product(values)
    y.sum().backward()
    assert values.grad.tolist() == EXPECTED


def test_functional(values):
    hessian = functional.hessian(lambda v: product(v).pow(2).sum(), values.detach())
    assert hessian.tolist() == [[104, 104, 0], [104, 104, 0], [0, 0, 8]]
    assert functional.jacobian(product, values.detach()).shape == (2, 2, 3)


def test_grad_and_backward_with_respect_to_a_sparse_tensor(values):
    s = lucid_gpu.sparse_coo_tensor(PLACES, values, (2, 2), device=values.device)
    y = (s @ lucid_gpu.arange(4.0, device=values.device).reshape(2, 2)).sum()
    (g,) = lucid_gpu.autograd.grad(y, s, retain_graph=True)
    assert g.is_sparse and g.to_dense().tolist() == [[0, 5], [1, 0]]
    y.backward(inputs=[s], retain_graph=True)
    assert s.grad.to_dense().tolist() == [[0, 5], [1, 0]] and values.grad is None
    y.backward()
    assert values.grad.tolist() == [5.0, 5.0, 1.0]


def test_anomaly_mode_looks_into_sparse_gradients(values):
    with pytest.warns(UserWarning), lucid_gpu.autograd.detect_anomaly():
        y = product(values * float("nan")).sum()
        with pytest.raises(RuntimeError, match="returned nan values in its 0th output"):
            y.backward()


def test_eager_mode(values):
    with lucid_gpu.fusion.eager():
        product(values).sum().backward()
    assert values.grad.tolist() == EXPECTED


class Same(lucid_gpu.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        return a + b

    @staticmethod
    def backward(ctx, gradient):
        return gradient, gradient


def test_leaves_that_get_one_sparse_gradient_have_memory_of_their_own(device):
    a, b = (lucid_gpu.ones(4, 2, device=device, requires_grad=True) for _ in range(2))
    rows = lucid_gpu.tensor([1, 1, 3], device=device)
    lucid_gpu.nn.functional.embedding(rows, Same.apply(a, b), sparse=True).sum().backward()
    with lucid_gpu.no_grad():
        a.grad._values().add_(5)
    assert a.grad.to_dense()[:, 0].tolist() == [0.0, 12.0, 0.0, 6.0]
    assert b.grad.to_dense()[:, 0].tolist() == [0.0, 2.0, 0.0, 1.0]


def test_a_sparse_gradient_is_added_to_in_place_until_it_becomes_dense(device):
    w = lucid_gpu.ones(4, 2, device=device, requires_grad=True)
    rows = lucid_gpu.tensor([1, 1, 3], device=device)

    def go_back():
        lucid_gpu.nn.functional.embedding(rows, w, sparse=True).sum().backward()

    go_back()
    first = w.grad
    go_back()
    assert w.grad is first and first.is_sparse
    assert first.to_dense()[:, 0].tolist() == [0.0, 4.0, 0.0, 2.0]
    w.sum().backward()
    assert w.grad is not first and not w.grad.is_sparse
    assert w.grad[:, 0].tolist() == [1.0, 5.0, 1.0, 3.0]
