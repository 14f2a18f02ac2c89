"""Every row of `lucid_gpu.scipy` has a sample call; whatever holds for all is checked of each."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import scipy as ours
from lucid_gpu.autograd import gradcheck, gradgradcheck
from lucid_gpu.func import vmap
from lucid_gpu.scipy.rows import ROWS
from tests.ops.samples import Row
from tests.ops.test_every_op import (
    arguments,
    arrays_of,
    close,
    found,
    gradients,
    has_tensors,
    host,
    leaves,
    numbered,
    parts,
    stepped,
    tensors_in,
    transposed,
)
from tests.scipy import samples
from tools import list_scipy

scipy = pytest.importorskip("scipy", reason="lucid_gpu.scipy computes by SciPy")
for space in ours.__all__:
    getattr(ours, space)  # enters its rows
NUMBERED = numbered(samples.ROWS)
REFUSED = sorted(name for name, row in ROWS.items() if row.runs == "refused")
TAKEN = sorted(set(ROWS) - set(REFUSED))


def rows_for(test: str, wanted: Callable[[Row], bool] = lambda row: True) -> Any:
    rows = {n: r for n, r in NUMBERED.items() if test not in r.reasons and wanted(r)}
    return pytest.mark.parametrize("row", [pytest.param(r, id=n) for n, r in rows.items()])


def called(row: Row, tensors: list[Any]) -> Any:
    """What our function gives of a row's arguments."""
    args, kwargs = arguments(row, lucid_gpu, tensors)
    return row.of(found(ours, row.name)(*args, **kwargs))


def smooth(row: Row) -> Callable[..., Any]:
    return lambda *tensors: tuple(
        [x for x in tensors_in(called(row, list(tensors))) if x.dtype.is_floating_point]
    )


def on_arrays(row: Row, module: Any) -> Any:
    """What the function of a module gives of a row's arrays."""
    args, kwargs = arguments(row, lucid_gpu, [lucid_gpu.tensor(a) for a in arrays_of(row)])

    def plain(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(map(plain, value))
        return value.numpy() if isinstance(value, lucid_gpu.Tensor) else value

    given = {key: plain(value) for key, value in kwargs.items()}
    return row.of(found(module, row.name)(*map(plain, args), **given))


def test_every_row_has_a_sample() -> None:
    assert sorted(set(TAKEN) - {row.name for row in samples.ROWS}) == []
    assert sorted({row.name for row in samples.ROWS} - set(TAKEN)) == []


def test_the_page_has_every_row() -> None:
    written = list_scipy.PAGE.read_text(encoding="utf-8").partition(list_scipy.MARK)[2]
    assert written == list_scipy.tables(), "rows came or went: run `make names`"


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_why(name: str) -> None:
    with pytest.raises(NotImplementedError, match=re.escape(ROWS[name].refused)):
        found(ours, name)(lucid_gpu.eye(2))


@pytest.mark.parametrize("name", TAKEN)
def test_parameters_are_scipys(name: str) -> None:
    """Each of ours is one of SciPy's, in its order; a ufunc does not tell its names."""
    try:
        theirs = list(inspect.signature(found(scipy, name)).parameters)
    except ValueError:
        return
    mine = list(inspect.signature(found(ours, name)).parameters)
    if "kwargs" not in theirs and "args" not in theirs and theirs[:1] != ["x1"]:
        assert [p for p in theirs if p in mine] == mine


@rows_for("values")
def test_values_are_scipys(row: Row) -> None:
    expected = on_arrays(row, scipy)
    got = called(row, leaves(lucid_gpu, arrays_of(row)))
    for a, b in zip(parts(got), parts(expected), strict=True):
        close(a, b, "value", rtol=1e-9, atol=1e-11)


@rows_for("gradients", has_tensors)
def test_derivatives_are_those_of_differences(row: Row) -> None:
    inputs = leaves(lucid_gpu, arrays_of(row))
    forward = "forward" not in row.reasons
    assert gradcheck(smooth(row), inputs, check_forward_ad=forward)
    if "twice" not in row.reasons:
        assert gradgradcheck(smooth(row), inputs)


@rows_for("gradients", has_tensors)
def test_layouts_do_not_matter(row: Row) -> None:
    plain = leaves(lucid_gpu, arrays_of(row))
    expected = smooth(row)(*plain)
    slopes = gradients(lucid_gpu, list(expected), plain)
    for layout in (transposed, stepped):
        laid = [layout(a).requires_grad_() for a in arrays_of(row)]
        got = smooth(row)(*laid)
        for a, b in zip(got, expected, strict=True):
            close(a, b, "value")
        for a, b in zip(gradients(lucid_gpu, list(got), laid), slopes, strict=True):
            close(a, b, "gradient", rtol=1e-6, atol=1e-8)


@rows_for("vmap", has_tensors)
def test_vmap_is_a_loop(row: Row) -> None:
    examples = [[lucid_gpu.tensor(a) for a in arrays_of(row, again)] for again in range(2)]
    got = vmap(smooth(row))(*map(lucid_gpu.stack, zip(*examples, strict=True)))
    loop = [smooth(row)(*tensors) for tensors in examples]
    for part, wanted in zip(got, zip(*loop, strict=True), strict=True):
        close(part, lucid_gpu.stack(wanted), rtol=1e-6, atol=1e-8)


@rows_for("float32", has_tensors)
def test_float32_stays_and_is_right(row: Row) -> None:
    wide = leaves(lucid_gpu, arrays_of(row))
    narrow = leaves(lucid_gpu, [a.astype("f") for a in arrays_of(row)])
    expected, got = smooth(row)(*wide), smooth(row)(*narrow)
    assert {x.dtype for x in got} == {lucid_gpu.float32}
    tolerance: dict[str, Any] = {"rtol": 2e-3, "atol": 2e-4}
    for a, b in zip(got, expected, strict=True):
        close(a, b, **tolerance)
    slopes = gradients(lucid_gpu, list(expected), wide)
    for a, b in zip(gradients(lucid_gpu, list(got), narrow), slopes, strict=True):
        close(a, b, **tolerance)


@rows_for("arrays")
def test_plain_arrays_go_to_scipy(row: Row) -> None:
    got = on_arrays(row, ours)
    for a, b in zip(parts(got), parts(on_arrays(row, scipy)), strict=True):
        assert not isinstance(a, lucid_gpu.Tensor)
        np.testing.assert_array_equal(a, b)


@rows_for("device", has_tensors)
def test_on_each_device(row: Row, device: str) -> None:
    here = leaves(lucid_gpu, arrays_of(row))
    there = [lucid_gpu.tensor(a, device=device).requires_grad_() for a in arrays_of(row)]
    with lucid_gpu.device(device):
        got = smooth(row)(*there)
    assert {x.device.type for x in got} == {device}
    expected = smooth(row)(*here)
    for a, b in zip(got, expected, strict=True):
        close(host(a), host(b), rtol=1e-6, atol=1e-8)
    slopes = gradients(lucid_gpu, list(expected), here)
    for a, b in zip(gradients(lucid_gpu, [x.cpu() for x in got], there), slopes, strict=True):
        close(a, b, rtol=1e-6, atol=1e-8)
