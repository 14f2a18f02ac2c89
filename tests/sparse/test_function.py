"""Functions that build, save, take and return sparse tensors."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import agree, torch_module

PLACES = [[0, 2, 1, 1, 2], [1, 2, 0, 2, 1]]
REPEATED = [[0, 2, 1, 0, 2], [1, 2, 0, 1, 1]]


def special_spmm(torch):
    """A sparse product with the gradient of the values alone, as graph attention has it."""

    class SpecialSpmmFunction(torch.autograd.Function):
        """Special function for only sparse region backpropagation layer."""

        @staticmethod
        def forward(ctx, indices, values, shape, b):
            assert indices.requires_grad == False  # noqa: E712  as it is written out there
            a = torch.sparse_coo_tensor(indices, values, shape)
            ctx.save_for_backward(a, b)
            ctx.N = shape[0]
            return torch.matmul(a, b)

        @staticmethod
        def backward(ctx, grad_output):
            a, b = ctx.saved_tensors
            grad_values = grad_b = None
            if ctx.needs_input_grad[1]:
                grad_a_dense = grad_output.matmul(b.t())
                edge_idx = a._indices()[0, :] * ctx.N + a._indices()[1, :]
                grad_values = grad_a_dense.view(-1)[edge_idx]
            if ctx.needs_input_grad[3]:
                grad_b = a.t().matmul(grad_output)
            return None, grad_values, None, grad_b

    return SpecialSpmmFunction


@pytest.mark.parametrize("places", [PLACES, REPEATED])
@pytest.mark.parametrize("type_", [np.float32, np.float64])
def test_the_sparse_function_works_as_written(places, type_, device):
    rng = np.random.default_rng(0)
    values, b = (rng.standard_normal(s).astype(type_) for s in ((5,), (3, 2)))

    def function(m, values, b):
        indices = m.tensor(places).to(values.device)
        return special_spmm(m).apply(indices, values, m.Size([3, 3]), b)

    tolerance = 1e-5 if type_ is np.float32 else 1e-12
    agree(function, values, b, device=device, order=1, rtol=tolerance, atol=tolerance)


def test_the_sparse_function_is_guided_by_needs_input_grad(device):
    function = special_spmm(lucid_gpu)
    indices = lucid_gpu.tensor(PLACES, device=device)
    for wanted in ((True, False), (False, True)):
        values = lucid_gpu.ones(5, device=device, requires_grad=wanted[0])
        b = lucid_gpu.ones(3, 2, device=device, requires_grad=wanted[1])
        function.apply(indices, values, (3, 3), b).sum().backward()
        assert [t.grad is not None for t in (values, b)] == [*wanted]


def test_the_sparse_function_passes_gradcheck(device):
    function = special_spmm(lucid_gpu)
    indices = lucid_gpu.tensor(PLACES, device=device)
    values = lucid_gpu.randn(5, dtype=lucid_gpu.float64, device=device, requires_grad=True)
    b = lucid_gpu.randn(3, 2, dtype=lucid_gpu.float64, device=device, requires_grad=True)
    assert lucid_gpu.autograd.gradcheck(
        lambda v, b: function.apply(indices, v, (3, 3), b), (values, b)
    )


def test_the_sparse_function_refuses_second_derivatives_that_would_lack_a_term(device):
    """Its matrix is an intermediate: PyTorch leaves the term out in silence."""
    indices = lucid_gpu.tensor(PLACES, device=device)
    values = lucid_gpu.ones(5, device=device, requires_grad=True)
    b = lucid_gpu.ones(3, 2, device=device, requires_grad=True)
    y = special_spmm(lucid_gpu).apply(indices, values, (3, 3), b)
    (g,) = lucid_gpu.autograd.grad(y.sum(), values, create_graph=True)
    with pytest.raises(RuntimeError, match="saved an intermediate, saved_tensors.0. of shape"):
        lucid_gpu.autograd.grad(g.sum(), values)


def test_the_sparse_function_in_a_layer_of_attention(device):
    """The layer around it: values from a softmax over edges, rows divided by their sums."""

    def layer(m, h, w, a):
        spmm, e = special_spmm(m), m.tensor(PLACES).to(h.device)
        wh = m.mm(h, w)
        edge = m.cat((wh[e[0, :], :], wh[e[1, :], :]), dim=1).t()
        edge_e = m.exp(-m.nn.functional.leaky_relu(a.mm(edge).squeeze(), 0.2))
        ones = m.ones((3, 1), dtype=h.dtype, device=h.device)
        rowsum = spmm.apply(e, edge_e, m.Size([3, 3]), ones)
        return m.nn.functional.elu(spmm.apply(e, edge_e, m.Size([3, 3]), wh).div(rowsum))

    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal(s) for s in ((3, 4), (4, 2), (1, 4))]
    agree(layer, *arrays, device=device, order=1, rtol=1e-9, atol=1e-9)


def test_a_function_with_a_sparse_input_may_return_a_gradient_of_either_layout(device):
    def function(m, dense):
        class F(m.autograd.Function):
            @staticmethod
            def forward(ctx, s):
                ctx.save_for_backward(s)
                return s.to_dense()

            @staticmethod
            def backward(ctx, g):
                (s,) = ctx.saved_tensors
                assert s.is_sparse and ctx.needs_input_grad == (True,)
                return g * 2 if dense else s.detach() * 2

        return F

    for dense in (True, False):
        agree(
            lambda m, v, dense=dense: function(m, dense).apply(
                m.sparse_coo_tensor(m.tensor(PLACES).to(v.device), v, (3, 3))
            ),
            np.arange(5.0), device=device, order=1,
        )  # fmt: skip


def test_a_function_may_return_and_save_a_sparse_output(device):
    class Build(lucid_gpu.autograd.Function):
        @staticmethod
        def forward(ctx, values):
            s = lucid_gpu.sparse_coo_tensor(
                lucid_gpu.tensor(PLACES, device=values.device), values, (3, 3)
            )
            ctx.save_for_backward(s)
            return s

        @staticmethod
        def backward(ctx, g):
            (s,) = ctx.saved_tensors
            assert s.is_sparse and s.grad_fn is ctx
            rows, columns = s._indices()[0], s._indices()[1]
            return g[rows, columns]

    values = lucid_gpu.arange(5.0, device=device).requires_grad_()
    s = Build.apply(values)
    assert s.is_sparse and s.grad_fn.name() == "BuildBackward" and "grad_fn=<Build" in repr(s)
    d = lucid_gpu.arange(6.0, device=device).reshape(3, 2)
    (s @ d).sum().backward()
    assert values.grad.tolist() == [5.0, 9.0, 1.0, 9.0, 5.0]
    watched = [weakref.ref(o) for o in (s, s.grad_fn)]
    del s
    gc.collect()
    assert [r() for r in watched] == [None, None]


def test_nothing_of_the_sparse_function_outlives_it(device):
    function = special_spmm(lucid_gpu)
    indices = lucid_gpu.tensor(PLACES, device=device)
    values = lucid_gpu.ones(5, device=device, requires_grad=True)
    b = lucid_gpu.ones(3, 2, device=device, requires_grad=True)
    y = function.apply(indices, values, (3, 3), b)
    watched = [weakref.ref(o) for o in (y, y.grad_fn, y.grad_fn.saved_tensors[0])]
    y.sum().backward()
    del y
    gc.collect()
    assert [r() for r in watched] == [None] * 3


def test_pytorch_is_not_needed_for_these_uses():
    """The uses above run on both modules; this one says the oracle is the real thing."""
    torch = torch_module()
    assert issubclass(special_spmm(torch), torch.autograd.Function)
