"""Sparse tensors as values: making, asking, printing, refusing."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import forward_ad
from lucid_gpu.devices import scipy as scipy_room
from lucid_gpu.devices import sparse as sparse_room
from tests.oracle import same_error, torch_module

PLACES = [[0, 1, 1], [2, 0, 2]]
V = [3.0, 4.0, 5.0]


def made(m=lucid_gpu, device="cpu", **options):
    return m.sparse_coo_tensor(m.tensor(PLACES), m.tensor(V), (2, 3), device=device, **options)


def both(function):
    """What a function of the module gives with PyTorch and with us."""
    return function(torch_module()), function(lucid_gpu)


# --- making ---------------------------------------------------------------------------------------


def test_a_sparse_tensor_is_a_tensor_with_pytorchs_marks(device):
    s = made(device=device)
    assert lucid_gpu.is_tensor(s) and isinstance(s, lucid_gpu.Tensor)
    assert s.is_sparse and s.layout is lucid_gpu.sparse_coo and not s.is_coalesced()
    assert (s.shape, s.ndim, s.numel(), s._nnz()) == ((2, 3), 2, 6, 3)
    assert (s.sparse_dim(), s.dense_dim(), len(s)) == (2, 0, 2)
    assert s.dtype is lucid_gpu.float32 and s.device.type == device and s.is_leaf
    assert s._indices().tolist() == PLACES and s._values().tolist() == V
    assert s._indices().dtype is lucid_gpu.int64
    d = s.to_dense()
    assert d.tolist() == [[0, 0, 3], [4, 0, 5]]
    assert not d.is_sparse and d.layout is lucid_gpu.strided and d.to_dense() is d
    assert (d.sparse_dim(), d.dense_dim()) == (0, 2)
    assert str(lucid_gpu.sparse_coo) == "lucid_gpu.sparse_coo"


CASES = {
    "size inferred": lambda m: m.sparse_coo_tensor(PLACES, V),
    "lists": lambda m: m.sparse_coo_tensor(PLACES, V, [2, 3]),
    "arrays": lambda m: m.sparse_coo_tensor(np.array(PLACES), np.array(V), (4, 3)),
    "int32 indices": lambda m: m.sparse_coo_tensor(m.tensor(PLACES, dtype=m.int32), V),
    "float indices": lambda m: m.sparse_coo_tensor(m.tensor([[0.5], [1.2]]), [1.0], (2, 3)),
    "integers": lambda m: m.sparse_coo_tensor([[0, 1]], [1, 2], (2,)),
    "dtype": lambda m: m.sparse_coo_tensor(PLACES, V, (2, 3), dtype=m.float64),
    "complex": lambda m: m.sparse_coo_tensor([[0, 1]], [1, 2j], (2,)),
    "hybrid": lambda m: m.sparse_coo_tensor(PLACES, m.ones(3, 2), (2, 3, 2)),
    "three sparse dimensions": lambda m: m.sparse_coo_tensor([*PLACES, [0, 1, 3]], V),
    "size alone": lambda m: m.sparse_coo_tensor((2, 3)),
    "size by name, dtype": lambda m: m.sparse_coo_tensor(size=(2, 3), dtype=m.float64),
    "no elements": lambda m: m.sparse_coo_tensor(m.zeros(2, 0), m.zeros(0), (2, 3)),
    "no elements in lists": lambda m: m.sparse_coo_tensor([[], []], [], (2, 3)),
    "no elements, no size": lambda m: m.sparse_coo_tensor(m.zeros(2, 0), []),
    "no dimensions": lambda m: m.sparse_coo_tensor(m.zeros(0, 1), m.ones(1), ()),
    "said to be coalesced": lambda m: m.sparse_coo_tensor(PLACES, V, (2, 3), is_coalesced=True),
    "one element": lambda m: m.sparse_coo_tensor([[0], [1]], [1.0]),
    "repeated": lambda m: m.sparse_coo_tensor([[1, 0, 1], [1, 1, 1]], V),
    "repeated, coalesced": lambda m: m.sparse_coo_tensor([[1, 0, 1], [1, 1, 1]], V).coalesce(),
    "unordered, coalesced": lambda m: m.sparse_coo_tensor([[1, 0, 0], [1, 1, 0]], V).coalesce(),
    "requires grad": lambda m: made(m, requires_grad=True),
    "history": lambda m: m.sparse_coo_tensor(PLACES, m.tensor(V, requires_grad=True), (2, 3)),
    "long": lambda m: m.sparse_coo_tensor(
        m.arange(80).reshape(2, 40) % 7, m.arange(40) / 8, (200, 300)
    ),
    "many dimensions": lambda m: m.sparse_coo_tensor([[0, 1]] * 12, [1.0, 2], requires_grad=True),
    "half": lambda m: m.sparse_coo_tensor(PLACES, V, (2, 3), dtype=m.float16),
    "bool": lambda m: m.sparse_coo_tensor(PLACES, m.tensor([True, False, True]), (2, 3)),
    "from dense": lambda m: m.tensor([[0.0, 2], [3, 0]]).to_sparse(),
    "from dense rows": lambda m: m.tensor([[0.0, 0], [3, 0]]).to_sparse(1),
    "from nothing": lambda m: m.zeros(2, 3).to_sparse(),
    "from a number": lambda m: m.tensor(2.0).to_sparse(),
    "from zero": lambda m: m.tensor(0.0).to_sparse(),
    "from nan and minus zero": lambda m: m.tensor([float("nan"), -0.0, 1]).to_sparse(),
    "t": lambda m: made(m).t(),
    "T": lambda m: made(m).T,
    "mT": lambda m: made(m).mT,
    "vector.t": lambda m: m.sparse_coo_tensor([[0, 1]], [1.0, 2]).t(),
    "transpose": lambda m: m.transpose(made(m), 0, -1),
    "coalesced.t": lambda m: made(m).coalesce().t(),
    "clone": lambda m: m.clone(made(m).coalesce()),
    "detach": lambda m: made(m, requires_grad=True).detach(),
    "double": lambda m: made(m).double(),
    "to": lambda m: made(m).to(m.int32),
    "neg": lambda m: -made(m).coalesce(),
    "torch.neg": lambda m: m.neg(made(m)),
    "mul": lambda m: 2 * made(m) * m.tensor(3.0),
    "torch.mul": lambda m: m.mul(made(m), 2),
    "integers times a float": lambda m: made(m).int() * 2.5,
    "div": lambda m: made(m).coalesce() / 4,
    "integers divided": lambda m: m.div(made(m).int(), 2),
    "sum of two": lambda m: made(m) + made(m),
    "sum of two coalesced": lambda m: made(m).coalesce()
    + m.sparse_coo_tensor([[0, 1], [2, 1]], [1.0, 2], (2, 3)).coalesce(),
    "difference": lambda m: m.sub(made(m), made(m), alpha=3),
    "types promoted": lambda m: made(m) + made(m).double(),
    "sum over rows": lambda m: made(m).sum(0),
    "sum over columns": lambda m: m.sum(made(m), -1),
    "sum kept": lambda m: made(m).sum(0, keepdim=True),
    "sum of integers": lambda m: m.sparse.sum(made(m).int(), 0),
    "sum of dense dimensions": lambda m: m.sparse_coo_tensor([[0, 1]], m.ones(2, 2)).sum(1),
    "to itself": lambda m: made(m).to_sparse(),
    "zeros_like": lambda m: m.zeros_like(made(m)),
    "add_": lambda m: made(m).add_(made(m)),
    "zero_": lambda m: made(m).zero_(),
    "pickled": lambda m: pickle.loads(pickle.dumps(made(m).coalesce())),
    "deep copy": lambda m: copy.deepcopy(made(m, requires_grad=True)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_places_values_and_text_are_pytorchs(name):
    expected, got = both(CASES[name])
    assert _words(got) == _words(expected)
    if name != "sum kept":  # ours knows that it is
        assert got.is_coalesced() == expected.is_coalesced()
    assert tuple(got.shape) == tuple(expected.shape)
    for mine, theirs in (
        (got._indices(), expected._indices()),
        (got._values(), expected._values()),
    ):
        np.testing.assert_array_equal(mine.detach().numpy(), theirs.detach().numpy())


def _words(s):
    """The text without line breaks, which depend on the module's name."""
    return repr(s).replace("lucid_gpu.", "torch.").replace("CoalesceBackward0", "").split()


def test_the_text_of_a_sparse_tensor():
    assert repr(made()) == (
        "tensor(indices=tensor([[0, 1, 1],\n"
        "                       [2, 0, 2]]),\n"
        "       values=tensor([3., 4., 5.]),\n"
        "       size=(2, 3), nnz=3, layout=lucid_gpu.sparse_coo)"
    )


DENSE = {
    "to_dense": lambda m: made(m).to_dense(),
    "hybrid to_dense": lambda m: m.sparse_coo_tensor([[0, 1, 1]], m.ones(3, 2)).to_dense(),
    "dense plus sparse": lambda m: m.ones(2, 3) + made(m),
    "torch.add": lambda m: m.add(m.ones(2, 3), made(m), alpha=2),
    "dense minus sparse": lambda m: m.ones(2, 3) - made(m),
    "add_ to dense": lambda m: m.ones(2, 3).add_(made(m)),
    "types promoted": lambda m: m.ones(2, 3) + made(m).double(),
    "sum": lambda m: made(m).sum(),
    "sum of integers": lambda m: made(m).int().sum(),
    "sum in another type": lambda m: m.sparse.sum(made(m), dtype=m.float64),
    "sum over all": lambda m: m.sparse.sum(made(m), (0, 1)),
    "sum of sparse dimensions": lambda m: m.sparse_coo_tensor([[0, 1]], m.ones(2, 2)).sum(0),
    "product": lambda m: made(m) @ m.ones(3, 2),
    "dense first": lambda m: m.ones(2, 2) @ made(m),
    "with a vector": lambda m: m.mv(made(m), m.ones(3)),
    "vector first": lambda m: m.ones(2) @ made(m),
    "sparse.mm": lambda m: m.sparse.mm(made(m), m.ones(3, 2)),
    "sparse.mm of dense ones": lambda m: m.sparse.mm(m.ones(2, 3), m.ones(3, 2)),
    "addmm": lambda m: m.addmm(m.ones(2, 2), made(m), m.ones(3, 2)),
    "integers": lambda m: made(m).int() @ m.ones(3, 2, dtype=m.int32),
    "half": lambda m: made(m).half() @ m.ones(3, 2).half(),
    "bfloat16": lambda m: (made(m).bfloat16() @ m.ones(3, 2).bfloat16()).float(),
    "complex": lambda m: made(m).to(m.complex64) @ m.ones(3, 2, dtype=m.complex64),
    "no elements": lambda m: m.sparse_coo_tensor((2, 3)) @ m.ones(3, 2),
    "no rows": lambda m: m.sparse_coo_tensor((0, 3)) @ m.ones(3, 2),
    "no columns": lambda m: m.sparse_coo_tensor((2, 3)) @ m.ones(3, 0),
    "nothing to multiply": lambda m: m.sparse_coo_tensor((2, 0)) @ m.ones(0, 2),
    "repeated": lambda m: m.sparse_coo_tensor([[1, 0, 1], [1, 1, 1]], V) @ m.ones(2, 2),
    "strided operand": lambda m: made(m) @ m.arange(12.0).reshape(4, 3).t()[:, ::2],
}


@pytest.mark.parametrize("name", DENSE)
def test_dense_results_are_pytorchs(name):
    expected, got = both(DENSE[name])
    assert not got.is_sparse and str(got.dtype).endswith(str(expected.dtype).split(".")[-1])
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-6)


def test_every_op_on_each_device(device):
    host, there = made(), made().to(device)
    assert there.device.type == device and there.cpu().device.type == "cpu"
    assert there.to(device) is there
    d = lucid_gpu.arange(6.0, device=device).reshape(3, 2)
    assert (there @ d).tolist() == (host @ d.cpu()).tolist()
    assert (there.t() @ there.to_dense()).tolist() == (host.t() @ host.to_dense()).tolist()
    assert (there + there).coalesce().values().tolist() == [6.0, 8, 10]
    assert there.to_dense().to_sparse().sum(0).to_dense().tolist() == [4.0, 0, 8]
    integers = there.int() @ d.int()
    assert integers.tolist() == (host @ d.cpu()).tolist() and integers.dtype is lucid_gpu.int32


def test_values_and_indices_share_memory_as_in_pytorch():
    for m in (torch_module(), lucid_gpu):
        indices, values = m.tensor(PLACES), m.tensor(V)
        s = m.sparse_coo_tensor(indices, values, (2, 3))
        values[0] = 100
        indices[0, 0] = 1
        assert s.to_dense().tolist() == [[0, 0, 0], [4, 0, 105]]
        s._values()[1] = 7
        assert values.tolist() == [100, 7, 5]
        c = s.clone()
        values[1] = 8
        assert c._values().tolist() == [100, 7, 5]


def test_pending_values_are_taken_as_they_are(device):
    if os.environ.get("LUCID_EAGER", "0") not in ("", "0"):
        pytest.skip("with LUCID_EAGER=1 every value is in memory")
    x = lucid_gpu.ones(3, device=device)
    s = lucid_gpu.sparse_coo_tensor(PLACES, (x * 2 + 1).exp(), (2, 3), device=device)
    assert not s._values()._expr.program.is_load  # making a sparse tensor computes nothing
    assert s.sum().item() == pytest.approx(3 * np.exp(3.0))


# --- what is wrong --------------------------------------------------------------------------------

ERRORS = {
    "size of too few dimensions": (
        lambda m: m.sparse_coo_tensor(PLACES, V, (2,)),
        "'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = 1, "
        "sparse_dim = 2, dense_dim = 0",
    ),
    "more indices than values": (
        lambda m: m.sparse_coo_tensor(PLACES, V[:2], (2, 3)),
        "indices and values must have same nnz, but got nnz from indices: 3, nnz from values: 2",
    ),
    "index outside": (
        lambda m: m.sparse_coo_tensor(PLACES, V, (2, 2), check_invariants=True),
        "size is inconsistent with indices: for dim 1, size is 2 but found index 2",
    ),
    "negative index": (
        lambda m: m.sparse_coo_tensor([[-1]], [1.0], (2,), check_invariants=True),
        "found negative index -1 for dim 0",
    ),
    "negative index, no size": (
        lambda m: m.sparse_coo_tensor([[-1]], [1.0]),
        "found negative index -1 for dim 0",
    ),
    "negative size": (
        lambda m: m.sparse_coo_tensor(PLACES, V, (2, -3)),
        "negative dimension -3",
    ),
    "values of another shape": (
        lambda m: m.sparse_coo_tensor(PLACES, m.ones(3, 2), (2, 3, 3)),
        "values has incorrect size, expected [3, 3], got [3, 2]",
    ),
    "coalesced claimed": (
        lambda m: m.sparse_coo_tensor(
            [[1, 0]], [1.0, 2], (2,), is_coalesced=True, check_invariants=True
        ),
        "cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor",
    ),
    "indices without dimensions": (
        lambda m: m.sparse_coo_tensor(m.tensor(1), V, (2, 3)),
        "Dimension specified as 0 but tensor has no dimensions",
    ),
    "indices of one dimension": (
        lambda m: m.sparse_coo_tensor(m.tensor([0, 1, 1]), V, (2, 3)),
        "indices must be sparse_dim x nnz",
    ),
    "nothing": (
        lambda m: m.sparse_coo_tensor(),
        "sparse_coo_tensor() received an invalid combination of arguments",
    ),
    "size is no size": (
        lambda m: m.sparse_coo_tensor(PLACES, V, "ab"),
        "must be tuple of ints, not str",
    ),
    "integers with gradient": (
        lambda m: m.sparse_coo_tensor([[0]], [1], requires_grad=True),
        "Only Tensors of floating point and complex dtype can require gradients",
    ),
    "indices before coalesce": (
        lambda m: made(m).indices(),
        "Cannot get indices on an uncoalesced tensor, please call .coalesce() first",
    ),
    "values before coalesce": (
        lambda m: made(m).values(),
        "Cannot get values on an uncoalesced tensor, please call .coalesce() first",
    ),
    "coalesce of dense": (
        lambda m: m.ones(2).coalesce(),
        "coalesce expected sparse coordinate tensor layout but got Strided",
    ),
    "is_coalesced of dense": (
        lambda m: m.ones(2).is_coalesced(),
        "is_coalesced expected sparse coordinate tensor layout but got Strided",
    ),
    "number added": (
        lambda m: made(m) + 2,
        "add(sparse, dense) is not supported. Use add(dense, sparse) instead.",
    ),
    "added to a number": (
        lambda m: 2 - made(m),
        "add(sparse, dense) is not supported",
    ),
    "sizes added": (
        lambda m: made(m) + made(m).t(),
        "add: expected sizes of 'self' and 'other' to match, but [2, 3] != [3, 2]",
    ),
    "broadcast": (
        lambda m: m.ones(3) + made(m),
        "dense-sparse addition does not currently support broadcasting",
    ),
    "divided by a tensor": (
        lambda m: made(m) / m.ones(2, 3),
        "Sparse division requires a scalar or zero-dim dense tensor divisor (got shape "
        "[2, 3] for divisor)",
    ),
    "one divided": (
        lambda m: 1 / made(m),
        "Could not run '",
    ),
    "inner extents": (
        lambda m: made(m) @ m.ones(2, 2),
        "Expected dim 0 size 3, got 2",
    ),
    "extents of a vector": (
        lambda m: made(m) @ m.ones(2),
        "mat1 and mat2 shapes cannot be multiplied",
    ),
    "dtypes": (
        lambda m: made(m) @ m.ones(3, 2).double(),
        "expected scalar type float32 but found float64",
    ),
    "batches": (
        lambda m: m.matmul(made(m), m.ones(2, 3, 2)),
        "matrices expected",
    ),
    "t of three dimensions": (
        lambda m: m.sparse_coo_tensor([[0], [1], [1]], [1.0]).t(),
        "t() expects a tensor with <= 2 sparse and 0 dense dimensions, but got 3 "
        "sparse and 0 dense dimensions",
    ),
    "t of dense dimensions": (
        lambda m: m.sparse_coo_tensor([[0]], m.ones(1, 2)).t(),
        "but got 1 sparse and 1 dense dimensions",
    ),
    "transpose out of range": (
        lambda m: made(m).transpose(0, 2),
        "Dimension out of range (expected to be in range of [-2, 1], but got 2)",
    ),
    "to_sparse of too many": (
        lambda m: m.ones(2).to_sparse(2),
        "sparse_dim argument must be in [0,1] range, but 2 is given",
    ),
    "numpy": (
        lambda m: made(m).numpy(),
        "can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.",
    ),
    "leaf written": (
        lambda m: made(m, requires_grad=True).add_(made(m)),
        "a leaf Variable that requires grad is being used in an in-place operation.",
    ),
    "exp": (
        lambda m: made(m).exp(),
        "Could not run '",
    ),
    "exp as a function": (
        lambda m: m.exp(made(m)),
        "exp",
    ),
    "equality": (
        lambda m: made(m) == made(m),
        "Could not run '",
    ),
    "mean": (
        lambda m: made(m).mean(),
        "mean",
    ),
    "view": (
        lambda m: made(m).view(-1),
        "view",
    ),
    "equal": (
        lambda m: m.equal(made(m), made(m)),
        "Could not run '",
    ),
    "ones_like": (
        lambda m: m.ones_like(made(m)),
        "Could not run '",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_pytorchs(name):
    function, words = ERRORS[name]
    same_error(function, words)


def optimized(m, s):
    p = m.nn.Parameter(m.ones(2, 3))
    p.grad = s
    m.optim.Adam([p], 0.1).step()


REFUSED = {
    "exp": (lambda m, s: s.exp(), "exp"),
    "exp as a function": (lambda m, s: m.exp(s), "exp"),
    "in a chain": (lambda m, s: m.nn.functional.gelu(s), "gelu"),
    "of a function made from another": (lambda m, s: m.nn.functional.celu(s), "'celu'"),
    "of two in a chain": (lambda m, s: m.igamma(s, s), "'igamma'"),
    "cat": (lambda m, s: m.cat([s, s]), "cat"),
    "stack": (lambda m, s: m.stack([s, s]), "stack"),
    "relu": (lambda m, s: m.relu(s), "relu"),
    "linear": (lambda m, s: m.nn.functional.linear(m.ones(2, 3), s), "linear"),
    "softmax": (lambda m, s: m.softmax(s, 1), "softmax"),
    "an index": (lambda m, s: s[0], "__getitem__"),
    "reshape as a function": (lambda m, s: m.reshape(s, 6), "reshape"),
    "permute": (lambda m, s: s.permute(1, 0), "permute"),
    "where": (lambda m, s: m.where(m.ones(2, 3) > 0, s, 0.0), "where"),
    "a power": (lambda m, s: s**2, "__pow__"),
    "times dense": (lambda m, s: s * m.ones(2, 3), "mul"),
    "dense times it": (lambda m, s: m.ones(2, 3) * s, "mul"),
    "times sparse": (lambda m, s: m.mul(s, s), "mul"),
    "dense in place": (lambda m, s: m.ones(2, 3).mul_(s), "mul"),
    "compared": (lambda m, s: m.ones(2, 3) < s, "__gt__"),
    "copy_": (lambda m, s: m.ones(2, 3).copy_(s), "copy_"),
    "as data": (lambda m, s: setattr(m.ones(2, 3), "data", s), "set_data"),
    "as out": (lambda m, s: m.mul(s, 2, out=m.ones(2, 3)), "mul"),
    "as a parameter": (lambda m, s: m.nn.Parameter(s), "Parameter"),
    "in a layer": (lambda m, s: m.nn.Linear(3, 2)(s), "linear"),
    "optimized with": (optimized, "Adam does not support sparse gradients"),
    "written into": (lambda m, s: m.ones(2, 3).__setitem__(..., s), "setitem"),
    "iteration": (lambda m, s: list(s), "__iter__"),
    "truth": (lambda m, s: bool(s), "__bool__"),
    "tolist": (lambda m, s: s.tolist(), "tolist"),
    "array": (lambda m, s: np.asarray(s), "__array__"),
    "isclose": (lambda m, s: m.isclose(s, s), "isclose"),
    "ones_like": (lambda m, s: m.ones_like(s), "full of 1"),
}  # fmt: skip


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize("name", REFUSED)
def test_everything_else_refuses_by_name_and_says_to_dense(name, device):
    function, op = REFUSED[name]
    with pytest.raises((RuntimeError, TypeError)) as refused:
        function(lucid_gpu, made(device=device))
    assert op in str(refused.value) and ".to_dense() first" in str(refused.value)


def test_who_asks_inside_a_users_backward_is_what_the_user_calls_there():
    class Wrong(lucid_gpu.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return lucid_gpu.cat([made(), g])

    x = lucid_gpu.ones(2, 3, requires_grad=True)
    with pytest.raises(NotImplementedError, match="'cat'"):
        Wrong.apply(x).sum().backward()
    with pytest.raises(NotImplementedError, match="'stack'"):
        lucid_gpu.stack([made()])


def test_every_method_of_a_tensor_is_sparse_or_refuses():
    """What was added to Tensor since, too: a method answers, or names itself and .to_dense()."""
    allowed = (NotImplementedError, TypeError, RuntimeError)
    for name in dir(lucid_gpu.Tensor):
        if name.startswith("_") or not callable(getattr(lucid_gpu.Tensor, name)):
            continue
        s = made()
        try:
            getattr(s, name)()
        except allowed as error:
            if isinstance(error, NotImplementedError):
                assert f"'{name}'" in str(error) and ".to_dense() first" in str(error)


def test_a_method_attached_to_tensors_later_refuses_too(device):
    def halved(self):
        return self.array / 2

    lucid_gpu.Tensor.halved = halved
    try:
        with pytest.raises(NotImplementedError, match=r"call \.to_dense\(\) first"):
            made(device=device).halved()
    finally:
        del lucid_gpu.Tensor.halved


def test_forward_mode_refuses_values_instead_of_losing_tangents(device):
    values = lucid_gpu.ones(3, device=device)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(values, values)
        with pytest.raises(NotImplementedError, match="no forward mode"):
            lucid_gpu.sparse_coo_tensor(PLACES, dual, (2, 3), device=device)


def test_forward_mode_by_the_dense_operand(device):
    s, d = made(device=device), lucid_gpu.arange(6.0, device=device).reshape(3, 2)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(d, d * 2)
        for product, expected in ((s @ dual, s @ d), (dual.t() @ s.t(), d.t() @ s.t())):
            primal, tangent = forward_ad.unpack_dual(product)
            assert primal.tolist() == expected.tolist()
            assert tangent.tolist() == (expected * 2).tolist()
        tangent = forward_ad.unpack_dual(dual.t() + s).tangent
        assert tangent.tolist() == (d.t() * 2).tolist()


# --- SciPy ----------------------------------------------------------------------------------------


def test_importing_and_making_sparse_tensors_imports_no_scipy():
    code = (
        "import sys, lucid_gpu as t\n"
        "s = t.sparse_coo_tensor([[0, 1]], [1.0, 2.0]).coalesce().to_dense()\n"
        "print('scipy' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def test_without_scipy_a_product_names_the_command_that_installs_it(monkeypatch):
    scipy_room.module.cache_clear()
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    with pytest.raises(ModuleNotFoundError, match="python -m pip install scipy"):
        made() @ lucid_gpu.ones(3, 2)
    monkeypatch.undo()
    scipy_room.module.cache_clear()
    assert (made() @ lucid_gpu.ones(3, 2)).tolist() == [[3, 3], [9, 9]]


def test_types_that_a_library_does_not_multiply_are_accumulated(monkeypatch, device):
    there = made(device=device).to(lucid_gpu.int32)
    dense = lucid_gpu.arange(6, device=device, dtype=lucid_gpu.int32).reshape(3, 2)
    expected = (there @ dense).tolist()
    monkeypatch.setitem(sparse_room._MULTIPLIED, device, frozenset())
    assert (there @ dense).tolist() == expected == [[12, 15], [20, 29]]


def test_what_says_of_itself_that_it_is_coalesced():
    """`_coalesced_` says it; elements and history stay, which PyTorch refuses to differentiate."""

    def run(m):
        s = m.sparse_coo_tensor([[0, 1]], m.tensor([1.0, 2.0]), (3,))
        return s.is_coalesced(), s._coalesced_(True).is_coalesced(), s.indices().tolist()

    assert run(lucid_gpu) == run(torch_module())
    v = lucid_gpu.tensor([1.0, 2.0, 3.0], requires_grad=True)
    s = lucid_gpu.sparse_coo_tensor([[0, 1, 1]], v, (3,)) * 2
    assert not s._coalesced_(False).is_coalesced()
    (s.to_dense() * lucid_gpu.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert v.grad.tolist() == [2.0, 20.0, 20.0]
