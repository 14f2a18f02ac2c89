"""Sums of products by subscripts: values, gradients and errors as in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import agree, same_error, torch_module

RNG = np.random.default_rng(28)
A = RNG.standard_normal((2, 3))
B = RNG.standard_normal((3, 4))
SQUARE = RNG.standard_normal((3, 3))
CUBE = RNG.standard_normal((2, 3, 4))
OTHER = RNG.standard_normal((2, 4, 5))
VECTOR = RNG.standard_normal(3)
NUMBER = np.array(1.5)
EQUATIONS: dict[str, tuple[Any, ...]] = {
    "i->": (VECTOR,),
    "i->i": (VECTOR,),
    "ij->ji": (A,),
    "ba": (A,),
    "ii->i": (SQUARE,),
    "ii": (SQUARE,),
    "iji->j": (RNG.standard_normal((2, 3, 2)),),
    "iii->i": (RNG.standard_normal((2, 2, 2)),),
    "ij->": (A,),
    "...j->...": (CUBE,),
    "...j->j": (CUBE,),
    "i...": (CUBE,),
    "...ij->...ji": (CUBE,),
    "->": (NUMBER,),
    ",i->i": (NUMBER, VECTOR),
    "i,i": (VECTOR, VECTOR),
    "i,j->ij": (VECTOR, A[0]),
    "ij,j->i": (A, VECTOR),
    "j,ij": (VECTOR, A),
    "ij,jk": (A, B),
    "ij,jk->ki": (A, B),
    "i j , j k -> i k": (A, B),
    "ij,ij->ij": (A, A),
    "ij,ij->i": (A, A),
    "ij,ij": (A, A),
    "ij,kj->": (A, SQUARE),
    "bij,bjk->bik": (CUBE, OTHER),
    "bij,bjk->kbi": (CUBE, OTHER),
    "bij,jk->bik": (CUBE, OTHER[0]),
    "bij,kj->bki": (CUBE, OTHER[0].T),
    "bij,bij->b": (CUBE, CUBE),
    "bij,bj->bi": (CUBE, OTHER[..., 0]),
    "bij,b->ij": (CUBE, A[:, 0]),
    "bij,ij->b": (CUBE, B),
    "bij,bik->bjk": (CUBE, CUBE),
    "bij,bkj->bikj": (CUBE, CUBE),
    "ijk,lk->lij": (CUBE, OTHER[0].T),
    "ii,ij->j": (SQUARE, B),
    "Ab,bA": (A, A.T),
    "...ij,...jk->...ik": (CUBE, OTHER),
    "...,...": (RNG.standard_normal((2, 1, 3)), RNG.standard_normal((4, 1))),
    "...i,i...->...": (A, VECTOR),
    "i...,j...->ij...": (A, B.T[:, :3]),
    "ij,ij->": (A, A[:1]),
    "ij,ij->j": (A[:, :1], A),
    "ij,jk->ik": (A[:, :1], B),
    "bij,bjk->bi": (CUBE[:1], OTHER),
    "ij,jk,kl->il": (A, B, OTHER[0]),
    "i,ij,j->": (A[:, 0], A, VECTOR),
    "bi,oij,bj->bo": (A, RNG.standard_normal((5, 3, 3)), A),
    "bqhd,bkhd->bhqk": (RNG.standard_normal((2, 3, 2, 4)), RNG.standard_normal((2, 5, 2, 4))),
    "bkdh,bqdh->bhqk": (RNG.standard_normal((2, 3, 4, 2)), RNG.standard_normal((2, 5, 4, 2))),
    "bhqk,bkhd->bqhd": (RNG.standard_normal((2, 2, 3, 5)), RNG.standard_normal((2, 5, 2, 4))),
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_agrees_with_torch(equation: str, device: str) -> None:
    arrays = EQUATIONS[equation]
    agree(lambda m, *t: m.einsum(equation, *t) * 1, *arrays, device=device)


FORMS: dict[str, Any] = {
    "lists": lambda m, a, b: m.einsum(a, [0, 1], b, [1, 2], [2, 0]),
    "lists, implicit": lambda m, a, b: m.einsum(a, [51, 3], b, [3, 0]),
    "lists with dots": lambda m, a, b: m.einsum(a, [..., 1], b, [1, 2], [..., 2]),
    "a list of operands": lambda m, a, b: m.einsum("ij,jk", [a, b]),
    "tensordot": lambda m, a, b: m.tensordot(a, b, 1),
    "tensordot nothing": lambda m, a, b: m.tensordot(a, b, dims=0),
    "tensordot by dims": lambda m, a, b: m.tensordot(b, a, dims=([0], [-1])),
    "tensordot by a tensor": lambda m, a, b: m.tensordot(a, a, m.tensor([[0, 1], [0, 1]])),
    "tensordot of extents of one": lambda m, a, b: m.tensordot(a, b[:1], ([1], [0])),
    "inner": lambda m, a, b: m.inner(a, b.t()),
    "inner of a number": lambda m, a, b: a.inner(b[0, 0]),
    "inner of a vector": lambda m, a, b: b.t().inner(a[1]),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms_agree_with_torch(name: str, device: str) -> None:
    agree(FORMS[name], A, B, device=device)


def test_a_pair_is_one_product(device: str) -> None:
    x, y = (lucid_gpu.rand(2, 3, 2, 4, device=device) for _ in range(2))
    with lucid_gpu.profiler.record() as log:
        lucid_gpu.einsum("bqhd,bkhd->bhqk", x, y).tolist()
    names = {kernel.name for kernel in log.kernels}  # nothing but the library's, and copies for it
    assert names <= {"lucid_copy"}


def test_vmap(device: str) -> None:
    x = lucid_gpu.tensor(CUBE, device=device)
    found = lucid_gpu.vmap(lambda a: lucid_gpu.einsum("ij,kj->ik", a, a))(x)
    assert found.allclose(lucid_gpu.einsum("bij,bkj->bik", x, x))


MISUSE: dict[str, tuple[Any, str]] = {
    "nothing": (lambda m: m.einsum("ij->"), "must specify the equation string"),
    "too few letters": (
        lambda m: m.einsum("i", m.ones(2, 3)),
        "the number of subscripts in the equation (1) does not match the number of dimensions (2) "
        "for operand 0 and no ellipsis was given",
    ),
    "too many letters": (lambda m: m.einsum("i...", m.tensor(1.0)), "(1) is more than the number"),
    "too few operands": (lambda m: m.einsum("i,i", m.ones(2)), "fewer operands were provided"),
    "too many operands": (lambda m: m.einsum("i", m.ones(2), m.ones(2)), "more operands were"),
    "a digit": (
        lambda m: m.einsum("i1", m.ones(2, 3)),
        "invalid subscript given at index 1 in the equation string, subscripts must be in [a-zA-Z]",
    ),
    "two arrows": (lambda m: m.einsum("ij->i->j", m.ones(2, 3)), "at index 5 in the equation"),
    "unknown output": (
        lambda m: m.einsum("ij->ik", m.ones(2, 3)),
        "output subscript k does not appear in the equation for any input operand",
    ),
    "output twice": (lambda m: m.einsum("ij->ii", m.ones(2, 3)), "more than once in the output"),
    "extents": (
        lambda m: m.einsum("ij,jk", m.ones(2, 3), m.ones(2, 3)),
        "subscript j has size 2 for operand 1 which does not broadcast with previously seen size 3",
    ),
    "no diagonal": (
        lambda m: m.einsum("ii", m.ones(2, 3)),
        "subscript i is repeated for operand 0 but the sizes don't match, 3 != 2",
    ),
    "two ellipses": (lambda m: m.einsum("...i...", m.ones(2)), "ellipsis was already found"),
    "two ellipses in the output": (
        lambda m: m.einsum("...i->......", m.ones(2)),
        "found '.' for output but an ellipsis (...) was already found",
    ),
    "two dots": (lambda m: m.einsum("..i", m.ones(2)), "that is not part of any ellipsis"),
    "number 52": (lambda m: m.einsum(m.ones(2), [52]), "within the valid range [0, 52)"),
    "no tensor": (lambda m: m.einsum("i,i", m.ones(2), [1, 2]), "but got list"),
    "an empty list": (lambda m: m.einsum("", []), "at least one operand"),
    "no equation": (lambda m: m.einsum(5, m.ones(2)), "'equation' (position 1) must be str, not"),
    "types": (lambda m: m.einsum("ij,j->i", m.ones(2, 2), m.ones(2, dtype=m.float64)), ""),
    "tensordot": (
        lambda m: m.tensordot(m.ones(2, 3), m.ones(2, 3), 1),
        "contracted dimensions need to match, but first has size",
    ),
    "less than none": (lambda m: m.tensordot(m.ones(2), m.ones(2), -1), "dims >= 0, but got"),
    "more than there are": (lambda m: m.tensordot(m.ones(2), m.ones(2), 2), "dims < ndim_a or"),
    "dims": (
        lambda m: m.tensordot(m.ones(2), m.ones(2, 2), ([0], [0, 1])),
        "dimension lists should have same length",
    ),
    "dims twice": (
        lambda m: m.tensordot(m.ones(2, 2), m.ones(2, 2), ([0, 0], [0, 0])),
        "dim 0 appears multiple times in the list of dims",
    ),
    "inner": (
        lambda m: m.inner(m.ones(2, 3), m.ones(4)),
        "the last dimension must match on both input tensors but got shapes [2, 3] and [4]",
    ),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name: str) -> None:
    same_error(*MISUSE[name])


MIXED = [
    ("ij,jk->ik", (("bool", (2, 1)), ("float64", (1, 3)))),
    ("ij,kj->ik", (("bool", (1, 2)), ("float64", (2, 1)))),
    ("i,ij,j->", (("bool", (2,)), ("float32", (1, 1)), ("float64", (3,)))),
    ("bij,bij->b", (("float32", (3, 1, 1)), ("int64", (1, 1, 2)))),
    ("bij,bjk->bik", (("int32", (1, 2, 2)), ("int32", (1, 1, 1)))),
    ("bij,bij->b", (("bool", (1, 1, 2)), ("bool", (1, 1, 1)))),
    ("ij,j->i", (("float32", (2, 1)), ("float64", (1,)))),
    ("ij->i", (("int32", (2, 1)),)),
    ("...i,...i->...", (("complex64", (2, 1)), ("float32", (2, 3)))),
    ("ij,ik,il->jkl", (("float64", (3, 1)), ("float64", (3, 3)), ("float64", (3, 2)))),
]


@pytest.mark.parametrize(("equation", "operands"), MIXED)
def test_along_one_element_operands_of_any_types_broadcast(equation: str, operands: Any) -> None:
    arrays = [(np.abs(RNG.standard_normal(shape)) * 3 + 1).astype(d) for d, shape in operands]

    def run(module: Any) -> list[Any]:
        tensors = [module.tensor(a) for a in arrays]
        for t in tensors:
            t.requires_grad_(t.dtype.is_floating_point or t.dtype.is_complex)
        result = module.einsum(equation, *tensors)
        if result.requires_grad:
            total = result.sum()
            (total.real if total.dtype.is_complex else total).backward()
        found = [result, *[t.grad for t in tensors if t.requires_grad]]
        steps = [s for s, n in zip(result.stride(), result.shape) if n > 1]
        return [steps, *[(str(t.dtype).split(".")[1], np.asarray(t.detach())) for t in found]]

    (steps, *ours), (wanted, *theirs) = run(lucid_gpu), run(torch_module())
    assert steps == wanted
    for (d, mine), (expected, other) in zip(ours, theirs, strict=True):
        assert d == expected
        np.testing.assert_allclose(mine, other, rtol=1e-5)


def test_products_summed_over_a_letter_of_both_are_of_one_type() -> None:
    same_error(
        lambda m: m.einsum("i,i->", m.ones(3, dtype=m.int32), m.ones(3, dtype=m.bool)),
        "expected scalar type Int but found Bool",
    )
