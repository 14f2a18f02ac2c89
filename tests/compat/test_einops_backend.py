"""einops and opt_einsum work on tensors, whichever package is imported first."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck
from tests.oracle import agree, modules, torch_module

einops = pytest.importorskip("einops", reason="einops is not installed: pip install einops")

rng = np.random.default_rng(3)
IMAGES = rng.standard_normal((2, 4, 6, 3))
ROWS = rng.standard_normal((5, 4)).T

PATTERNS: dict[str, Any] = {
    "patches": lambda m, x: einops.rearrange(x, "b (h p) (w q) c -> b (h w) (p q c)", p=2, q=3),
    "transpose": lambda m, x: einops.rearrange(x, "b ... c -> c ... b"),
    "list": lambda m, x: einops.rearrange([x, x * 2], "n b h w c -> b (n h) w c"),
    "mean": lambda m, x: einops.reduce(x, "b h w c -> b c", "mean"),
    "max": lambda m, x: einops.reduce(x, "b (h h2) (w w2) c -> b h w c", "max", h2=2, w2=2),
    "min": lambda m, x: einops.reduce(x, "b h w c -> b () () c", "min"),
    "prod": lambda m, x: einops.reduce(x, "b h w c -> b", "prod"),
    "any": lambda m, x: einops.reduce(x > 1, "b h w c -> b c", "any"),
    "repeat": lambda m, x: einops.repeat(x, "b h w c -> b (h 2) w (c k)", k=2),
    "einsum": lambda m, x: einops.einsum(x, x, "b h w i, b h w j -> b i j"),
    "unpacked": lambda m, x: _packed(x),
}


def _packed(x: Any) -> Any:
    together, shapes = einops.pack([x, x[..., 0]], "b *")
    one, other = einops.unpack(together * 2, shapes, "b *")
    return one + other[..., None]


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns(name: str) -> None:
    agree(PATTERNS[name], IMAGES, device="cpu")


def test_patterns_on_a_device(device: str) -> None:
    for name in ("patches", "max", "repeat"):
        agree(PATTERNS[name], IMAGES, device=device, order=1)


def test_what_einops_tells_of_tensors(device: str) -> None:
    x = lucid_gpu.tensor(IMAGES, device=device, requires_grad=True)
    assert einops.parse_shape(x, "b h _ c") == {"b": 2, "h": 4, "c": 3}
    assert np.array_equal(einops.asnumpy(x), IMAGES)
    with pytest.raises(einops.EinopsError, match="Error while processing rearrange-reduction"):
        einops.rearrange(x, "b h w c -> b h w")
    assert gradcheck(
        lambda x: einops.reduce(x, "(a b) c -> a c", "mean", b=2),
        (lucid_gpu.tensor(ROWS, device=device, requires_grad=True),),
    )


ORDERS = {
    "einops first": "import einops, lucid_gpu as m",
    "einops later": "import lucid_gpu as m; x = m.ones(2, 3); import einops",
    "by name": "import lucid_gpu as m; from einops import rearrange; import einops",
}


@pytest.mark.parametrize("order", ORDERS)
def test_orders_of_import(order: str) -> None:
    program = (
        f"import sys; hooks = [*sys.meta_path], [*sys.path_hooks]; {ORDERS[order]}\n"
        "x = einops.rearrange(m.ones(2, 3), 'a b -> (b a)')\n"
        "assert type(x) is m.Tensor and x.shape == (6,)\n"
        "import opt_einsum; y = opt_einsum.contract('ij,jk,kl->li', *[m.ones(2, 2)] * 3)\n"
        "assert type(y) is m.Tensor and y.tolist() == [[4, 4], [4, 4]]\n"
        "assert hooks == ([*sys.meta_path], [*sys.path_hooks])"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("broken", ["None", "types.ModuleType('einops')"])
def test_the_package_works_without_einops(broken: str) -> None:
    """It is not installed, or is a version whose back ends are elsewhere."""
    program = (
        f"import sys, types; sys.modules['einops'] = {broken}\n"
        "import lucid_gpu; assert lucid_gpu.ones(2).tolist() == [1, 1]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_layers(device: str) -> None:
    pytest.importorskip("torch", reason="the judge is missing: make test ORACLE=1")
    from einops.layers import torch as theirs

    from lucid_gpu.nn import einops as ours

    torch = torch_module()
    made = []
    for module, layers, where in ((lucid_gpu, ours, device), (torch, theirs, "cpu")):
        net = module.nn.Sequential(
            layers.Rearrange("b h w c -> b (h w) c"),
            layers.EinMix("b n (g c) -> b n (g d)", "g c d", "g d", g=1, c=3, d=2),
            layers.Reduce("b n d -> b d", "mean"),
        ).to(where)
        for p in net.parameters():
            p.data.fill_(0.5)
        x = module.tensor(IMAGES, dtype=module.float32, device=where)
        net(x).square().sum().backward()
        made.append((net(x).tolist(), [p.grad.tolist() for p in net.parameters()]))
        assert list(net.state_dict()) == ["1.weight", "1.bias"] and "EinMix" in repr(net)
    assert type(einops.rearrange(torch.ones(2, 3), "a b -> b a")) is torch.Tensor
    for mine, other in zip(*made, strict=True):
        np.testing.assert_allclose(_flat(mine), _flat(other), rtol=1e-5)


def _flat(value: Any) -> Any:
    return np.concatenate([np.ravel(v) for v in value])


@pytest.fixture
def settings() -> Iterator[Any]:
    with lucid_gpu.backends.opt_einsum.flags():
        yield lucid_gpu.backends.opt_einsum


CHAINS: dict[str, tuple[str, tuple[tuple[int, ...], ...]]] = {
    "matrices": ("ij,jk,kl->il", ((3, 4), (4, 5), (5, 2))),
    "four": ("ab,bc,cd,d->a", ((3, 4), (4, 5), (5, 2), (2,))),
    "batches": ("bij,bjk,bk->bi", ((2, 3, 4), (2, 4, 5), (2, 5))),
    "dots": ("...i,...j,...->...ij", ((2, 3), (2, 4), (2,))),
    "scales": ("b,bij,b->bij", ((2,), (2, 3, 4), (2,))),
    "one": ("ij,jk,kl->il", ((3, 4), (1, 5), (5, 2))),
    "all": ("a,a,a->", ((3,), (3,), (3,))),
    "outer": ("a,b,c->cab", ((2,), (3,), (4,))),
}


@pytest.mark.parametrize("name", CHAINS)
def test_orders_of_operands(name: str, settings: Any) -> None:
    pytest.importorskip("opt_einsum")
    equation, shapes = CHAINS[name]
    arrays = [rng.standard_normal(s) for s in shapes]
    for flags in ({"enabled": False}, {"strategy": "optimal"}, {"strategy": "auto"}):
        with settings.flags(**flags):
            agree(lambda m, *xs: m.einsum(equation, *xs), *arrays, device="cpu")


def test_a_cheap_order_is_taken(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opt_einsum = pytest.importorskip("opt_einsum")
    assert settings.is_available() and settings.get_opt_einsum() is opt_einsum
    assert settings.enabled is True and settings.strategy == "auto"
    module = importlib.import_module("lucid_gpu.ops.einsum")
    pair, met = module._pair, []

    def seen(first: Any, second: Any, *rest: Any) -> Any:
        met.append((*first[1], *second[1]))
        return pair(first, second, *rest)

    monkeypatch.setattr(module, "_pair", seen)
    x, y, z = [lucid_gpu.ones(*s) for s in ((8, 8), (8, 8), (8,))]
    for enabled in (True, False):
        with settings.flags(enabled=enabled):
            assert lucid_gpu.einsum("ij,jk,k->i", x, y, z).tolist() == [64] * 8
    assert met == [("j", "k", "k"), ("i", "j", "j"), ("i", "j", "j", "k"), ("i", "k", "k")]


def test_contract_of_opt_einsum(device: str) -> None:
    opt_einsum = pytest.importorskip("opt_einsum")
    x, y = [lucid_gpu.tensor(IMAGES[0, 0], device=device, requires_grad=True) for _ in range(2)]
    found = opt_einsum.contract("ij,kj,kl->li", x, y, y)
    expected = lucid_gpu.einsum("ij,kj,kl->li", x, y, y)
    assert np.allclose(found.tolist(), expected.tolist())
    found.sum().backward()
    (gradient,) = lucid_gpu.autograd.grad(expected.sum(), y)
    assert np.allclose(y.grad.tolist(), gradient.tolist())


def test_functions_take_numpys_axes(device: str) -> None:
    """As `opt_einsum.contract` calls them, when it knows nothing of a package."""
    x = lucid_gpu.tensor(IMAGES, device=device)
    for axes in ((3, 0, 2, 1), [0, 1, 3, 2]):
        assert np.array_equal(lucid_gpu.transpose(x, axes).cpu().numpy(), IMAGES.transpose(axes))
    found = lucid_gpu.tensordot(x, x, axes=((0, 1), (0, 1)))
    assert np.allclose(found.cpu().numpy(), np.tensordot(IMAGES, IMAGES, axes=((0, 1), (0, 1))))
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'dim1'"):
        lucid_gpu.transpose(x, 1)


def test_settings_as_pytorchs(settings: Any) -> None:
    pytest.importorskip("opt_einsum")
    for module, _ in modules():
        named = module.backends.opt_einsum
        assert named.enabled is True and named.strategy == "auto"
        with named.flags(enabled=False):
            assert named.enabled is False
        named.strategy = "greedy"
        assert named.strategy == "greedy"
        named.strategy = "auto"
    with pytest.raises(ValueError, match="`strategy` must be one of the following"):
        settings.strategy = "best"
    with settings.flags(enabled=False):
        with pytest.raises(ValueError, match="opt_einsum is not enabled, so setting a"):
            settings.strategy = "greedy"
