"""Scaled dot-product attention: its contract, and the composition for what tiles do not take."""

from __future__ import annotations

import functools
import math
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import func, nn
from lucid_gpu.nn.functional import scaled_dot_product_attention as attend
from tests.oracle import agree, refuses, torch_module

RNG = np.random.default_rng(4)
MASK = RNG.random((4, 5)) < 0.6
MASK[1] = False


def _attend(module: Any, *tensors: Any, **options: Any) -> Any:
    """PyTorch's by its composition, whose second derivatives exist."""
    if module is lucid_gpu:
        return attend(*tensors, **options)
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        return module.nn.functional.scaled_dot_product_attention(*tensors, **options)


def _numbers(*shape: int) -> Any:
    return RNG.standard_normal(shape)


SHAPES: dict[str, Any] = {  # query, key, value
    "heads": ((2, 3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 8)),
    "one head": ((4, 8), (5, 8), (5, 6)),
    "three dimensions": ((3, 4, 8), (3, 5, 8), (3, 5, 6)),
    "five dimensions": ((2, 2, 3, 4, 8), (2, 2, 3, 5, 8), (2, 2, 3, 5, 8)),
    "broadcast heads": ((2, 3, 4, 8), (1, 3, 5, 8), (2, 1, 5, 8)),
    "no keys": ((2, 4, 8), (2, 0, 8), (2, 0, 8)),
    "no queries": ((2, 0, 8), (2, 5, 8), (2, 5, 8)),
    "no batch": ((0, 4, 8), (0, 5, 8), (0, 5, 8)),
}
OPTIONS: dict[str, Any] = {
    "plain": {},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.3},
}


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("options", OPTIONS)
def test_agrees_with_torch_to_second_order(shapes: str, options: str, device: str) -> None:
    arrays = [_numbers(*shape) for shape in SHAPES[shapes]]
    agree(lambda m, *t: _attend(m, *t, **OPTIONS[options]), *arrays, device=device)


@pytest.mark.parametrize("shape", [(4, 8), (3, 4, 8), (2, 3, 4, 8)])
def test_attention_in_tiles_has_the_second_gradients_of_its_composition(
    shape: tuple[int, ...], device: str
) -> None:
    arrays = [_numbers(*shape) for _ in range(3)]

    def second(d: Any) -> list[Any]:
        tensors = [lucid_gpu.tensor(a, dtype=d, device=device, requires_grad=True) for a in arrays]
        first = lucid_gpu.autograd.grad(attend(*tensors).sin().sum(), tensors, create_graph=True)
        total = sum(g.sin().sum() for g in first)
        return [g.cpu().numpy() for g in lucid_gpu.autograd.grad(total, tensors)]

    for ours, wanted in zip(second(lucid_gpu.float32), second(lucid_gpu.float64), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-3, atol=1e-4)


def test_masks_agree_with_torch(device: str) -> None:
    """A row that sees no key is zero, and so are its gradients."""
    arrays = [_numbers(2, 3, 4, 8), _numbers(2, 3, 5, 8), _numbers(2, 3, 5, 8)]
    hidden = np.where(MASK, _numbers(4, 5), -np.inf)
    for mask in (MASK, MASK[None, None], MASK[:, :1], np.broadcast_to(MASK, (2, 3, 4, 5)).copy()):
        agree(lambda m, q, k, v, b: _attend(m, q, k, v, attn_mask=b), *arrays, mask, device=device)
    for bias in (hidden, _numbers(2, 1, 4, 5), _numbers(1, 5)):
        agree(lambda m, q, k, v, b: _attend(m, q, k, v, attn_mask=b), *arrays, bias, device=device)


@pytest.mark.parametrize("causal", [False, True])
def test_groups_of_heads_share_a_key(causal: bool, device: str) -> None:
    arrays = [_numbers(2, 6, 4, 8), _numbers(2, 2, 5, 8), _numbers(2, 2, 5, 8)]
    agree(lambda m, *t: _attend(m, *t, enable_gqa=True, is_causal=causal), *arrays, device=device)


@pytest.mark.parametrize("layout", ["rows of heads", "packed", "strided", "stride 0"])
def test_layouts(layout: str, device: str) -> None:
    def run(m: Any, x: Any) -> Any:
        if layout == "rows of heads":
            q, k, v = x[:, :, 0], x[:, :, 1], x[:, :, 2]
            return _attend(m, q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        if layout == "packed":
            q, k, v = x.reshape(2, 7, -1).split(32, dim=2)
            heads = [t.reshape(2, 7, 4, 8).transpose(1, 2) for t in (q, k, v)]
            return _attend(m, *heads, is_causal=True).transpose(1, 2).reshape(2, 7, 32)
        if layout == "strided":
            return _attend(m, x[:, ::2, 0], x[:, ::2, 1, :, :], x[:, 1:5, 2])
        return _attend(m, x[:, :, 0], x[:, :1, 1].expand(2, 7, 4, 8), x[:, :, 2])

    agree(run, _numbers(2, 7, 3, 4, 8), device=device)


def test_results_lie_as_queries_whoever_watches(device: str) -> None:
    """The first result of such a query, and those whose programs it has found."""
    hooks = lucid_gpu.autograd.graph.saved_tensors_hooks
    keeping = functools.partial(hooks, lambda t: t, lambda t: t)
    rows = lucid_gpu.randn(2, 3, 5, 8, device=device)
    in_rows = lucid_gpu.randn(2, 5, 3, 8, device=device).transpose(1, 2)
    columns = lucid_gpu.randn(2, 3, 8, 5, device=device).transpose(2, 3)
    ways = (nullcontext, nullcontext, lucid_gpu.no_grad, keeping, lucid_gpu.inference_mode)
    for way in (*ways, nullcontext):
        for q, stride in ((rows, (120, 40, 8, 1)), (in_rows, (120, 8, 24, 1)), (columns, None)):
            q = q.detach().requires_grad_()
            with way():
                assert attend(q, q, q).stride() == (stride or (120, 40, 8, 1))


@pytest.mark.parametrize("d", ["float16", "bfloat16", "float32"])
def test_types_agree_with_float64(d: str, device: str) -> None:
    kind = getattr(lucid_gpu, d)
    arrays = [lucid_gpu.randn(2, 3, 40, 16, device=device).to(kind) for _ in range(3)]
    found = attend(*arrays, is_causal=True)
    assert found.dtype is kind
    exact = attend(*[a.double() for a in arrays], is_causal=True)
    assert (found.double() - exact).abs().max().item() < {"float32": 1e-6}.get(d, 0.03)


def _recorded(q: Any, k: Any, v: Any, g: Any, **options: Any) -> list[Any]:
    """The result and its gradients, recorded, and what they have for gradients."""
    first = lucid_gpu.autograd.grad(attend(q, k, v, **options), (q, k, v), g, create_graph=True)
    return [*first, *lucid_gpu.autograd.grad(first, (q, k, v), (q, k, v))]


def _plain(q: Any, k: Any, v: Any, g: Any, **options: Any) -> list[Any]:
    out = attend(q, k, v, **options)
    return [out, *lucid_gpu.autograd.grad(out, (q, k, v), g)]


def _forward_mode(q: Any, k: Any, v: Any, g: Any, **options: Any) -> list[Any]:
    tangents = k.flip(0), v.flip(0)
    return list(func.jvp(lambda k, v: attend(q, k, v, **options), (k, v), tangents))


def _mapped(q: Any, k: Any, v: Any, g: Any, **options: Any) -> list[Any]:
    def gradient(q: Any, k: Any, v: Any) -> Any:
        return func.grad(lambda q: attend(q, k, v, **options).sum())(q)

    return [func.vmap(gradient)(q, k, v), func.vmap(gradient, (0, None, 0))(q, k[0], v)]


def _in_a_module(q: Any, k: Any, v: Any, g: Any, **options: Any) -> list[Any]:
    eye = lucid_gpu.eye(32, dtype=q.dtype, device=q.device)
    x, y = q.flatten(0, 1), k.flatten(0, 1)
    out, weights = nn.functional.multi_head_attention_forward(
        x, y, y, 32, 2, eye.repeat(3, 1), None, None, None, False, 0.0, eye, None,
        attn_mask=options.get("attn_mask"),
    )  # fmt: skip
    return [out, weights, *lucid_gpu.autograd.grad(out, (q, k), g.flatten(0, 1))]


@pytest.mark.parametrize("run", [_plain, _recorded, _forward_mode, _mapped, _in_a_module])
@pytest.mark.parametrize("d", ["float16", "bfloat16"])
def test_what_is_composed_rounds_no_scores(run: Any, d: str, device: str) -> None:
    """PyTorch's composition computes in float32 what 16-bit floats are given."""
    rng = np.random.default_rng(5)
    wide = [2 * rng.standard_normal((2, 24, 4, 32)) for _ in range(4)]
    mask = 3 * rng.standard_normal((24, 24))

    def results(kind: str) -> list[Any]:
        rounded = [lucid_gpu.tensor(x, dtype=getattr(lucid_gpu, d), device=device) for x in wide]
        added = lucid_gpu.tensor(mask, dtype=getattr(lucid_gpu, d), device=device)
        q, k, v, g = (t.transpose(1, 2).to(getattr(lucid_gpu, kind)).detach() for t in rounded)
        if run is _in_a_module:
            q, k, v, g = (t.flatten(0, 1)[:2].transpose(0, 1).unsqueeze(0) for t in (q, k, v, g))
            q, k, v, g = (t.contiguous().view(1, 24, 2, 32) for t in (q, k, v, g))
        for t in (q, k, v):
            t.requires_grad_()
        made = run(q, k, v, g, attn_mask=added.to(q.dtype))
        assert all(t.dtype is q.dtype for t in made)
        return [t.detach().double().cpu().numpy() for t in made]

    epsilon = lucid_gpu.finfo(getattr(lucid_gpu, d)).eps
    for near, exact in zip(results(d), results("float64"), strict=True):
        error = np.sqrt(np.mean((near - exact) ** 2)) / np.sqrt(np.mean(exact**2))
        assert error < 0.6 * epsilon


def test_dropout_drops_weights(device: str) -> None:
    q = lucid_gpu.zeros(1, 64, 4, device=device)
    v = lucid_gpu.eye(64, device=device).unsqueeze(0)
    weights = attend(q, q, v, dropout_p=0.5)
    assert {round(w * 64) for w in weights.flatten().tolist()} == {0, 2}
    assert attend(q, q, v, dropout_p=1.0).abs().max().item() == 0


def test_gradients_of_every_order(device: str) -> None:
    from lucid_gpu.autograd import gradcheck, gradgradcheck

    def tensor(*shape: int) -> Any:
        made = lucid_gpu.randn(*shape, dtype=lucid_gpu.float64, device=device)
        return made.requires_grad_()

    inputs = (tensor(1, 4, 3, 4), tensor(1, 2, 5, 4), tensor(1, 2, 5, 4), tensor(3, 5))

    def masked(q: Any, k: Any, v: Any, b: Any) -> Any:
        return attend(q, k, v, b, enable_gqa=True)

    def causal(q: Any, k: Any, v: Any) -> Any:
        return attend(q, k, v, is_causal=True, enable_gqa=True, scale=0.7)

    assert gradcheck(masked, inputs, check_forward_ad=True, check_batched_grad=True)
    assert gradcheck(causal, inputs[:3], check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(causal, inputs[:3])


def test_vmap_and_forward_mode_see_the_composition(device: str) -> None:
    q, k, v = (lucid_gpu.randn(5, 2, 4, 8, device=device) for _ in range(3))
    one_by_one = lucid_gpu.stack([attend(*t, is_causal=True) for t in zip(q, k, v)])
    batched = lucid_gpu.vmap(lambda *t: attend(*t, is_causal=True))(q, k, v)
    np.testing.assert_allclose(batched.tolist(), one_by_one.tolist(), atol=1e-6)
    value, tangent = lucid_gpu.func.jvp(lambda x: attend(x, k, v), (q,), (q,))
    near = (attend(q.double() * 1.001, k.double(), v.double()) - value.double()) / 0.001
    np.testing.assert_allclose(tangent.tolist(), near.tolist(), atol=5e-3)


WRONG: dict[str, Any] = {
    "one dimension": (
        RuntimeError,
        "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: 1",
        lambda m, f, q, k: f(q[0, 0, 0], k, k),
    ),
    "types": (
        RuntimeError,
        "Expected query, key, and value to have the same dtype, but got query.dtype: ",
        lambda m, f, q, k: f(q, k.double(), k),
    ),
    "mask type": (
        RuntimeError,
        "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask",
        lambda m, f, q, k: f(q, k, k, attn_mask=m.ones(4, 5, dtype=m.int32)),
    ),
    "mask shape": (RuntimeError, "", lambda m, f, q, k: f(q, k, k, m.ones(3, 5))),
    "mask of five dimensions": (
        RuntimeError, "", lambda m, f, q, k: f(q, k, k, m.ones(2, 1, 1, 4, 5))
    ),
    "dropout": (
        RuntimeError,
        "dropout probability has to be between 0 and 1, but got 1.5",
        lambda m, f, q, k: f(q, k, k, dropout_p=1.5),
    ),
    "groups": (
        RuntimeError,
        "Number of heads in key and value must divide the number of heads in",
        lambda m, f, q, k: f(q, k[:, :2], k[:, :2], enable_gqa=True),
    ),
    "heads": (
        RuntimeError,
        "The size of tensor a (3) must match the size of tensor b (2) at non-singleton dimension 1",
        lambda m, f, q, k: f(q, k[:, :2], k[:, :2]),
    ),
    "no tensor": (
        TypeError,
        "scaled_dot_product_attention(): argument 'key' (position 2) must be Tensor, not str",
        lambda m, f, q, k: f(q, "key", k),
    ),
    "scale by position": (
        TypeError, "takes from 3 to 6 positional arguments but 7",
        lambda m, f, q, k: f(q, k, k, None, 0.0, False, 1.0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls_are_refused_in_torchs_words(name: str, device: str) -> None:
    kind, words, call = WRONG[name]

    def scenario(m: Any, where: str) -> Any:
        q, k = m.ones(1, 3, 4, 8, device=where), m.ones(1, 3, 5, 8, device=where)
        return call(m, lambda *a, **o: _attend(m, *a, **o), q, k)

    refuses(kind, words, scenario, "cpu" if "mask" in name else device)


def test_what_torch_forgets_to_refuse() -> None:
    q, k = lucid_gpu.ones(1, 3, 4, 8), lucid_gpu.ones(1, 3, 5, 8)
    with pytest.raises(RuntimeError, match=r"as many rows; .*key \[1, 3, 5, 8\] and value \[1, 3"):
        attend(q, k, k[:, :, :3])
    with pytest.raises(RuntimeError, match="Explicit attn_mask should not be set when is_causal"):
        attend(q, k, k, lucid_gpu.ones(4, 5), is_causal=True)
    with pytest.raises(RuntimeError, match="expected floating point tensors, got int32"):
        attend(*[t.int() for t in (q, k, k)])
    assert math.isfinite(attend(q, k, k, scale=0.0).sum().item())


def test_a_scale_beyond_float32_is_infinite(device: str) -> None:
    x = lucid_gpu.ones(1, 1, 3, 8, device=device)
    assert attend(x, x, x, scale=1e39).isnan().all()


def test_thirds_of_rows_have_gradients_of_their_own(device: str) -> None:
    """Side by side in memory: the split's gradient is no copy, and yet nobody else's."""
    torch = pytest.importorskip("torch", reason="the oracle: make test ORACLE=1 installs torch")

    numbers = np.random.default_rng(3).standard_normal((2, 40, 96)).astype(np.float32)

    def gradients(t: Any, poke: Any, where: str) -> list[Any]:
        x = t.tensor(numbers, device=where, requires_grad=True)
        seen: list[Any] = []
        parts = x.split(32, dim=2)
        for part in (x, *parts):
            part.register_hook(seen.append)
        q, k, v = (z.view(2, 40, 2, 16).transpose(1, 2) for z in parts)
        if poke is not None:
            k.register_hook(poke)
        out = t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out.transpose(1, 2).reshape(2, 40, 32).square().sum().backward()
        return [x.grad, *sorted(seen, key=lambda g: g.numel())]

    def doubled(g: Any) -> None:
        g.mul_(2)

    for poke in (None, doubled):
        expected = gradients(torch, poke, "cpu")
        for written in range(5):
            found = gradients(lucid_gpu, poke, device)
            found[written].zero_()
            for number, (a, b) in enumerate(zip(found, expected, strict=True)):
                right = 0 * b.numpy() if number == written else b.numpy()
                np.testing.assert_allclose(a.cpu().numpy(), right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("eagerly", [False, True])
@pytest.mark.parametrize("width", [4, 6])
@pytest.mark.parametrize("mask", [None, "bool", "float", "float with grad"])
@pytest.mark.parametrize(("ndim", "dropout"), [(4, 0.0), (4, 0.5), (3, 0.0)])
def test_writes_to_what_torch_saves_are_refused_and_no_others(
    ndim: int, dropout: float, mask: str | None, width: int, eagerly: bool
) -> None:
    def refused(m: Any, written: int) -> bool:
        def made(*shape: int) -> Any:
            return m.ones(*shape, dtype=m.float64, requires_grad=True) * 1

        lead = (2,) * (ndim - 2)
        tensors = [made(*lead, 3, 4), made(*lead, 5, 4), made(*lead, 5, width)]
        shown = None
        if mask is not None:
            d = m.bool if mask == "bool" else m.float64
            shown = m.ones(3, 5, dtype=d) if "grad" not in mask else made(3, 5)
        options = {"attn_mask": shown, "dropout_p": dropout}
        tensors.append(m.nn.functional.scaled_dot_product_attention(*tensors, **options))
        if shown is not None:
            tensors.append(shown)
        with m.no_grad():
            tensors[written].fill_(1)
        try:
            tensors[3].sum().backward()
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            return True
        return False

    for written in range(4 if mask is None else 5):
        with lucid_gpu.fusion.eager(eagerly):
            assert refused(lucid_gpu, written) == refused(torch_module(), written)
