"""Matrix products of every rank."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import agree, modules, plain, same_error

RNG = np.random.default_rng(9)
LEFT = [(4,), (3, 4), (2, 3, 4), (1, 3, 4), (5, 1, 3, 4), (0, 4), (2, 1, 4)]
RIGHT = [(4,), (4, 2), (2, 4, 2), (1, 4, 2), (2, 4, 1), (4, 0)]


@pytest.mark.parametrize("shapes", list(itertools.product(LEFT, RIGHT)), ids=str)
def test_every_rank_agrees_with_torch(shapes: Any, device: str) -> None:
    a, b = (RNG.standard_normal(shape) for shape in shapes)
    agree(lambda m, x, y: m.matmul(x, y), a, b, device=device)


FUNCTIONS: dict[str, Any] = {
    "mm": lambda m, x, y: x.mm(y),
    "operator": lambda m, x, y: x @ y,
    "bmm": lambda m, x, y: m.bmm(x.expand(2, 3, 4), y.expand(2, 4, 5)),
    "mv": lambda m, x, y: x.mv(y[:, 0]),
    "dot": lambda m, x, y: x[0].dot(y[:, 1]),
    "outer": lambda m, x, y: m.outer(x[0], y[0]),
    "addmm": lambda m, x, y: m.addmm(x[:, :1], x, y, beta=0.5, alpha=2),
    "transposed": lambda m, x, y: y.t() @ x.t(),
    "both transposed": lambda m, x, y: x.t().t() @ y.t().contiguous().t(),
    "strided": lambda m, x, y: x[:, ::2] @ y[::2, 1::2],
    "stride 0": lambda m, x, y: x[:1].expand(6, 4) @ y,
    "of one tensor": lambda m, x, y: x @ x.t(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_agree_with_torch(name: str, device: str) -> None:
    a, b = RNG.standard_normal((3, 4)), RNG.standard_normal((4, 5))
    agree(FUNCTIONS[name], a, b, device=device)


@pytest.mark.parametrize("d", ["float16", "bfloat16"])
def test_narrow_floats_accumulate_in_float32(d: str, device: str) -> None:
    kind = getattr(lucid_gpu, d)
    a = lucid_gpu.ones(2, 4096, dtype=kind, device=device)
    product = a @ a.t()
    assert product.dtype is kind
    assert product.tolist() == [[4096.0, 4096.0]] * 2


@pytest.mark.parametrize("d", ["int32", "int64", "uint8"])
def test_integers_have_products_too(d: str, device: str) -> None:
    a = lucid_gpu.arange(6, device=device).reshape(2, 3).to(getattr(lucid_gpu, d))
    assert (a @ a.t()).tolist() == [[5, 14], [14, 50]]
    assert (a @ a.t()).dtype is a.dtype
    assert a.expand(3, 2, 3).matmul(a.t()).tolist() == [[[5, 14], [14, 50]]] * 3


def test_complex_products_conjugate_their_gradients(device: str) -> None:
    from lucid_gpu.autograd import gradcheck

    a = lucid_gpu.randn(2, 3, dtype=lucid_gpu.complex128, device=device).requires_grad_()
    b = lucid_gpu.randn(3, 2, dtype=lucid_gpu.complex128, device=device).requires_grad_()
    assert gradcheck(lambda x, y: x @ y, (a, b))


def test_what_one_operand_needs_is_all_that_is_saved(device: str) -> None:
    """A product with a constant may be changed at the constant's other side."""
    x = lucid_gpu.ones(2, 2, device=device)
    w = lucid_gpu.ones(2, 2, device=device, requires_grad=True)
    y = (w * 1) @ x
    with lucid_gpu.no_grad():
        w += 1  # w's own value is not needed for its gradient
    y.sum().backward()
    assert w.grad.tolist() == [[2.0, 2.0]] * 2


MISUSE: dict[str, tuple[Any, str]] = {
    "inner extents": (
        lambda m: m.ones(2, 3) @ m.ones(4, 5),
        "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)",
    ),
    "batches": (lambda m: m.ones(2, 1, 3) @ m.ones(3, 3, 1), "must match"),
    "numbers": (
        lambda m: m.tensor(1.0) @ m.ones(2),
        "both arguments to matmul need to be at least",
    ),
    "types": (lambda m: m.ones(2, 2) @ m.ones(2, 2).double(), "same dtype"),
    "mm of vectors": (lambda m: m.mm(m.ones(2), m.ones(2)), ""),
    "bmm of matrices": (lambda m: m.bmm(m.ones(2, 2), m.ones(2, 2)), ""),
    "dot of matrices": (lambda m: m.dot(m.ones(2, 2), m.ones(2)), "1D tensors expected"),
    "dot of other lengths": (lambda m: m.dot(m.ones(3), m.ones(2)), ""),
    "a number": (lambda m: m.matmul(m.ones(2), 3), "must be Tensor, not int"),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name: str) -> None:
    function, words = MISUSE[name]
    same_error(function, words)


def test_bias_and_activation_are_one_kernel_after_the_product(device: str) -> None:
    functional = lucid_gpu.nn.functional
    x, w = lucid_gpu.randn(64, 32, device=device), lucid_gpu.randn(48, 32, device=device)
    b = lucid_gpu.randn(48, device=device)
    with lucid_gpu.fusion.eager(False), lucid_gpu.profiler.record() as log:
        functional.gelu(functional.linear(x, w, b)).numpy(force=True)
    (kernel,) = log.kernels
    assert kernel.ops[0] == "add" and kernel.shape == (64, 48)
    assert kernel.bytes_read == (64 * 48 + 48) * 4 and kernel.bytes_written == 64 * 48 * 4


def test_linear_of_a_vector_agrees_with_torch(device: str) -> None:
    x, w = np.random.default_rng(5).standard_normal((2, 3)), np.arange(6.0).reshape(2, 3)
    agree(lambda m, v, w: m.nn.functional.linear(v, w) ** 2, x[0], w, device=device)


def test_gradients_of_products_are_in_memory_of_their_own(device: str) -> None:
    def scenario(m: Any, d: str) -> list[Any]:
        x, w, v = (m.arange(4.0, device=d).view(2, 2).requires_grad_() for _ in range(3))
        y = m.nn.functional.linear(x, w) @ v
        (g,) = m.autograd.grad(y.sum(), [x], retain_graph=True)
        y.sum().backward(retain_graph=True)
        before = [t.grad for t in (x, w, v)]
        x.grad = None
        y.sum().backward()
        for t in (x, w, v):
            t.grad.mul_(10)
        return [g, before, x.grad, w.grad, v.grad]

    ours, *theirs = [plain(scenario(m, d)) for m, d in modules(device)]
    assert all(their == ours for their in theirs)


@pytest.mark.parametrize("shape, kind", [((2, 2), "float64"), ((2, 3), "float32")])
def test_a_linear_layer_takes_no_other_gradient(shape: Any, kind: str) -> None:
    def by_hand(m: Any) -> None:
        x, w = (m.ones(2, 2, requires_grad=True) for _ in range(2))
        node = m.nn.functional.linear(x, w).grad_fn
        with m.no_grad():
            node(m.ones(shape, dtype=getattr(m, kind)))

    same_error(by_hand, "expected a gradient of shape [2, 2] and type float32")


def test_linear_is_one_op_under_both_names() -> None:
    def scenario(m: Any, d: str) -> list[Any]:
        F = m.nn.functional
        x, w = m.arange(6.0).view(2, 3), m.arange(3.0)
        rows = m.func.vmap(F.linear, (0, None))(x, w)
        return [F.linear(x, w), rows, F.linear(x, x, out=m.empty(2, 2))]

    ours, *theirs = [plain(scenario(m, d)) for m, d in modules()]
    assert all(their == ours for their in theirs)
