"""Sparse matrices of compressed rows (CSR) beside PyTorch's."""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import agree, torch_module

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
ROWS, COLUMNS, V = [0, 2, 2, 3], [0, 2, 1], [3.0, 4.0, 5.0]
D = np.random.default_rng(3).standard_normal((4, 2))
FULL = np.random.default_rng(4).standard_normal((3, 4))


def made(m=lucid_gpu, values=V, **options):
    return m.sparse_csr_tensor(ROWS, COLUMNS, values, (3, 4), **options)


def both(function):
    """What a function of the module gives with PyTorch and with us."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = function(torch_module())
    return expected, function(lucid_gpu)


CASES = {
    "lists": made,
    "tensors": lambda m: m.sparse_csr_tensor(m.tensor(ROWS), m.tensor(COLUMNS), m.tensor(V)),
    "int32": lambda m: m.sparse_csr_tensor(
        m.tensor(ROWS, dtype=m.int32), m.tensor(COLUMNS, dtype=m.int32), V
    ),
    "integers": lambda m: made(m, [1, 2, 3]),
    "bool": lambda m: made(m, [True, False, True]),
    "dtype": lambda m: made(m, dtype=m.float64),
    "requires grad": lambda m: made(m, requires_grad=True),
    "history": lambda m: made(m, m.tensor(V, requires_grad=True)),
    "no elements": lambda m: m.sparse_csr_tensor([0, 0], m.arange(0), [], (1, 3)),
    "columns in no order": lambda m: m.sparse_csr_tensor([0, 2, 3], [2, 0, 1], V),
    "of dense": lambda m: m.tensor([[0.0, 2, 0], [3, 0, 1]]).to_sparse_csr(),
    "of dense by layout": lambda m: m.ones(2, 2).to_sparse(layout=m.sparse_csr),
    "of repeated coordinates": lambda m: m.sparse_coo_tensor(
        [[1, 0, 1], [1, 0, 1]], V, (3, 2)
    ).to_sparse_csr(),
    "of itself": lambda m: made(m).to_sparse_csr(),
    "and back": lambda m: made(m).to_sparse().to_sparse_csr(),
    "detach": lambda m: made(m, requires_grad=True).detach(),
    "clone": lambda m: made(m).clone(),
    "double": lambda m: made(m).double(),
    "to": lambda m: made(m).to(dtype=m.float64, device="cpu"),
    "times a number": lambda m: 2 * made(m, requires_grad=True),
    "negative": lambda m: -made(m),
    "long": lambda m: m.sparse_csr_tensor(m.arange(40), m.arange(39) % 7, m.arange(39) / 8),
    "pickled": lambda m: pickle.loads(pickle.dumps(made(m))),
    "sparse_mask": lambda m: m.ones(3, 4).sparse_mask(made(m)),
}


@pytest.mark.parametrize("name", CASES)
def test_indices_values_and_text_are_pytorchs(name):
    expected, got = both(CASES[name])
    assert repr(got).replace("lucid_gpu.", "torch.").split() == repr(expected).split()
    assert got.layout is lucid_gpu.sparse_csr and got.is_sparse_csr and not got.is_sparse
    assert tuple(got.shape) == tuple(expected.shape) and got._nnz() == expected._nnz()
    assert (got.sparse_dim(), got.dense_dim()) == (2, 0)
    assert (got.requires_grad, got.is_leaf) == (expected.requires_grad, expected.is_leaf)
    for part in ("crow_indices", "col_indices", "values", "to_dense"):
        ours, theirs = (getattr(s, part)().detach() for s in (got, expected))
        assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_the_text_breaks_lines_as_pytorchs():
    expected, got = both(made)
    assert repr(expected) == (
        "tensor(crow_indices=tensor([0, 2, 2, 3]),\n"
        "       col_indices=tensor([0, 2, 1]),\n"
        "       values=tensor([3., 4., 5.]), size=(3, 4), nnz=3,\n"
        "       layout=torch.sparse_csr)"
    )
    assert repr(got) == repr(expected).replace("torch.", "lucid_gpu.")


def test_a_deep_copy_has_the_layout():
    s = made(requires_grad=True)
    other = copy.deepcopy(s)
    with lucid_gpu.no_grad():
        other.values()[0] = 9
    assert other.layout is lucid_gpu.sparse_csr and other.is_leaf and other.requires_grad
    assert s.values().tolist() == V and other.values().tolist() == [9, 4, 5]


def test_values_with_dimensions_are_pytorchs():
    def of_parts(m):
        return m.sparse_csr_tensor(ROWS, COLUMNS, m.arange(6.0).reshape(3, 2), (3, 4, 2))

    def of_dense(m):
        return m.arange(12.0).reshape(2, 3, 2).to_sparse_csr(dense_dim=1)

    for function in (of_parts, of_dense):
        expected, got = both(function)
        assert got.values().tolist() == expected.values().tolist()
        assert got.to_dense().tolist() == expected.to_dense().tolist()
        assert got.dense_dim() == expected.dense_dim() == 1


def test_a_size_of_no_numbers_is_told():
    with pytest.raises(
        TypeError, match=r"^sparse_csr_tensor\(\) received .* must be tuple of ints"
    ):
        lucid_gpu.sparse_csr_tensor(ROWS, COLUMNS, V, "ab")


def test_files_are_pytorchs_and_hold_the_layout():
    for writer in (torch_module(), lucid_gpu):
        for reader in (torch_module(), lucid_gpu):
            file = io.BytesIO()
            writer.save({"s": made(writer)}, file)
            file.seek(0)
            s = reader.load(file)["s"]
            assert s.layout is reader.sparse_csr and s.crow_indices().tolist() == ROWS
            assert s.col_indices().tolist() == COLUMNS and s.values().tolist() == V


@pytest.mark.parametrize("name", ["to_sparse", "to_sparse_coo"])
def test_coordinates_of_rows_are_pytorchs(name):
    expected, got = both(lambda m: getattr(made(m, requires_grad=True), name)())
    assert repr(got).replace("lucid_gpu.", "torch.").split() == repr(expected).split()
    assert got.is_coalesced() and expected.is_coalesced() and got.is_sparse


def test_values_share_memory_and_indices_can_be_read_on_each_device(device):
    values = lucid_gpu.tensor(V, device=device)
    s = made(values=values)
    values[0] = 7
    assert s.device.type == s.col_indices().device.type == device
    assert s.values().tolist() == [7, 4, 5] and s.crow_indices().tolist() == ROWS
    assert s.cpu().to_dense().tolist() == [[7, 0, 4, 0], [0, 0, 0, 0], [0, 5, 0, 0]]
    assert (s @ lucid_gpu.ones(4, device=device)).tolist() == [11, 0, 5]


LINEAR = {
    "matmul": lambda m, s, d, full: s @ d,
    "mm": lambda m, s, d, full: m.mm(s, d),
    "method mm": lambda m, s, d, full: s.mm(d),
    "mv": lambda m, s, d, full: m.mv(s, d[:, 0]),
    "method mv": lambda m, s, d, full: s.mv(d[:, 0]),
    "with a vector": lambda m, s, d, full: m.matmul(s, d[:, 1]),
    "dense first": lambda m, s, d, full: d[:3].t() @ s,
    "addmm": lambda m, s, d, full: m.addmm(full[:, :2], s, d),
    "to_dense": lambda m, s, d, full: s.to_dense() * full,
    "values": lambda m, s, d, full: s.values() * full[0, :3],
    "as coordinates": lambda m, s, d, full: m.sparse.mm(s.to_sparse(), d),
    "there and back": lambda m, s, d, full: s.to_sparse().to_sparse_csr() @ d,
    "times a number": lambda m, s, d, full: (-s * 3) @ d,
    "used twice": lambda m, s, d, full: (s @ d).sum() + (s.to_dense() * full).sum(),
}


@pytest.mark.parametrize("name", LINEAR)
def test_products_and_gradients_are_pytorchs(name, device):
    agree(
        lambda m, v, d, full: LINEAR[name](m, made(m, v), d, full),
        np.array(V), D, FULL, device=device, order=1, atol=1e-5,
    )  # fmt: skip


@pytest.mark.each_value
@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("columns", [[0, 2, 1], [2, 0, 1]], ids=["in order", "in no order"])
def test_gradcheck(name, columns, device):
    inputs = [lucid_gpu.tensor(a, device=device, requires_grad=True) for a in (V, D, FULL)]
    inputs[0] = inputs[0].detach().double().requires_grad_()

    def function(v, d, full):
        s = lucid_gpu.sparse_csr_tensor(ROWS, columns, v, (3, 4))
        return LINEAR[name](lucid_gpu, s, d, full)

    assert lucid_gpu.autograd.gradcheck(function, inputs)
    assert lucid_gpu.autograd.gradgradcheck(function, inputs)


def test_gradients_of_leaves_and_of_dense_matrices_are_pytorchs():
    def of_leaf(m):
        s = made(m, requires_grad=True)
        (s @ m.tensor(D).float()).sum().backward()
        return s.grad

    def of_dense(m):
        x = m.tensor(FULL, requires_grad=True)
        (x.to_sparse_csr() @ m.tensor(D)).sum().backward()
        return x.grad

    for function in (of_leaf, of_dense):
        expected, got = both(function)
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-5)


def checked(m, rows=ROWS, columns=COLUMNS, values=V, size=(3, 4)):
    return m.sparse_csr_tensor(rows, columns, values, size, check_invariants=True)


WRONG = {
    "rows of another count": lambda m: checked(m, [0, 2, 3]),
    "no rows": lambda m: checked(m, m.tensor(3)),
    "column outside": lambda m: checked(m, columns=[0, 4, 1]),
    "negative column": lambda m: checked(m, columns=[-1, 2, 1]),
    "first row does not begin at 0": lambda m: checked(m, [1, 2, 2, 3]),
    "last row ends early": lambda m: checked(m, [0, 2, 2, 2]),
    "rows end before they begin": lambda m: checked(m, [0, 2, 1, 3]),
    "more elements than columns": lambda m: checked(m, [0, 3, 3, 3], size=(3, 2)),
    "columns in no order": lambda m: checked(m, columns=[2, 0, 1]),
    "repeated column": lambda m: checked(m, columns=[2, 2, 1]),
    "fewer values": lambda m: checked(m, values=V[:2], rows=[0, 1, 1, 2]),
    "one number": lambda m: checked(m, values=m.tensor(1.0)),
    "size of a vector": lambda m: checked(m, size=(3,)),
    "size of three": lambda m: checked(m, size=(3, 4, 5)),
    "dimensions of columns": lambda m: checked(m, columns=[COLUMNS]),
    "floats": lambda m: checked(m, m.tensor(ROWS) / 1, m.tensor(COLUMNS) / 1),
    "mixed types": lambda m: checked(m, m.tensor(ROWS, dtype=m.int32)),
    "integers with gradient": lambda m: made(m, [1, 2, 3], requires_grad=True),
    "coalesce": lambda m: made(m).coalesce(),
    "is_coalesced": lambda m: made(m).is_coalesced(),
    "indices": lambda m: made(m).indices(),
    "crow_indices of coordinates": lambda m: made(m).to_sparse().crow_indices(),
    "crow_indices of dense": lambda m: m.ones(2).crow_indices(),
    "col_indices of dense": lambda m: m.ones(2).col_indices(),
    "numpy": lambda m: made(m).numpy(),
    "extents": lambda m: made(m) @ m.ones(3, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_pytorchs(name):
    with pytest.raises((RuntimeError, TypeError)) as expected:
        WRONG[name](torch_module())
    with pytest.raises(expected.type) as got:
        WRONG[name](lucid_gpu)
    assert str(expected.value) in str(got.value)


def test_indices_are_checked_where_pytorch_does_not():
    for wrong in ({"col_indices": [0, 9, 1]}, {"col_indices": [2, 2, 1]}):
        with pytest.raises(RuntimeError, match="is not satisfied"):
            lucid_gpu.sparse_csr_tensor(ROWS, values=V, size=(3, 4), **wrong)
    with lucid_gpu.sparse.check_sparse_tensor_invariants(), pytest.raises(RuntimeError):
        lucid_gpu.sparse_csr_tensor(ROWS, [2, 0, 1], V)


REFUSED = {
    "t": lambda s: s.t(),
    "T": lambda s: s.T,
    "mT": lambda s: s.mT,
    "transpose": lambda s: lucid_gpu.transpose(s, 0, 1),
    "sum": lambda s: lucid_gpu.sum(s),
    "add": lambda s: s + s,
    "add to dense": lambda s: lucid_gpu.ones(3, 4) + s,
    "add in place": lambda s: lucid_gpu.ones(3, 4).add_(s),
    "add_": lambda s: s.add_(s),
    "iadd": lambda s: s.__iadd__(s),
    "sub": lambda s: lucid_gpu.sub(s, s),
    "div": lambda s: s / 2,
    "mul by a matrix": lambda s: s * s,
    "exp": lambda s: lucid_gpu.exp(s),
    "zero_": lambda s: s.zero_(),
    "zeros_like": lambda s: lucid_gpu.zeros_like(s),
    "_indices": lambda s: s._indices(),
    "_values": lambda s: s._values(),
    "matmul of two": lambda s: s @ s.to_sparse(),
    "index": lambda s: s[0],
    "reshape": lambda s: lucid_gpu.reshape(s, (12,)),
    "csc": lambda s: s.to_sparse(layout=lucid_gpu.sparse_csc),
    "one dimension": lambda s: s.to_sparse(1),
    "data": lambda s: setattr(s, "data", s),
    "batch": lambda s: lucid_gpu.sparse_csr_tensor([[0, 1]], [[0]], [[1.0]]),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_form_refuses_and_names_the_layout(name):
    with pytest.raises(NotImplementedError, match=r"Could not run '.*'SparseCsrCPU' backend"):
        REFUSED[name](made())


def test_every_other_method_refuses():
    """A method of Tensor that nobody thought of does not read coordinates it should not."""
    s = made()
    for name in dir(lucid_gpu.Tensor):
        if name[0] == "_" or name in ("volatile",):
            continue
        ours, coo = getattr(type(s), name), getattr(lucid_gpu.sparse.SparseTensor, name)
        refuses = "Refused" in (getattr(ours, "__doc__", "") or "")
        if not refuses:
            assert ours is coo or name in vars(type(s)), name
        if "Refused" in (getattr(coo, "__doc__", "") or ""):
            assert refuses, name
