"""Linear algebra: values, gradients, second gradients and refusals, beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck, gradgradcheck
from lucid_gpu.devices import lapack
from tests.oracle import agree, same_error, torch_module
from tests.slow import slow_but

rng = np.random.default_rng(3)


def some(*shape: int, dtype: Any = np.float64) -> Any:
    return rng.standard_normal(shape).astype(dtype)


SQUARE, BATCH, WIDE, TALL = some(3, 3), some(2, 1, 3, 3), some(2, 3), some(2, 4, 3)
TURNED = np.swapaxes(some(2, 3, 3), -1, -2)
COMPLEX = some(2, 3, 3) + 1j * some(2, 3, 3)
INDEFINITE = some(3, 5, 4) @ np.swapaxes(some(3, 5, 4), -1, -2) + np.diag([1.0, 1, 1, -9, 1])
SINGULAR = np.array([[[1.0, 2], [2, 4]], [[1, 2], [3, 4]]])
EMPTY, NOTHING = np.zeros((0, 3, 3)), np.zeros((2, 0, 0))


def spd(x: Any) -> Any:
    """A positive-definite matrix of any."""
    return x @ x.mT + 0.5


def spread(m: Any, x: Any) -> Any:
    """Singular values and vectors, whatever the signs of the latter."""
    U, S, Vh = m.linalg.svd(x, full_matrices=False)
    return U @ Vh, S, (U * (S**2).unsqueeze(-2).to(U.dtype)) @ Vh


def turned(m: Any, x: Any, order: str = "L") -> Any:
    L, V = m.linalg.eigh(x, order)
    return L, (V * (L**2 + 1).unsqueeze(-2)) @ V.mT, V.abs()


def spectrum(m: Any, x: Any) -> Any:
    """Eigenvalues and vectors in one order, without their phase."""
    L, V = m.linalg.eig(x)
    order = (L.real + 0.1 * L.imag).detach().argsort(-1)
    L = L.gather(-1, order)
    V = V.abs().gather(-1, order.unsqueeze(-2).expand(V.shape))
    return L.real, L.imag, V


OPS: list[tuple[str, Any, tuple[Any, ...]]] = [
    ("inv", lambda m, x: m.linalg.inv(x), (SQUARE,)),
    ("inv of a batch", lambda m, x: m.linalg.inv(x), (TURNED,)),
    ("inv of nothing", lambda m, x: m.linalg.inv(x), (EMPTY,)),
    ("inverse 0x0", lambda m, x: x.inverse(), (NOTHING,)),
    ("inv_ex", lambda m, x: m.linalg.inv_ex(x), (BATCH,)),
    ("solve", lambda m, a, b: m.linalg.solve(a, b), (BATCH, some(2, 3, 2))),
    ("solve a vector", lambda m, a, b: m.linalg.solve(a, b), (SQUARE, some(3))),
    ("solve vectors", lambda m, a, b: m.linalg.solve(a, b), (TURNED, some(2, 3))),
    ("solve right", lambda m, a, b: m.linalg.solve(a, b, left=False), (SQUARE, some(2, 2, 3))),
    ("solve nothing", lambda m, a, b: m.linalg.solve(a, b), (NOTHING, np.zeros((2, 0, 2)))),
    ("solve_ex", lambda m, a, b: m.linalg.solve_ex(a, b), (SQUARE, some(3, 1))),
    (
        "solve_triangular",
        lambda m, a, b: m.linalg.solve_triangular(a, b, upper=True),
        (SQUARE + 3 * np.eye(3), some(2, 3, 2)),
    ),
    (
        "solve_triangular with ones",
        lambda m, a, b: m.linalg.solve_triangular(
            a, b, upper=False, left=False, unitriangular=True
        ),
        (TURNED, some(2, 2, 3)),
    ),
    (
        "triangular_solve",
        lambda m, a, b: m.triangular_solve(b, a, upper=False, transpose=True),
        (SQUARE + 3 * np.eye(3), some(3, 2)),
    ),
    ("tensorinv", lambda m, x: m.linalg.tensorinv(x, ind=1), (some(4, 2, 2),)),
    ("tensorsolve", lambda m, a, b: m.linalg.tensorsolve(a, b), (some(2, 3, 6), some(2, 3))),
    (
        "tensorsolve by dims",
        lambda m, a, b: m.linalg.tensorsolve(a, b, dims=(0,)),
        (some(6, 2, 3), some(2, 3)),
    ),
    ("det", lambda m, x: m.linalg.det(x), (BATCH,)),
    ("det 0x0", lambda m, x: x.det(), (NOTHING,)),
    ("slogdet", lambda m, x: m.linalg.slogdet(x), (TURNED,)),
    ("logdet", lambda m, x: m.logdet(spd(x)), (TURNED,)),
    ("cholesky", lambda m, x: m.linalg.cholesky(spd(x)), (BATCH,)),
    ("cholesky upper", lambda m, x: m.linalg.cholesky(spd(x), upper=True), (SQUARE,)),
    ("cholesky_ex", lambda m, x: m.linalg.cholesky_ex(spd(x)), (EMPTY,)),
    ("cholesky, top level", lambda m, x: m.cholesky(spd(x), True), (SQUARE,)),
    (
        "cholesky_solve",
        lambda m, a, b: m.cholesky_solve(b, m.linalg.cholesky(spd(a))),
        (SQUARE, some(3, 2)),
    ),
    ("cholesky_inverse", lambda m, x: m.cholesky_inverse(m.linalg.cholesky(spd(x))), (SQUARE,)),
    ("qr", lambda m, x: m.linalg.qr(x), (TALL,)),
    ("qr of wide", lambda m, x: m.linalg.qr(x), (WIDE,)),
    ("qr complete", lambda m, x: m.linalg.qr(x, mode="complete"), (TURNED,)),
    ("qr, top level", lambda m, x: m.qr(x), (TALL,)),
    ("svd", spread, (TALL,)),
    ("svd of wide", spread, (WIDE,)),
    ("svd full", lambda m, x: m.linalg.svd(x)[1], (TALL,)),
    ("svd, top level", lambda m, x: m.svd(x)[0].abs() + m.svd(x).V.abs().sum(), (TALL,)),
    ("svdvals", lambda m, x: m.linalg.svdvals(x), (TALL,)),
    ("svdvals of nothing", lambda m, x: m.linalg.svdvals(x), (np.zeros((2, 0)),)),
    ("eigh", lambda m, x: turned(m, spd(x)), (TURNED,)),
    ("eigh of the upper half", lambda m, x: turned(m, x, "U"), (SQUARE,)),
    ("eigvalsh of one", lambda m, x: m.linalg.eigvalsh(x), (SQUARE,)),
    ("eigvalsh", lambda m, x: m.linalg.eigvalsh(x), (EMPTY,)),
    ("eig", spectrum, (TURNED,)),
    ("pinv", lambda m, x: m.linalg.pinv(x), (TALL,)),
    ("pinv of wide", lambda m, x: x.pinverse(), (WIDE,)),
    ("pinv hermitian", lambda m, x: m.linalg.pinv(x @ x.mT, hermitian=True), (SQUARE,)),
    ("lstsq", lambda m, a, b: m.linalg.lstsq(a, b).solution, (TALL, some(2, 4, 2))),
    ("lstsq of a vector", lambda m, a, b: m.linalg.lstsq(a, b).solution, (WIDE, some(2))),
    ("lu", lambda m, x: m.linalg.lu(x), (TURNED,)),
    ("lu of tall", lambda m, x: m.linalg.lu(x), (TALL,)),
    ("lu of wide", lambda m, x: m.linalg.lu(x), (WIDE,)),
    ("lu_factor", lambda m, x: m.linalg.lu_factor(x), (SQUARE,)),
    (
        "lu_solve",
        lambda m, a, b: m.linalg.lu_solve(*m.linalg.lu_factor(a), b, adjoint=True),
        (SQUARE, some(3, 2)),
    ),
    ("matrix_power", lambda m, x: x.matrix_power(5), (BATCH,)),
    ("matrix_power 0", lambda m, x: m.linalg.matrix_power(x, 0), (SQUARE,)),
    ("matrix_power -2", lambda m, x: m.linalg.matrix_power(x, -2), (SQUARE,)),
    ("matrix_exp", lambda m, x: m.linalg.matrix_exp(2 * x), (BATCH,)),
    ("matrix_exp of nothing", lambda m, x: m.matrix_exp(x), (NOTHING,)),
    (
        "multi_dot",
        lambda m, a, b, c, d: m.linalg.multi_dot([a, b, c, d]),
        (some(4), some(4, 2), some(2, 5), some(5, 3)),
    ),
    ("chain_matmul", lambda m, a, b: m.chain_matmul(a, b), (some(4, 2), some(2, 5))),
    ("cross", lambda m, a, b: m.linalg.cross(a, b), (some(2, 3), some(1, 3))),
    ("cross, top level", lambda m, a, b: m.cross(a, b), (some(3, 4), some(3, 4))),
    ("vecdot", lambda m, a, b: m.linalg.vecdot(a, b), (some(2, 3), some(3))),
    ("vander", lambda m, x: m.linalg.vander(x), (some(2, 3),)),
    ("vander of integers", lambda m, x: m.linalg.vander(x, N=4), (np.arange(3),)),
    *[
        (f"vector_norm {p}", lambda m, x, p=p: m.linalg.vector_norm(x, p, -1, True), (TALL,))
        for p in (0, 1, 2, 3.5, -1, float("inf"), float("-inf"))
    ],
    *[
        (f"matrix_norm {p}", lambda m, x, p=p: m.linalg.matrix_norm(x, p, (0, -1)), (TALL,))
        for p in ("fro", "nuc", 1, -1, 2, -2, float("inf"), float("-inf"))
    ],
    ("matrix_norm kept", lambda m, x: m.linalg.matrix_norm(x, "nuc", (2, 0), True), (TALL,)),
    ("norm", lambda m, x: m.linalg.norm(x), (TALL,)),
    ("norm of a matrix", lambda m, x: m.linalg.norm(x, 1), (SQUARE,)),
    ("norm of vectors", lambda m, x: m.linalg.norm(x, 3, dim=1), (TALL,)),
    *[(f"cond {p}", lambda m, x, p=p: m.linalg.cond(x, p), (BATCH,)) for p in (None, 2, -2, "nuc")],
    ("nuclear_norm", lambda m, x: m.nuclear_norm(x), (SQUARE,)),
    (
        "householder_product",
        lambda m, x, t: m.linalg.householder_product(x, t),
        (some(2, 4, 3), some(2, 2)),
    ),
    ("orgqr of nothing", lambda m, x, t: m.orgqr(x, t), (some(3, 2), some(0))),
    ("geqrf", lambda m, x: x.detach().geqrf(), (TALL,)),
    *[
        (
            f"ormqr {i}",
            lambda m, x, t, y, i=i: m.ormqr(x, t, y.mT if i < 2 else y, i > 1, i % 2 == 1),
            (some(4, 3), some(3), some(4, 2)),
        )
        for i in range(4)
    ],
]


@pytest.mark.parametrize("function, arrays", [c[1:] for c in OPS], ids=[c[0] for c in OPS])
def test_values_and_gradients(function: Any, arrays: Any, device: str) -> None:
    order = 2 if device == "cpu" else 1  # second gradients are the same ops again
    agree(function, *arrays, device=device, order=order, rtol=1e-6, atol=1e-7)


ARRAYS = ["inv", "inv of a batch", "inv of nothing"]
ARRAYS += ["qr", "qr of wide", "qr complete", "svd", "svd of wide", "svd full", "svdvals",
          "svdvals of nothing", "eigh", "eigh of the upper half", "eigvalsh"]  # fmt: skip


@pytest.mark.parametrize("name", ARRAYS)
def test_gradients_that_nobody_differentiates(name: str) -> None:
    function, arrays = next(c[1:] for c in OPS if c[0] == name)
    agree(function, *arrays, device="cpu", order=1, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("n", [3, 40])
def test_the_gradient_of_a_singular_triangle_is_no_number(n: int, device: str) -> None:
    x = lucid_gpu.zeros(n, n, device=device, requires_grad=True)
    lucid_gpu.linalg.qr(x).R.sum().backward()
    assert not x.grad.isfinite().any()


KEPT = ["inv", "inv of nothing", "solve", "solve a vector", "solve right", "solve_ex", "det",
        "slogdet", "cholesky", "cholesky upper", "cholesky_inverse", "qr", "qr of wide", "lu",
        "lu_factor"]  # fmt: skip
KEPT += [c[0] for c in OPS if "triang" in c[0] or c[0].startswith("cholesky_solve")]


@pytest.mark.parametrize("name", KEPT)
def test_small_matrices_worked_on_as_large_ones_are(name: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(lapack, "FROM", 1)
    function, arrays = next(c[1:] for c in OPS if c[0] == name)
    agree(function, *arrays, device="cpu", order=2, rtol=1e-6, atol=1e-7)
    if name in COMPLEX_OPS:
        test_complex_values_and_gradients(name, "cpu")


@pytest.mark.parametrize("case", range(4))
def test_large_singular_matrices(case: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(lapack, "FROM", 1)
    test_failures(case)
    test_singular_matrices_of_a_gpu_are_noticed("cpu")
    test_the_gradient_of_a_singular_determinant_is_its_cofactors("cpu")


def test_solutions_by_factors_under_vmap_and_with_tangents(monkeypatch: Any) -> None:
    monkeypatch.setattr(lapack, "FROM", 1)
    test_batches_by_vmap("cpu")
    a, b = lucid_gpu.tensor(BATCH[:, 0], requires_grad=True), lucid_gpu.tensor(SQUARE)

    def found(a: Any, b: Any) -> Any:
        return lucid_gpu.linalg.solve(a, b), lucid_gpu.linalg.solve_triangular(a, b, upper=True)

    each = lucid_gpu.func.vmap(lucid_gpu.func.grad(lambda a: sum(found(a, b)).sum()))(a)
    (whole,) = lucid_gpu.autograd.grad(sum(found(a, b)).sum(), a)
    np.testing.assert_allclose(each.detach().numpy(), whole.numpy())
    tensors = [a.detach().requires_grad_(), b.detach().requires_grad_()]
    assert gradcheck(found, tensors, check_forward_ad=True)
    assert gradgradcheck(found, tensors)


SINGLE = ["inv", "solve", "det", "cholesky", "qr", "svd", "eigh", "pinv", "lu", "matrix_exp"]


@pytest.mark.parametrize("name", SINGLE)
def test_single_precision(name: str, device: str) -> None:
    function, arrays = next(c[1:] for c in OPS if c[0] == name)
    small = [a.astype(np.float32) for a in arrays]
    agree(function, *small, device=device, order=1, rtol=2e-3, atol=2e-3)


VALUES: list[tuple[str, Any, tuple[Any, ...]]] = [
    ("lstsq", lambda m, a, b: m.linalg.lstsq(a, b, driver="gelsd"), (some(4, 3), some(4, 2))),
    ("lstsq gels", lambda m, a, b: m.linalg.lstsq(a, b, driver="gels"), (some(4, 3), some(4, 2))),
    ("matrix_rank", lambda m, x: m.linalg.matrix_rank(x), (SINGULAR,)),
    ("matrix_rank tol", lambda m, x: m.linalg.matrix_rank(x, 2.0), (SINGULAR,)),
    ("matrix_rank of nothing", lambda m, x: m.linalg.matrix_rank(x), (NOTHING,)),
    (
        "matrix_rank hermitian",
        lambda m, x: m.linalg.matrix_rank(x, hermitian=True, rtol=0.5),
        (np.diag([1.0, -3, 2]),),
    ),
    ("pinv atol", lambda m, x: m.linalg.pinv(x, atol=0.1), (SINGULAR,)),
    ("inv_ex of singular", lambda m, x: m.linalg.inv_ex(x).info, (SINGULAR,)),
    ("cholesky_ex unfinished", lambda m, x: m.linalg.cholesky_ex(x), (INDEFINITE,)),
    ("cholesky_ex U", lambda m, x: m.linalg.cholesky_ex(x, upper=True), (INDEFINITE,)),
    ("lu_factor_ex", lambda m, x: m.linalg.lu_factor_ex(x).info, (SINGULAR,)),
    ("lu, old", lambda m, x: x.lu(), (SQUARE,)),
    ("lu with infos", lambda m, x: m.lu(x, get_infos=True), (SINGULAR,)),
    ("lu_factor_ex of nothing", lambda m, x: m.linalg.lu_factor_ex(x), (NOTHING,)),
    ("slogdet of singular", lambda m, x: m.slogdet(x), (SINGULAR,)),
    ("logdet of negative", lambda m, x: m.logdet(-x), (SINGULAR,)),
    ("cond 1", lambda m, x: m.linalg.cond(x, 1), (BATCH,)),  # PyTorch's gradient of it raises
    ("cond fro", lambda m, x: m.linalg.cond(x, "fro"), (BATCH,)),
    ("cond of singular", lambda m, x: m.linalg.cond(x, 1), (SINGULAR,)),
    ("qr r", lambda m, x: m.linalg.qr(x, mode="r")[1], (TALL,)),
    ("svd full", lambda m, x: [p.abs() for p in m.linalg.svd(x)[:2]], (WIDE,)),
    ("svd without vectors", lambda m, x: m.svd(x, compute_uv=False), (TALL,)),
]  # fmt: skip


@pytest.mark.parametrize("function, arrays", [c[1:] for c in VALUES], ids=[c[0] for c in VALUES])
def test_values(function: Any, arrays: Any, device: str) -> None:
    agree(function, *arrays, device=device, order=0, rtol=1e-6, atol=1e-7)


COMPLEX_OPS = {
    "inv": lambda m, x: m.linalg.inv(x),
    "solve": lambda m, x: m.linalg.solve(x, x.mT),
    "det": lambda m, x: m.linalg.det(x),
    "slogdet": lambda m, x: m.linalg.slogdet(x),
    "cholesky": lambda m, x: m.linalg.cholesky(x @ x.mT.conj() + m.eye(3, device=x.device)),
    "qr": lambda m, x: m.linalg.qr(x),
    "svd": lambda m, x: spread(m, x)[:2],
    "eigh": lambda m, x: m.linalg.eigh(x @ x.mT.conj())[0],
    "eig": lambda m, x: m.linalg.eigvals(x).abs().sum(),
    "pinv": lambda m, x: m.linalg.pinv(x),
    "norm": lambda m, x: [m.linalg.norm(x), m.linalg.matrix_norm(x, "nuc")],
    "vecdot": lambda m, x: m.linalg.vecdot(x, x.mT),
    "matrix_exp": lambda m, x: m.linalg.matrix_exp(x),
}


@pytest.mark.parametrize("name", COMPLEX_OPS)
def test_complex_values_and_gradients(name: str, device: str) -> None:
    found = []
    for module, where in ((lucid_gpu, device), (torch_module(), "cpu")):
        x = module.tensor(COMPLEX.tolist(), dtype=module.complex128, device=where)
        x.requires_grad_()
        out = COMPLEX_OPS[name](module, x)
        parts = list(out) if isinstance(out, (list, tuple)) else [out]
        total = 0
        for i, part in enumerate(parts):
            weights = np.random.default_rng(i).standard_normal(tuple(part.shape))
            weights = module.from_numpy(np.asarray(weights)).to(where)
            total = total + ((part * (1 + 2j)) * weights).sum().real
        total.backward()
        values = [p.detach().cpu().resolve_conj().numpy() if module is not lucid_gpu
                  else p.detach().cpu().numpy() for p in (*parts, x.grad)]  # fmt: skip
        found.append(values)
    for mine, theirs in zip(*found, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-8)


CHECKED = ["inv", "solve", "det", "slogdet", "cholesky", "qr", "qr of wide", "svd", "svd of wide",
           "eigh", "pinv", "lu", "lu of tall", "lu of wide", "matrix_exp",
           "householder_product"]  # fmt: skip


@pytest.mark.parametrize("name", slow_but(CHECKED, "solve", "svd of wide", "eigh", "lu of tall"))
def test_by_differences(name: str) -> None:
    function, arrays = next(c[1:] for c in OPS if c[0] == name)
    inputs = [lucid_gpu.tensor(a, requires_grad=True) for a in arrays]

    def run(*tensors: Any) -> Any:
        out = function(lucid_gpu, *tensors)
        return tuple(o for o in out if o.is_floating_point()) if isinstance(out, tuple) else out

    assert gradcheck(run, inputs, check_forward_ad=name in ("inv", "svd", "qr"))
    assert gradgradcheck(run, inputs, atol=1e-4)


def test_the_gradient_of_a_singular_determinant_is_its_cofactors(device: str) -> None:
    x = lucid_gpu.tensor(SINGULAR, device=device, requires_grad=True)
    (g,) = lucid_gpu.autograd.grad(x.det().sum(), x, create_graph=True)
    np.testing.assert_allclose(
        g.numpy(force=True), [[[4, -2], [-2, 1]], [[4, -3], [-2, 1]]], atol=1e-12
    )
    (h,) = lucid_gpu.autograd.grad((g * g).sum(), x)
    np.testing.assert_allclose(h.numpy(force=True), 2 * SINGULAR, atol=1e-10)


def test_batches_by_vmap(device: str) -> None:
    x = lucid_gpu.tensor(TURNED, device=device)
    for function in (
        lucid_gpu.linalg.inv,
        lucid_gpu.linalg.det,
        lucid_gpu.linalg.svdvals,
        lambda a: lucid_gpu.linalg.solve(a, x[0]),
        lambda a: lucid_gpu.linalg.eigh(a)[0],
        lambda a: lucid_gpu.linalg.cholesky(a @ a.mT + 1).norm(dim=(-2, -1)),
    ):
        mapped = lucid_gpu.vmap(function)(x)
        np.testing.assert_allclose(
            mapped.numpy(force=True), function(x).numpy(force=True), rtol=1e-10
        )


def test_low_rank_parts(device: str) -> None:
    left, right = some(2, 7, 3), some(2, 3, 5)
    x = lucid_gpu.tensor(left @ right, device=device, requires_grad=True)
    for A in (x, x.mT):
        U, S, V = lucid_gpu.svd_lowrank(A, 3)
        rebuilt = (U * S.unsqueeze(-2)) @ V.mT
        np.testing.assert_allclose(rebuilt.numpy(force=True), A.numpy(force=True), atol=1e-9)
        wanted = lucid_gpu.linalg.svdvals(A)[..., :3]
        np.testing.assert_allclose(S.numpy(force=True), wanted.numpy(force=True), atol=1e-9)
    assert lucid_gpu.svd_lowrank(x, 9).S.shape == (2, 5)
    U, S, V = lucid_gpu.pca_lowrank(x, 3)
    mean_free = (x - x.mean(-2, True)).numpy(force=True)
    np.testing.assert_allclose(
        ((U * S.unsqueeze(-2)) @ V.mT).numpy(force=True), mean_free, atol=1e-9
    )
    U, S, V = lucid_gpu.svd_lowrank(x, 3, M=x.detach() * 0.5)
    (g,) = lucid_gpu.autograd.grad(S.sum(), x)
    (h,) = lucid_gpu.autograd.grad(lucid_gpu.linalg.svdvals(x * 1.0)[..., :3].sum(), x)
    np.testing.assert_allclose(g.numpy(force=True), h.numpy(force=True), atol=1e-6)


EYE = [[1.0, 0], [0, 1]]
REFUSED: list[tuple[Any, str]] = [
    (lambda m: m.linalg.inv(m.ones(2, 2).long()), "Expected a floating point or complex tensor"),
    (lambda m: m.linalg.det(m.ones(2, 2).half()), "Low precision dtypes not supported. Got Half"),
    (lambda m: m.linalg.inv(m.ones(2, 3)), "A must be batches of square matrices, but they are 2"),
    (lambda m: m.linalg.inv(m.ones(3)), "The input tensor A must have at least 2 dimensions."),
    (lambda m: m.linalg.solve(m.eye(2), m.ones(3, 2)),
     "Incompatible shapes of A and B for the equation AX = B (2x2 and 3x2)"),
    (lambda m: m.linalg.solve(m.eye(2), m.ones(2).double()), "to have the same dtype"),
    (lambda m: m.linalg.qr(m.eye(2), mode="x"), "qr received unrecognized mode 'x'"),
    (lambda m: m.linalg.qr(m.eye(2).requires_grad_(), mode="r")[1].sum().backward(),
     "The derivative of linalg.qr depends on Q"),
    (lambda m: m.linalg.qr(m.ones(3, 2).requires_grad_(), mode="complete")[1].sum().backward(),
     "not differentiable when mode='complete' and nrows > ncols"),
    (lambda m: m.linalg.eigh(m.eye(2), UPLO="X"), "Expected UPLO argument to be 'L' or 'U'"),
    (lambda m: m.linalg.pinv(m.ones(2)), "expected a tensor with 2 or more dimensions"),
    (lambda m: m.linalg.lstsq(m.ones(3, 2), m.ones(2, 1)), "input.size(-2) should match other"),
    (lambda m: m.linalg.lstsq(m.ones(3, 2), m.ones(3, 1), driver="x"), "parameter `driver`"),
    (lambda m: m.linalg.lu_factor(m.zeros(2, 2)), "U[1,1] is zero and using it on lu_solve"),
    (lambda m: m.linalg.matrix_power(m.eye(2), 1.5), "must be int, not float"),
    (lambda m: m.linalg.matrix_norm(m.eye(2), 3), "linalg.matrix_norm: Order 3 not supported."),
    (lambda m: m.linalg.matrix_norm(m.eye(2), dim=(0, 0)), "dims must be different. Got (0, 0)"),
    (lambda m: m.linalg.vector_norm(m.zeros(0), float("inf")), "cannot compute the inf norm"),
    (lambda m: m.linalg.norm(m.ones(2, 2, 2), 2), "the input must be 1D or 2D. Got 3D."),
    (lambda m: m.linalg.cond(m.eye(2), "x"), "linalg.cond got an invalid norm type: x"),
    (lambda m: m.linalg.multi_dot([m.ones(2)]), "expected at least 2 tensors but got 1"),
    (lambda m: m.linalg.multi_dot([m.ones(2, 2, 2), m.eye(2)]), "must be 1D or 2D but got 3D"),
    (lambda m: m.linalg.multi_dot([m.eye(2), m.eye(3)]), "tensors 0 and 1 with shapes [2, 2] and"),
    (lambda m: m.linalg.cross(m.ones(2), m.ones(2)), "dimension -1 must have length 3. Got 2"),
    (lambda m: m.cross(m.ones(2), m.ones(2)), "no dimension of size 3 in input"),
    (lambda m: m.linalg.vecdot(m.ones(3), m.ones(2)), "inconsistent tensor size"),
    (lambda m: m.linalg.vander(m.ones(3), N=0), "N must be greater than 1."),
    (lambda m: m.pca_lowrank(m.ones(4, 3), 9), "must be non-negative integer and not greater"),
    (lambda m: m.pca_lowrank(m.ones(4, 3), 2, niter=-1), "niter(=-1) must be non-negative"),
    (lambda m: m.linalg.householder_product(m.ones(2, 3), m.ones(2)), "input.shape[-2] must be g"),
    (lambda m: m.linalg.householder_product(m.ones(3, 2), m.ones(3)), "input.shape[-1] must be gr"),
    (lambda m: m.linalg.householder_product(m.ones(3, 2), m.eye(2)), "Expected tau to have one di"),
    (lambda m: m.orgqr(m.ones(3, 2), m.ones(2).double()), "tau dtype Double does not match input"),
    (lambda m: m.orgqr(m.ones(3, 2).half(), m.ones(2).half()), '"orgqr'),
    (lambda m: m.ormqr(m.ones(3, 2), m.ones(2), m.ones(4, 2)), "other.shape[-2] must be equal to"),
    (lambda m: m.ormqr(m.ones(3, 2), m.ones(2), m.ones(3)), "Expected other to have the same numb"),
    (lambda m: m.geqrf(m.ones(2)), "torch.geqrf: input must have at least 2 dimensions."),
    (lambda m: m.geqrf(m.ones(2, 2, requires_grad=True))[0].sum().backward(),
     "the derivative for 'geqrf' is not implemented"),
    (lambda m: m.cholesky_solve(m.ones(3, 1), m.eye(2)),
     "each A matrix is 2 by 2 but each b matrix is 3 by 1"),
    (lambda m: m.cholesky_solve(m.ones(2, 1), m.eye(2).double()), "to have the same dtype"),
    (lambda m: m.linalg.solve_triangular(m.eye(2), 3, upper=True), "must be Tensor, not int"),
    (lambda m: m.linalg.tensorinv(m.ones(4), ind=0), "strictly positive integer for 'ind'"),
    (lambda m: m.linalg.tensorinv(m.ones(4, 2, 3), ind=1), "but got 6 != 4"),
    (lambda m: m.linalg.lstsq(m.ones(2), m.ones(2)), "input must have at least 2 dimensions."),
    (lambda m: m.linalg.lstsq(m.eye(2), m.tensor(1.0)), "other must have at least 1 dimension."),
    (lambda m: m.chain_matmul(), "chain_matmul(): Expected one or more matrices"),
    (lambda m: m.chain_matmul(m.ones(2)), "Tensor dimension is 1, expected 2 instead."),
    (lambda m: m.chain_matmul(m.eye(2), m.eye(2), m.ones(2)), "Tensor dimension is 1"),
    (lambda m: m.linalg.inv(m.eye(2), out=m.empty(0, dtype=m.int64)),
     "Expected out tensor to have dtype float, but got long int instead"),
    (lambda m: m.linalg.eig(m.eye(2), out=(m.empty(0, dtype=m.complex64), m.empty(0))),
     "torch.linalg.eig: Expected eigenvectors to be safely castable from ComplexFloat dtype, but "
     "got eigenvectors with dtype Float"),
    (lambda m: m.linalg.eigvals(m.eye(2), out=m.empty(0)), "linalg.eigvals: Expected eigenvalues"),
    (lambda m: m.cholesky_solve(m.eye(2), m.eye(2), out=m.empty(0, dtype=m.int32)),
     "cholesky_solve: Expected result to be safely castable from Float dtype, but got result"),
    (lambda m: m.linalg.eig(m.eye(2) / 0), "torch.linalg.eig: input tensor should not contain"),
    (lambda m: m.nuclear_norm(m.eye(2), out=m.empty(0, dtype=m.float64)), "norm"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_refusals(case: int) -> None:
    call, words = REFUSED[case]
    same_error(call, words)


@pytest.mark.parametrize("driver", ["gels", "gelsd", "gelss"])
@pytest.mark.parametrize("rcond", [-1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("shape", [(1, 1), (4, 2), (2, 4)])
def test_lstsq_reads_rcond_as_the_driver_of_lapack(
    driver: str, rcond: float, shape: tuple[int, int], device: str
) -> None:
    def solved(m: Any, a: Any, b: Any) -> Any:
        return m.linalg.lstsq(a, b, rcond=rcond, driver=driver).solution.detach()

    agree(solved, *np.random.default_rng(3).standard_normal((2, *shape)), device=device, order=0)


@pytest.mark.parametrize("p", [1, -1, np.inf, -np.inf, "fro", "nuc"])
def test_cond_of_a_singular_matrix_of_a_batch(p: Any, device: str) -> None:
    a = np.stack([np.eye(3), np.diag([1.0, 2, 0]), np.diag([1.0, 2, 4])])
    agree(lambda m, x: m.linalg.cond(x.detach(), p), a, device=device, order=0)


@pytest.mark.parametrize("p", [1, -np.inf, "fro"])
def test_cond_of_examples(p: Any, device: str) -> None:
    a = np.eye(3) + np.sin(np.arange(18.0).reshape(2, 3, 3)) / 9
    agree(lambda m, x: m.func.vmap(lambda y: m.linalg.cond(y.detach(), p))(x), a, device=device)
    x = lucid_gpu.tensor(a, requires_grad=True)
    assert gradcheck(lambda x: lucid_gpu.linalg.cond(x, p), x)
    assert gradgradcheck(lambda x: lucid_gpu.linalg.cond(x, p), x)


def test_lstsq_takes_a_negative_rcond_for_a_rounding(device: str) -> None:
    a = lucid_gpu.tensor([[1.0, 2], [2, 4]], device=device)
    b = lucid_gpu.ones(2, 1, device=device)
    found = lucid_gpu.linalg.lstsq(a, b, rcond=-1, driver="gelsd")
    np.testing.assert_allclose(found.solution.tolist(), [[0.12], [0.24]], rtol=1e-5)
    assert found.rank.item() == 1


PHASED: dict[str, Any] = {
    "eigh": lambda m, x: m.linalg.eigh(x + x.mH)[1].real.sum(),
    "eig": lambda m, x: m.linalg.eig(x)[1].imag.sum(),
    "svd's U": lambda m, x: m.linalg.svd(x)[0].real.sum(),
    "svd's V": lambda m, x: m.linalg.svd(x, full_matrices=False)[2].real.sum(),
}


@pytest.mark.parametrize("name", PHASED)
def test_a_loss_of_the_phases_of_complex_vectors_is_refused(name: str) -> None:
    a = np.random.default_rng(5).standard_normal((2, 3, 3, 2)) @ [1, 1j]

    def slope(m: Any) -> Any:
        return PHASED[name](m, m.tensor(a, requires_grad=True)).backward()

    same_error(slope, "specified up to multiplication by e^{i phi}")


def test_a_loss_without_phases_has_its_gradient(device: str) -> None:
    a = np.random.default_rng(5).standard_normal((3, 3, 2)) @ [1, 1j]

    def sizes(m: Any, x: Any) -> Any:
        x = x.requires_grad_()
        (U, _, Vh), V = m.linalg.svd(x), m.linalg.eigh(x + x.mH)[1]
        loss = ((U @ Vh).abs() ** 3).sum() + (V.abs() ** 3).sum()
        return m.view_as_real(m.autograd.grad(loss, x)[0])

    agree(sizes, a, device=device, order=0)


FAILED: list[tuple[Any, str]] = [
    (lambda m: m.cholesky_inverse(m.tensor([[1.0, 0], [2, 0]])),
     "cholesky_inverse: The diagonal element 2 is zero, the inversion could not be completed"),
    (lambda m: m.cholesky_inverse(m.tensor([EYE, [[0.0, 0], [2, 1]]])), "(Batch element 1): The"),
    (lambda m: m.linalg.inv(m.tensor([EYE, [[1.0, 2], [2, 4]]])),
     "linalg.inv: (Batch element 1): The diagonal element 2 is zero, the inversion could not be"),
    (lambda m: m.linalg.inv(m.zeros(2, 2)), "linalg.inv: The diagonal element 1 is zero"),
    (lambda m: m.linalg.solve(m.zeros(2, 2), m.ones(2)),
     "torch.linalg.solve: The solver failed because the input matrix is singular."),
    (lambda m: m.linalg.cholesky(-m.eye(3)), "(the leading minor of order 1 is not positive-def"),
    (lambda m: m.linalg.svd(m.full((2, 2), float("nan"))), "contained non-finite values"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(FAILED)))
def test_failures(case: int) -> None:
    call, words = FAILED[case]
    for module in (lucid_gpu, torch_module()):
        with pytest.raises(module.linalg.LinAlgError) as caught:
            call(module)
        assert words in str(caught.value)


def test_errors_of_linear_algebra_are_runtime_errors() -> None:
    assert issubclass(lucid_gpu.linalg.LinAlgError, RuntimeError)
    with pytest.raises(lucid_gpu.linalg.LinAlgError):
        lucid_gpu.linalg.cholesky(-lucid_gpu.eye(2))


def test_singular_matrices_of_a_gpu_are_noticed(device: str) -> None:
    x = lucid_gpu.tensor(SINGULAR, device=device)
    with pytest.raises(lucid_gpu.linalg.LinAlgError, match="Batch element 0"):
        lucid_gpu.linalg.inv(x)
    found, info = lucid_gpu.linalg.inv_ex(x)
    assert info.tolist() == [2, 0] and info.dtype is lucid_gpu.int32
    assert found.isnan().all(-1).all(-1).tolist() == [True, False]


@pytest.mark.parametrize("dtype", [lucid_gpu.float64, lucid_gpu.complex128])
def test_cholesky_of_large_matrices_has_the_gradient_that_solving_gives(dtype, device):
    rng = np.random.default_rng(0)
    half = rng.standard_normal((2, 110, 110, 2)).view(complex)[..., 0]
    half = half if dtype.is_complex else half.real
    A = half @ half.conj().swapaxes(-1, -2) / 110 + np.eye(110)
    A = lucid_gpu.tensor(A, dtype=dtype, device=device).requires_grad_()
    g = lucid_gpu.tensor(half, dtype=dtype, device=device)
    by_inverse, by_solving = (
        lucid_gpu.autograd.grad(lucid_gpu.linalg.cholesky(A), A, g, create_graph=create)[0]
        for create in (False, True)
    )
    assert by_solving.requires_grad and not by_inverse.requires_grad
    np.testing.assert_allclose(
        by_inverse.cpu().numpy(), by_solving.detach().cpu().numpy(), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 1, 4, 4), (60, 60)])
def test_cholesky_of_complex_matrices_has_torchs_gradient_of_every_loss(shape, upper, device):
    """Also of losses that change when the phase of a column does: it is not Hermitian then."""

    def factor(m, real, imaginary):
        return m.view_as_real(m.linalg.cholesky(m.complex(real, imaginary), upper=upper))

    rng = np.random.default_rng(3)
    a = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    a = a @ np.conj(np.swapaxes(a, -1, -2)) + shape[-1] * np.eye(shape[-1])
    order = 2 if shape[-1] < 10 else 1
    agree(factor, a.real.copy(), a.imag.copy(), device=device, order=order, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 5), (2, 6, 4)], ids=str)
def test_complex_pivots_are_those_of_lapack(shape: tuple[int, ...]) -> None:
    torch = torch_module()
    a = some(*shape) + 1j * some(*shape)
    for got, expected in zip(
        lucid_gpu.linalg.lu_factor(lucid_gpu.tensor(a)), torch.linalg.lu_factor(torch.tensor(a))
    ):
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-9)


def test_nuclear_norms_under_the_old_name(device: str) -> None:
    agree(lambda m, x: (m.norm(x, "nuc"), x.norm("nuc", keepdim=True)), WIDE, device=device)
    agree(lambda m, x: m.norm(x, "nuc", dim=(0, 2)), TALL, device=device)
    same_error(lambda m: m.norm(m.ones(2, 2, 2), "nuc"), "Expected a tensor with 2 dimensions")
    same_error(
        lambda m: m.norm(m.ones(2, 2), "none"), "only valid string values are 'fro' and 'nuc'"
    )


@pytest.mark.parametrize("driver", ["gels", "gelsd", "gelsy"])
def test_least_squares_under_vmap(driver: str, device: str) -> None:
    def solved(m: Any, a: Any, b: Any) -> Any:
        return m.vmap(lambda a, b: tuple(m.linalg.lstsq(a, b, driver=driver))[:2])(a, b)

    agree(solved, some(2, 4, 3), some(2, 4, 2), device=device, order=1)


def test_vander_of_a_number() -> None:
    agree(lambda m, x: m.linalg.vander(x, N=3), np.array(2.0), device="cpu")


@pytest.mark.parametrize("largest", [True, False, None])
@pytest.mark.parametrize("k", [1, 3])
def test_lobpcg_beside_pytorch(largest: Any, k: int) -> None:
    torch = torch_module()
    chance = np.random.default_rng(k)
    a, b = chance.standard_normal((2, 12, 12))
    a, b = a + a.T, b @ b.T + 12 * np.eye(12)
    found = []
    for m in (lucid_gpu, torch):
        A, B = m.from_numpy(a.copy()).requires_grad_(), m.from_numpy(b.copy())
        torch.manual_seed(0)
        e, x = m.lobpcg(A, k, largest=largest, niter=300, tol=1e-12)
        (e.sin().sum() + x.abs()[:3].sum()).backward()
        general, _ = m.lobpcg(A.detach(), k, B=B, largest=largest, niter=300, tol=1e-12)
        gradient = A.grad.numpy()
        found.append([e.detach().numpy(), general.numpy(), gradient + gradient.T])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)
    A, B = lucid_gpu.from_numpy(a), lucid_gpu.from_numpy(b)
    e, x = lucid_gpu.lobpcg(A.to_sparse(), k, B=B.to_sparse(), largest=largest)
    assert lucid_gpu.allclose(A @ x, B @ x * e) and x.shape == (12, k)
    assert lucid_gpu.allclose(x.mT @ B @ x, lucid_gpu.eye(k, dtype=x.dtype))
    with pytest.raises(ValueError, match="smaller than 3 x"):
        lucid_gpu.lobpcg(A, 5)
    with pytest.raises(NotImplementedError, match="no iterations"):
        lucid_gpu.lobpcg(A, 1, tracker=print)


@pytest.mark.parametrize("ord", [1, -1, 2, float("inf"), -float("inf"), "nuc"])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 3)])
def test_norms_of_matrices_without_elements_are_zero_or_refused_as_in_torch(shape, ord):
    found = []
    for m in (lucid_gpu, torch_module()):
        try:
            found.append(m.linalg.matrix_norm(m.ones(shape), ord).tolist())
        except IndexError:
            found.append("refused")
    assert found[0] == found[1]
