"""Tensors beside the real CuPy's arrays, and products of every type."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
import pytest

import lucid_gpu as torch


def values(*shape: int) -> Any:
    return np.random.default_rng(5).integers(-4, 5, shape).astype(np.float32)


@pytest.mark.parametrize("operation", ["+", "-", "*", "/", "@", "<", "**"])
def test_an_array_on_the_left(driver: Any, operation: str) -> None:
    a, b = np.abs(values(3, 3)) + 1, np.abs(values(3, 3)) + 1
    t = torch.tensor(b, device="cuda", requires_grad=True)
    x = cupy.asarray(a)
    found, wanted = (eval(f"p {operation} q", {"p": p, "q": q}) for p, q in ((x, t), (a, b)))
    assert isinstance(found, torch.Tensor) and found.device.type == "cuda"
    np.testing.assert_allclose(found.detach().cpu().numpy(), wanted, rtol=1e-6)


@pytest.mark.parametrize("name", ["int64", "int32", "int16", "int8", "uint8"])
@pytest.mark.parametrize("shapes", [((3, 4), (4, 2)), ((2, 3, 4), (4, 2)), ((4,), (4,))])
def test_products_of_integers(driver: Any, name: str, shapes: Any) -> None:
    a, b = ((np.arange(np.prod(s)).reshape(s) % 5) for s in shapes)
    kind = getattr(torch, name)
    found = torch.tensor(a, dtype=kind, device="cuda") @ torch.tensor(b, dtype=kind, device="cuda")
    wanted = torch.tensor(a, dtype=kind) @ torch.tensor(b, dtype=kind)
    assert found.dtype is wanted.dtype and found.cpu().equal(wanted)


KINDS = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("form", ["plain", "transposed", "sliced", "batched", "broadcast"])
def test_products_of_every_layout(driver: Any, name: str, form: str) -> None:
    kind, found = getattr(torch, name), []
    for device in ("cuda", "cpu"):
        a = torch.tensor(values(2, 4, 6), dtype=kind, device=device)
        b = torch.tensor(values(2, 6, 4), dtype=kind, device=device)
        pairs = {
            "plain": (a[0], b[0]),
            "transposed": (b[0].T, a[0].T),
            "sliced": (a[0][:, 1:5:2], b[1][1:5:2, :3]),
            "batched": (a, b),
            "broadcast": (a, b[0]),
        }
        left, right = pairs[form]
        product = (left @ right).cpu()
        found.append(product if product.is_complex() else product.to(torch.float64))
    np.testing.assert_array_equal(found[0].numpy(), found[1].numpy())


def test_sorting_and_indexing(driver: Any) -> None:
    x = torch.tensor(values(5, 7), device="cuda")
    on_host = x.cpu()
    for dim in (0, 1):
        found, wanted = x.sort(dim=dim, stable=True), on_host.sort(dim=dim, stable=True)
        assert found[0].cpu().equal(wanted[0]) and found[1].cpu().equal(wanted[1])
    assert x[x > 0].cpu().equal(on_host[on_host > 0])
    places = torch.tensor([3, 0, 3], device="cuda")
    assert x[places].cpu().equal(on_host[places.cpu()])
