"""Corners that PyTorch takes: whatever it gives a value for, this package gives the same for.

Sizes as several numbers, operands without dimensions, bools that need no sums, ``out=`` of another
kind: each over all combinations, so that siblings of a corner are found with it.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import torch_module

_KINDS = "bool uint8 int32 int64 float16 float32 float64 complex64 complex128"
KINDS = _KINDS.split()


def outcome(module: Any, call: Callable[[Any], Any]) -> Any:
    """What a call gives, as plain values, or the class of its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = call(module)
        except Exception as error:
            return type(error)
        parts = result if isinstance(result, (tuple, list)) else (result,)
        return [
            (tuple(p.shape), str(p.dtype).rpartition(".")[2], np.array(p.tolist())) for p in parts
        ]


def same(found: Any, expected: Any) -> bool:
    if isinstance(found, type):
        return False
    return len(found) == len(expected) and all(
        a[:2] == b[:2] and np.allclose(a[2], b[2], rtol=2e-3, equal_nan=True)
        for a, b in zip(found, expected)
    )


def compare(cases: Iterator[tuple[str, Callable[[Any], Any]]], least: int) -> None:
    """Run cases on both modules; ``least`` of them have values in PyTorch."""
    torch, wrong, right = torch_module(), [], 0
    for name, call in cases:
        expected = outcome(torch, call)
        if isinstance(expected, type):
            continue
        right += 1
        found = outcome(lucid_gpu, call)
        if not same(found, expected):
            wrong.append(f"{name}: {found} for {expected}")
    assert not wrong, f"{len(wrong)} of {right}\n" + "\n".join(wrong)
    assert right >= least, right


# --- sizes ----------------------------------------------------------------------------------------

SIZED: dict[str, tuple[tuple[int, ...], ...]] = {
    "broadcast_to": ((2, 1, 3), (4, 2, 5, 3), (2, 2, 3), (2, 1, -1)),
    "expand": ((2, 1, 3), (4, 2, 5, 3), (2, 2, 3), (-1, 5, -1)),
    "reshape": ((6,), (3, 2), (-1, 2), (1, 6)),
    "view": ((6,), (3, 2), (-1, 2), (1, 6)),
    "permute": ((2, 0, 1), (0, 1, 2)),
    "repeat": ((2, 1, 3), (2, 2, 1, 3)),
    "tile": ((2,), (2, 1, 3), (2, 2, 1, 3)),
    "flip": ((0,), (0, 2), ()),
    "sum_to_size": ((2, 1, 3), (1, 1, 3), (2, 1, 1)),
    "new_zeros": ((2, 3), (0,), ()),
    "new_ones": ((2, 3), (4,)),
    "squeeze": ((1,), (0, 1)),
    "squeeze_": ((1,), (0, 1)),
    "movedim": ((0, 1),),
    "roll": ((1, 0),),
    "new_empty": ((0, 3),),
    "resize_": ((3, 2), (6,)),
    "count_nonzero": ((0, 1), (2,)),
}


def test_sizes_one_by_one_and_together() -> None:
    def cases() -> Iterator[Any]:
        for name, sizes in SIZED.items():
            for size in sizes:
                for args in (size, (size,), (list(size),)):
                    yield (
                        f"x.{name}{args}",
                        lambda m, n=name, a=args: getattr(m.arange(6.0).view(2, 1, 3), n)(*a),
                    )
                    yield (
                        f"{name}(x, {args})",
                        lambda m, n=name, a=args: getattr(m, n)(m.arange(6.0).view(2, 1, 3), *a),
                    )

    compare(cases(), 110)


# --- operands without dimensions, or with fewer ---------------------------------------------------

SHAPES = ((), (1,), (3,), (0,), (2, 3), (2, 1), (1, 3), (2, 0), (4, 2, 3))


def test_vecdot_of_all_shapes() -> None:
    def cases() -> Iterator[Any]:
        for a, b, dim in itertools.product(SHAPES, SHAPES, (-1, 0, 1, -2)):
            if len(a) == len(b) == 1 and dim in (1, -2):
                continue  # which PyTorch takes no notice of
            for kind in ("float32", "complex64"):
                yield (
                    f"vecdot {a} {b} {dim} {kind}",
                    lambda m, a=a, b=b, d=dim, k=kind: m.linalg.vecdot(
                        m.full(a, 2.0, dtype=getattr(m, k)), m.ones(b, dtype=getattr(m, k)), dim=d
                    ),
                )

    compare(cases(), 350)


# --- bools ----------------------------------------------------------------------------------------


def bools(m: Any) -> list[Any]:
    made = [m.tensor(v, dtype=m.bool) for v in (True, False, [], [False, True, True])]
    return [*made, m.ones(2, 0, dtype=m.bool)]


def test_bools_where_nothing_is_combined() -> None:
    def cases() -> Iterator[Any]:
        for i, name in itertools.product(range(5), ("cumsum", "cumprod", "cummax", "cummin")):
            for options in ({}, {"dtype": "bool"}, {"dtype": "int32"}):

                def call(m: Any, i: int = i, n: str = name, o: Any = options) -> Any:
                    return getattr(m, n)(bools(m)[i], 0, **{k: getattr(m, v) for k, v in o.items()})

                yield f"{name} {i} {options}", call
            yield f"{name}_ {i}", lambda m, i=i, n=name: getattr(bools(m)[i], f"{n}_")(0)
            yield (
                f"{name} {i} out=",
                lambda m, i=i, n=name: getattr(m, n)(bools(m)[i], 0, out=m.empty(0, dtype=m.bool)),
            )
        for i, keepdim in itertools.product(range(5), (False, True)):
            for name in ("kthvalue", "topk", "sort", "median", "mode", "max", "argmax", "all"):
                args = (1,) if name in ("kthvalue", "topk") else (0,)
                if name == "kthvalue":
                    args = (1, 0, keepdim)
                yield (
                    f"{name}{args} {i}",
                    lambda m, i=i, n=name, a=args: getattr(m, n)(bools(m)[i], *a),
                )
        values: tuple[Any, ...] = (1.0, 0.5, 1, 0, True, -3, 2.5)
        for i, v, right in itertools.product((2, 3), values, (False, True)):
            yield (
                f"searchsorted {i} {v} {right}",
                lambda m, i=i, v=v, r=right: m.searchsorted(bools(m)[i], v, right=r),
            )
            yield (
                f"bucketize {i} {v} {right}",
                lambda m, i=i, v=v, r=right: m.bucketize(v, bools(m)[i], right=r),
            )
        for i, k, shape in itertools.product((2, 3), KINDS, ((), (0,), (2,), (2, 0))):
            yield (
                f"searchsorted {i} of {k} {shape}",
                lambda m, i=i, k=k, s=shape: m.searchsorted(
                    bools(m)[i], m.ones(s, dtype=getattr(m, k))
                ),
            )

    compare(cases(), 150)


# --- out= of another kind -------------------------------------------------------------------------

_REDUCTIONS = """sum nansum mean nanmean prod amax amin all any argmax argmin std var cumsum cumprod
    softmax logcumsumexp"""
REDUCTIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    name: lambda m, x, o, n=name: getattr(m, n)(x, 1, out=o) for name in _REDUCTIONS.split()
}
REDUCTIONS["norm"] = lambda m, x, o: m.norm(x, 2, 1, out=o)
REDUCTIONS["vector_norm"] = lambda m, x, o: m.linalg.vector_norm(x, 2, 1, out=o)
REDUCTIONS["median"] = lambda m, x, o: m.median(x, 1, out=(o, m.empty(0, dtype=m.int64)))


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_into_other_types(name: str) -> None:
    """Sums, products and means are computed in the type of ``out=``: fractions are cut before."""
    numbers = [[0.6, 0.6, 1.7], [3.5, 0.0, 2.7]]

    def cases() -> Iterator[Any]:
        for kind, to in itertools.product(KINDS, KINDS):
            if name == "all" and to == "uint8" and kind[0] in "fc":
                continue  # there PyTorch asks the numbers after it has cut their fractions

            def call(m: Any, k: str = kind, o: str = to) -> Any:
                x = m.tensor(numbers).to(getattr(m, k))
                if x.is_complex():
                    x = x + 1j * x.real.flip(0)
                out = m.empty(0, dtype=getattr(m, o))
                result = REDUCTIONS[name](m, x, out)
                assert name == "median" or result is out
                return out

            yield f"{name} of {kind} into {to}", call

    compare(cases(), 3)
