"""Gradients of sparse tensors: to values, to sparse leaves, to dense operands, once and twice."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import agree, torch_module

SORTED = [[0, 0, 1, 2], [1, 3, 0, 2]]
REPEATED = [[2, 0, 0, 1, 0, 1], [1, 1, 3, 0, 1, 0]]
PLACES = [pytest.param(SORTED, id="sorted"), pytest.param(REPEATED, id="repeated")]
D = np.random.default_rng(3).standard_normal((4, 2))
FULL = np.random.default_rng(4).standard_normal((3, 4))


def built(m, places, values):
    where = getattr(values, "device", "cpu")
    return m.sparse_coo_tensor(m.tensor(places, device=where), values, (3, 4))


LINEAR = {
    "matmul": lambda m, s, d, full: s @ d,
    "mm": lambda m, s, d, full: m.mm(s, d),
    "sparse.mm": lambda m, s, d, full: m.sparse.mm(s, d),
    "matrix times vector": lambda m, s, d, full: s @ d[:, 0],
    "dense times sparse": lambda m, s, d, full: d.t() @ s.t(),
    "vector times sparse": lambda m, s, d, full: d[:3, 0] @ s,
    "transposed": lambda m, s, d, full: s.t() @ full[:, :3],
    "to_dense": lambda m, s, d, full: s.to_dense() * full,
    "dense plus sparse": lambda m, s, d, full: full + s,
    "dense minus sparse": lambda m, s, d, full: full - s,
    "add with alpha": lambda m, s, d, full: m.add(full, s, alpha=3),
    "sparse plus sparse": lambda m, s, d, full: (s + s * 2) @ d,
    "sparse plus its double": lambda m, s, d, full: (s + (s - s / 4).coalesce()) @ d,
    "times a number": lambda m, s, d, full: (2 * s * 3) @ d,
    "divided by a number": lambda m, s, d, full: (s / 3).to_dense() * full,
    "negative": lambda m, s, d, full: (-s).to_dense() * full,
    "sum": lambda m, s, d, full: s.sum() * full,
    "sparse.sum": lambda m, s, d, full: m.sparse.sum(s) * full,
    "sum over rows": lambda m, s, d, full: m.sparse.sum(s, 0).to_dense() * full,
    "sum over columns": lambda m, s, d, full: m.sparse.sum(s, 1).to_dense() * full[:, 0],
    "coalesced values": lambda m, s, d, full: s.coalesce().values() * 3,
    "coalesced": lambda m, s, d, full: s.coalesce() @ d,
    "times sparse": lambda m, s, d, full: (s @ s.t()).to_dense() * full[:, :3],
    "sparse.mm of two": lambda m, s, d, full: m.sparse.mm(s.t(), s * 2).to_dense() @ d,
    "clone": lambda m, s, d, full: s.clone() @ d,
    "float32 and back": lambda m, s, d, full: s.float().double().to_dense() * full,
    "used twice": lambda m, s, d, full: (s @ d).sum() + (s.to_dense() * full).sum(),
}


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("places", PLACES)
def test_gradient_to_values_and_dense_operand(name, places, device):
    values = np.random.default_rng(1).standard_normal(len(places[0]))
    agree(
        lambda m, v, d, full: LINEAR[name](m, built(m, places, v), d, full),
        values, D, FULL, device=device, order=1, atol=1e-5,
    )  # fmt: skip


# rounded to float32, finite differences of 1e-6 are lost
@pytest.mark.each_value
@pytest.mark.parametrize("name", [name for name in LINEAR if name != "float32 and back"])
@pytest.mark.parametrize("places", PLACES)
def test_gradcheck_and_double_backward(name, places, device):
    rng = np.random.default_rng(5)
    arrays = rng.standard_normal(len(places[0])), D, FULL
    inputs = [lucid_gpu.tensor(a, device=device, requires_grad=True) for a in arrays]

    def function(v, d, full):
        return LINEAR[name](lucid_gpu, built(lucid_gpu, places, v), d, full)

    assert lucid_gpu.autograd.gradcheck(function, inputs)
    assert lucid_gpu.autograd.gradgradcheck(function, inputs)


def test_gradcheck_of_complex_products(device):
    rng = np.random.default_rng(5)
    v, d = (rng.standard_normal(s) + 1j * rng.standard_normal(s) for s in ((6,), (4, 2)))
    inputs = [lucid_gpu.tensor(a, device=device, requires_grad=True) for a in (v, d)]

    def function(v, d):
        return (built(lucid_gpu, REPEATED, v) * (2 + 1j)) @ d

    assert lucid_gpu.autograd.gradcheck(function, inputs)
    assert lucid_gpu.autograd.gradgradcheck(function, inputs)


def test_gradient_to_a_tensor_factor(device):
    inputs = [
        lucid_gpu.tensor(a, device=device, dtype=lucid_gpu.float64, requires_grad=True)
        for a in ([1.0, 2, 3, 4, 5, 6], 1.5)
    ]
    full = lucid_gpu.tensor(FULL, device=device)
    for op in (lambda s, f: s * f, lambda s, f: s / f, lambda s, f: f * s):

        def function(v, f, op=op):
            return op(built(lucid_gpu, REPEATED, v), f).to_dense() * full

        assert lucid_gpu.autograd.gradcheck(function, inputs)
        assert lucid_gpu.autograd.gradgradcheck(function, inputs)


# --- sparse leaves --------------------------------------------------------------------------------


def leaf(m, device="cpu"):
    return built(m, REPEATED, m.tensor([1.0, 2, 3, 4, 5, 6], device=device)).requires_grad_()


LEAF_USES = {name: LINEAR[name] for name in (
    "matmul", "mm", "sparse.mm", "matrix times vector", "dense times sparse", "transposed",
    "to_dense", "dense plus sparse", "times a number", "negative", "sum", "sparse.sum", "clone",
    "coalesced values", "sum over rows", "used twice",
)}  # fmt: skip


@pytest.mark.parametrize("name", LEAF_USES)
def test_a_sparse_leaf_gets_a_gradient_of_pytorchs_layout(name, device):
    found = []
    for m, where in ((torch_module(), "cpu"), (lucid_gpu, device)):
        s = leaf(m, where)
        d, full = (m.tensor(a, dtype=m.float32, device=where) for a in (D, FULL))
        LEAF_USES[name](m, s, d, full).sum().backward()
        found.append((s.grad.is_sparse, s.grad.to_dense().cpu().numpy(force=True)))
    (sparse, expected), (is_sparse, got) = found
    assert is_sparse == sparse
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_gradients_of_a_sparse_leaf_accumulate(device):
    s, d = leaf(lucid_gpu, device), lucid_gpu.ones(4, 2, device=device)
    for _ in range(2):
        lucid_gpu.sparse.mm(s, d).sum().backward()
    assert s.grad.is_sparse and s.grad._nnz() == 4
    assert s.grad.values().tolist() == [4.0] * 4
    (s @ d).sum().backward()  # dense from here on, as in PyTorch
    assert not s.grad.is_sparse
    expected = [[2.0, 6, 2, 6], [6, 2, 2, 2], [2, 6, 2, 2]]
    assert s.grad.tolist() == expected
    lucid_gpu.sparse.mm(s, d).sum().backward()
    assert s.grad.sum().item() == sum(map(sum, expected)) + 8
    s.grad = None
    lucid_gpu.sparse.mm(s, d).sum().backward()
    s.grad.zero_()
    assert s.grad._nnz() == 0 and s.grad.to_dense().sum().item() == 0


def test_hooks_and_retain_grad_see_the_gradient_of_a_sparse_tensor(device):
    values = lucid_gpu.ones(6, device=device, requires_grad=True)
    s = built(lucid_gpu, REPEATED, values) * 2
    seen = []
    s.register_hook(lambda g: seen.append(g.to_dense().sum().item()))
    s.retain_grad()
    s.to_dense().sum().backward()
    assert seen == [4.0] and s.grad.is_sparse and s.grad._nnz() == 4
    assert values.grad.tolist() == [2.0] * 6


def test_a_hook_may_replace_the_gradient_by_a_dense_one(device):
    values = lucid_gpu.ones(4, device=device, requires_grad=True)
    s = built(lucid_gpu, SORTED, values)
    s.register_hook(lambda g: lucid_gpu.arange(12.0, device=device).reshape(3, 4))
    s.to_dense().sum().backward()
    assert values.grad.tolist() == [1.0, 3.0, 4.0, 10.0]


def test_backward_from_a_sparse_tensor_takes_a_gradient_of_either_layout(device):
    full = lucid_gpu.arange(12.0, device=device).reshape(3, 4)
    other = lucid_gpu.sparse_coo_tensor([[2, 0, 0], [2, 1, 0]], [5.0, 7, 1], (3, 4), device=device)
    for gradient, expected in ((full, [1.0, 3.0, 4.0, 10.0]), (other, [7.0, 0, 0, 5.0])):
        values = lucid_gpu.ones(4, device=device, requires_grad=True)
        built(lucid_gpu, SORTED, values).backward(gradient)
        assert values.grad.tolist() == expected
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar"):
        built(lucid_gpu, SORTED, values).backward()


@pytest.mark.parametrize("use", [
    lambda m, s, d: s @ d,
    lambda m, s, d: m.sparse.mm(s, d),
    lambda m, s, d: s.to_dense() * d[:2],
    lambda m, s, d: s.coalesce().values() * 3,
])  # fmt: skip
def test_gradient_through_to_sparse(use, device):
    x = np.array([[0.0, 2, 0], [3, 0, 4]])
    d = np.random.default_rng(0).standard_normal((3, 3))
    agree(lambda m, x, d: use(m, x.to_sparse(), d), x, d, device=device, order=1)


def test_to_sparse_with_dense_dimensions(device):
    x = np.array([[0.0, 0, 0], [3, 0, 4]])
    agree(lambda m, x: x.to_sparse(1).to_dense() * 2, x, device=device, order=1)


def test_hybrid_tensors_have_gradients(device):
    values = lucid_gpu.randn(3, 2, dtype=lucid_gpu.float64, device=device, requires_grad=True)

    def function(v):
        s = lucid_gpu.sparse_coo_tensor([[0, 3, 0]], v, (4, 2))
        return s.to_dense() * 2 + s, s.coalesce().values(), s.sum(0), s.sum(1).to_dense()

    assert lucid_gpu.autograd.gradcheck(function, (values,))
    assert lucid_gpu.autograd.gradgradcheck(function, (values,))


def test_no_elements_have_no_gradient(device):
    values = lucid_gpu.zeros(0, device=device, requires_grad=True)
    d = lucid_gpu.ones(4, 2, device=device, requires_grad=True)
    s = lucid_gpu.sparse_coo_tensor(lucid_gpu.zeros(2, 0, device=device), values, (3, 4))
    (s @ d).sum().backward()
    assert values.grad.shape == (0,) and d.grad.tolist() == [[0.0, 0.0]] * 4


def test_the_gradient_of_values_never_forms_the_dense_matrix(device):
    n = 1_000_000  # n * n numbers would be eight terabytes
    places = lucid_gpu.tensor([[5, n - 1, 5], [7, 0, n - 1]], device=device)
    values = lucid_gpu.tensor([1.0, 2, 3], device=device, requires_grad=True)
    d = lucid_gpu.ones(n, 2, device=device, requires_grad=True)
    s = lucid_gpu.sparse_coo_tensor(places, values, (n, n))
    ((s * 2).t().t() @ d).sum().backward()
    assert values.grad.tolist() == [4.0, 4.0, 4.0]
    assert d.grad[n - 1].tolist() == [6.0, 6.0]


def test_values_written_in_place_are_refused_by_backward(device):
    values = lucid_gpu.ones(4, device=device)
    d = lucid_gpu.ones(4, 2, device=device, requires_grad=True)
    y = built(lucid_gpu, SORTED, values) @ d
    values.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("create_graph", [False, True])
def test_nothing_of_a_sparse_graph_outlives_it(create_graph, device):
    values = lucid_gpu.ones(6, device=device, requires_grad=True)
    d = lucid_gpu.ones(4, 2, device=device, requires_grad=True)
    s = (built(lucid_gpu, REPEATED, values) * 2).coalesce()
    y = s @ d
    grads = lucid_gpu.autograd.grad((y * y).sum(), [values, d], create_graph=create_graph)
    watched = [weakref.ref(o) for o in (s, s.grad_fn, y, y.grad_fn, s.pattern, *grads)]
    del s, y, grads
    gc.collect()
    assert [r() for r in watched] == [None] * len(watched)


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 1, 3)])
def test_sparse_mask_takes_the_elements_at_places(shape, twice, device):
    rng = np.random.default_rng(len(shape))
    x, w = rng.standard_normal(shape), rng.standard_normal(shape)
    kept = (rng.random(shape) < 0.5) * 1.0

    def masked(m, x, w, kept):
        mask = m.sparse_coo_tensor(*both(m, kept), shape) if twice else kept.to_sparse()
        return (x.sparse_mask(mask).to_dense() ** 2 * w).sum()

    def both(m, kept):
        mask = kept.detach().to_sparse()
        indices, values = mask._indices(), mask._values()
        return m.cat([indices, indices], 1), m.cat([values, values])

    mine = [lucid_gpu.tensor(a, device=device, requires_grad=True) for a in (x, w, kept)]
    value = masked(lucid_gpu, *mine)
    (gradient,) = lucid_gpu.autograd.grad(value, mine[0], create_graph=True)
    double = 4.0 if twice else 1.0  # each is in the square twice
    np.testing.assert_allclose(value.item(), (double * x**2 * w * kept).sum())
    np.testing.assert_allclose(gradient.detach().cpu().numpy(), double * 2 * x * w * kept)
    (second,) = lucid_gpu.autograd.grad(gradient.sum(), mine[0])
    np.testing.assert_allclose(second.cpu().numpy(), double * 2 * w * kept)


def test_sparse_mask_refuses_what_does_not_fit(device):
    x = lucid_gpu.ones(3, device=device)
    with pytest.raises(RuntimeError, match="expected a sparse mask"):
        x.sparse_mask(x)
    with pytest.raises(RuntimeError, match="incompatible sizes"):
        x.sparse_mask(lucid_gpu.ones(4, device=device).to_sparse())
    with pytest.raises(NotImplementedError, match="sparse_mask"):
        x.to_sparse().sparse_mask(x.to_sparse())


def test_gradcheck_of_sparse_inputs_that_list_everything(device):
    x = lucid_gpu.rand(2, 2, dtype=lucid_gpu.float64, device=device) + 1
    s = x.to_sparse(blocksize=None).requires_grad_()
    assert lucid_gpu.autograd.gradcheck(lambda s: s.sum(), (s,), masked=False)
    with pytest.raises(RuntimeError, match="blocksize"):
        x.to_sparse(blocksize=(1, 1))


def test_a_gradient_of_expanded_values_has_memory_of_its_own(device):
    class Expanded(lucid_gpu.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b

        @staticmethod
        def backward(ctx, g):
            places = lucid_gpu.tensor([[0, 2, 2]], device=device)
            found = lucid_gpu.sparse_coo_tensor(places, row.expand(3, 2), (4, 2))
            return found, found

    row = lucid_gpu.ones(1, 2, device=device)
    a, b = [lucid_gpu.zeros(4, 2, device=device, requires_grad=True) for _ in "ab"]
    Expanded.apply(a, b).sum().backward()
    a.grad._values().mul_(2)
    assert a.grad.to_dense()[:, 0].tolist() == [2, 0, 4, 0]
    assert b.grad.to_dense()[:, 0].tolist() == [1, 0, 2, 0]
    assert row.tolist() == [[1, 1]]


def test_gradients_of_elements_that_are_not_listed(device: str) -> None:
    """``masked_grad=False`` of `to_dense`: all elements have one, by PyTorch's rule."""
    weights = [[1.0, 2.0], [3.0, 4.0]]
    masks = {None: [[0, 2], [3, 0]], True: [[0, 2], [3, 0]], False: weights}
    for masked, expected in masks.items():
        x = lucid_gpu.tensor([[0, 1.0], [2, 0]], device=device).to_sparse().requires_grad_()
        y = x.to_dense(masked_grad=masked) * lucid_gpu.tensor(weights, device=device)
        y.sum().backward()
        assert x.grad.is_sparse and x.grad.to_dense().tolist() == expected
    dense = lucid_gpu.ones(2, device=device)
    assert dense.to_dense(lucid_gpu.float64, masked_grad=False).dtype is lucid_gpu.float64
    with pytest.raises(RuntimeError, match="dtype argument is not supported by sparse_to_dense"):
        x.to_dense(lucid_gpu.float64)
