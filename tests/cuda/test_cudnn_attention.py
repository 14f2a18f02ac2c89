"""Attention through cuDNN, or over its stand-in: tests/standin/frontend."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.backends import cuda as settings
from lucid_gpu.devices import cudnn as by_cudnn
from lucid_gpu.nn.attention import SDPBackend, sdpa_kernel
from lucid_gpu.nn.functional import scaled_dot_product_attention as attend

HALF, ONLY, OURS = lucid_gpu.float16, SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH
rng = np.random.default_rng(3)


def drawn(*shape: int, device: Any, dtype: Any = HALF) -> Any:
    x = lucid_gpu.tensor(rng.standard_normal(shape), device=device).to(dtype)
    return x.detach().requires_grad_()


def heads_in_rows(x: Any) -> Any:
    """The same values, heads inside rows in memory."""
    return x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()


def thirds(batch: int, heads: int, rows: int, columns: int, device: Any) -> Any:
    """Queries, keys and values as slices of one array, and the array."""
    x = drawn(batch, rows, 3, heads, columns, device=device)
    return [part.transpose(1, 2) for part in x.unbind(2)], x


def results(q: Any, k: Any, v: Any, leaves: Any = None, **how: Any) -> list[Any]:
    out = attend(q, k, v, **how)
    g = lucid_gpu.tensor(np.random.default_rng(5).standard_normal(out.shape), device=out.device)
    gradients = lucid_gpu.autograd.grad(out, leaves or (q, k, v), g.to(out.dtype))
    return [t.detach().float().cpu().numpy() for t in (out, *gradients)]


SHAPES = {
    "of one length": [(2, 3, 5, 8)] * 3,
    "of two lengths": [(2, 2, 6, 16), (2, 2, 9, 16), (2, 2, 9, 16)],
    "more queries than keys": [(1, 2, 9, 8), (1, 2, 4, 8), (1, 2, 4, 8)],
    "wider values": [(2, 2, 5, 8), (2, 2, 7, 8), (2, 2, 7, 24)],
    "groups of heads": [(2, 6, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8)],
    "wide heads": [(2, 2, 3, 128), (2, 2, 2, 128), (2, 2, 2, 128)],
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [HALF, lucid_gpu.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("case", SHAPES)
def test_agrees_with_ours(case: str, dtype: Any, causal: bool, cudnn: Any, device: Any) -> None:
    q, k, v = (drawn(*shape, device=device, dtype=dtype) for shape in SHAPES[case])
    how = {"is_causal": causal, "scale": 0.3, "enable_gqa": q.shape[1] != k.shape[1]}
    with sdpa_kernel(OURS):
        wanted = results(q, k, v, **how)
    with sdpa_kernel(ONLY):
        found = results(q, k, v, **how)
    rounding = 0.03 if dtype is HALF else 0.2
    for ours, theirs in zip(wanted, found, strict=True):
        np.testing.assert_allclose(theirs, ours, atol=rounding, rtol=rounding)


LAYOUTS = {
    "row-major": lambda q: q,
    "heads in rows": heads_in_rows,
    "expanded": lambda q: q[:, :1].detach().requires_grad_().expand(q.shape),
    "every second column": lambda q: q.repeat_interleave(2, 3)[..., ::2],
    "rows off the alignment": lambda q: lucid_gpu.nn.functional.pad(q, (0, 1))[..., :-1],
    "off the alignment": lambda q: lucid_gpu.cat([q.new_zeros(1), q.flatten()])[1:].view(q.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_are_read_as_they_lie_or_copied(layout: str, standin: Any, device: Any) -> None:
    q, k, v = (drawn(2, 3, 5, 8, device=device) for _ in range(3))
    q = LAYOUTS[layout](q)
    with sdpa_kernel(OURS):
        wanted = results(q, k, v)
    with sdpa_kernel(ONLY):
        found = results(q, k, v)
        out = attend(q, k, v)
    for ours, theirs in zip(wanted, found, strict=True):
        np.testing.assert_allclose(theirs, ours, atol=0.03)
    row_major, inside = [120, 40, 8, 1], [120, 8, 24, 1]
    read = inside if layout == "heads in rows" else row_major
    written = inside if layout in ("heads in rows", "expanded") else row_major
    operands = standin._graphs[0]._operands[:4]
    assert [t._stride for t in operands] == [read, row_major, row_major, written]
    assert list(out.stride()) == read  # as PyTorch's


def test_thirds_of_one_array(standin: Any, device: Any) -> None:
    (q, k, v), whole = thirds(2, 3, 5, 8, device)
    with sdpa_kernel(OURS):
        wanted = results(q, k, v, (whole,), is_causal=True)
    with sdpa_kernel(ONLY):
        found = results(q, k, v, (whole,), is_causal=True)
    for ours, theirs in zip(wanted, found, strict=True):
        np.testing.assert_allclose(theirs, ours, atol=0.03)
    packed, row = [5 * 72, 8, 72, 1], [120, 8, 24, 1]
    strides = [t._stride for t in standin._graphs[-1]._operands]
    assert strides == [packed] * 3 + [row] * 2 + [[15, 5, 1, 1]] + [packed] * 3


def test_what_the_graphs_are_told(standin: Any, device: Any) -> None:
    q, k, v = (drawn(*shape, device=device) for shape in SHAPES["groups of heads"])
    with sdpa_kernel(ONLY):
        results(q, k, v, is_causal=True, enable_gqa=True)
        attend(q.detach(), k.detach(), v.detach(), scale=2, enable_gqa=True)
    forward, backward, inference = standin._graphs
    assert [g._op for g in standin._graphs] == ["sdpa", "sdpa_backward", "sdpa"]
    assert forward._numbers == backward._numbers == (1 / math.sqrt(8), True)
    assert inference._numbers == (2.0, False)
    own, shared, sums = [2, 6, 5, 8], [2, 2, 7, 8], [2, 6, 5, 1]
    assert [t._dim for t in forward._operands] == [own, shared, shared, own, sums]
    assert [t._dim for t in inference._operands] == [own, shared, shared, own]
    assert [t._dim for t in backward._operands] == [
        own, shared, shared, own, own, sums, own, shared, shared,
    ]  # fmt: skip
    assert forward._operands[4]._type is standin.data_type.FLOAT
    assert backward._deterministic
    assert [op for op, _ in standin._ran] == ["sdpa", "sdpa_backward", "sdpa"]


def test_plans_are_built_once_a_shape(standin: Any, device: Any) -> None:
    q, k, v = (drawn(2, 3, 5, 8, device=device) for _ in range(3))
    with sdpa_kernel(ONLY):
        for _ in range(3):
            results(q, k, v)
        assert (len(standin._graphs), len(standin._ran)) == (2, 6)
        results(q, k, v, is_causal=True)
        results(*[t[:1].detach().requires_grad_() for t in (q, k, v)])
    assert (len(standin._graphs), len(standin._ran)) == (6, 10)


def test_deterministic_unless_a_program_says_otherwise(standin: Any, device: Any) -> None:
    q = drawn(1, 1, 4, 8, device=device)
    lucid_gpu.backends.cudnn.deterministic = False
    with sdpa_kernel(ONLY):
        results(q, q, q, (q,))
        assert not standin._graphs[-1]._deterministic
        lucid_gpu.use_deterministic_algorithms(True)
        try:
            results(q, q, q, (q,))
        finally:
            lucid_gpu.use_deterministic_algorithms(False)
    assert standin._graphs[-1]._deterministic


def test_second_gradients_are_those_of_formulas(cudnn: Any, device: Any) -> None:
    q, k, v = (drawn(1, 2, 4, 8, device=device) for _ in range(3))

    def second() -> list[Any]:
        out = attend(q, k, v, is_causal=True)
        (first,) = lucid_gpu.autograd.grad(out.float().square().sum(), q, create_graph=True)
        more = lucid_gpu.autograd.grad(first.float().sum(), (q, k, v))
        return [t.float().cpu().numpy() for t in more]

    with sdpa_kernel(OURS):
        wanted = second()
    with sdpa_kernel(ONLY):
        found = second()
    for ours, theirs in zip(wanted, found, strict=True):
        np.testing.assert_allclose(theirs, ours, atol=0.1, rtol=0.05)


def test_the_node_has_pytorchs_name(cudnn: Any, device: Any) -> None:
    q = drawn(1, 1, 4, 8, device=device)
    with sdpa_kernel(ONLY):
        out = attend(q, q, q)
    assert out.grad_fn.name() == "ScaledDotProductCudnnAttentionBackward0"


def test_it_is_taken_unless_a_program_wants_another(standin: Any, device: Any) -> None:
    q = drawn(1, 2, 4, 8, device=device)
    for names in ([SDPBackend.MATH], [SDPBackend.FLASH_ATTENTION, ONLY]):
        with sdpa_kernel(names, set_priority=True):
            results(q, q, q, (q,))
    lucid_gpu.use_deterministic_algorithms(True)
    try:
        results(q, q, q, (q,))
    finally:
        lucid_gpu.use_deterministic_algorithms(False)
    attend(q.float(), q.float(), q.float())
    assert standin._graphs == []
    results(q, q, q, (q,))
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, ONLY]):
        results(q, q, q, (q,))
    assert len(standin._ran) == 4


REFUSED = {
    "float32": ([(1, 2, 4, 8)] * 3, {"dtype": lucid_gpu.float32}, {}, "float16 and bfloat16"),
    "three dimensions": ([(2, 4, 8)] * 3, {}, {}, "takes tensors (batch, heads, rows, columns)"),
    "a mask": ([(1, 2, 4, 8)] * 3, {}, {"mask": True}, "no attn_mask"),
    "dropout": ([(1, 2, 4, 8)] * 3, {}, {"dropout_p": 0.5}, "no dropout"),
    "columns": ([(1, 2, 4, 12)] * 3, {}, {}, "up to 128 columns, a multiple of 8"),
    "wide heads": ([(1, 2, 4, 136)] * 3, {}, {}, "up to 128 columns"),
    "one key": ([(1, 2, 4, 8), (1, 2, 1, 8), (1, 2, 1, 8)], {}, {}, "two keys or more"),
    "one query": ([(1, 2, 1, 8), (1, 2, 4, 8), (1, 2, 4, 8)], {}, {}, "no single query"),
    "nothing": ([(0, 2, 4, 8)] * 3, {}, {}, "no empty tensors"),
    "batches": ([(2, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)], {}, {}, "of query's batch"),
    "groups unasked": ([(1, 4, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)], {}, {}, "with enable_gqa"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_or_computed_by_ours(
    case: str, standin: Any, device: Any
) -> None:
    shapes, kind, how, words = REFUSED[case]
    how = dict(how)
    q, k, v = (drawn(*shape, device=device, **kind) for shape in shapes)
    mask = lucid_gpu.ones(4, 4, device=device, dtype=lucid_gpu.bool) if how.pop("mask", 0) else None
    with sdpa_kernel(ONLY), pytest.raises(RuntimeError, match="No viable backend") as caught:
        attend(q, k, v, mask, **how)
    assert words in str(caught.value)
    params = settings.SDPAParams(q, k, v, mask, how.get("dropout_p", 0.0), False, False)
    with sdpa_kernel([ONLY, SDPBackend.MATH]):
        with pytest.warns(UserWarning, match="cuDNN attention cannot be used: cuDNN"):
            assert not settings.can_use_cudnn_attention(params, True)
        if case != "groups unasked":  # which is no attention at all
            assert attend(q, k, v, mask, **how).shape[:-1] == q.shape[:-1]
    assert standin._graphs == []


def test_one_query_is_taken_where_no_gradient_is_wanted(standin: Any, device: Any) -> None:
    q, k, v = (drawn(*shape, device=device) for shape in REFUSED["one query"][0])
    with sdpa_kernel(OURS):
        wanted = attend(q, k, v).float().detach().cpu().numpy()
    with lucid_gpu.no_grad(), sdpa_kernel(ONLY):
        found = attend(q, k, v).float().cpu().numpy()
    np.testing.assert_allclose(found, wanted, atol=0.01)
    assert [op for op, _ in standin._ran] == ["sdpa"]


def test_inside_transforms_it_is_refused(standin: Any, device: Any) -> None:
    q = drawn(2, 1, 2, 4, 8, device=device)
    with sdpa_kernel(ONLY), pytest.raises(RuntimeError, match="inside vmap"):
        lucid_gpu.vmap(lambda x: attend(x, x, x))(q)


def test_without_an_engine(standin: Any, device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standin, "_engines", {})
    q = drawn(1, 2, 4, 8, device=device)
    words = r"CUDNN_ATTENTION alone is allowed, but cuDNN has no engine for sdpa of float16 \[1,"
    for _ in range(2):
        with sdpa_kernel(ONLY), pytest.raises(RuntimeError, match=words + ".*No valid engine"):
            attend(q, q, q)
    assert len(standin._graphs) == 1  # it is not asked again
    with sdpa_kernel([ONLY, SDPBackend.MATH]):
        assert attend(q, q, q).shape == q.shape


def test_without_an_engine_for_the_gradient_it_is_refused_before(
    standin: Any, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(self: Any) -> None:
        if self._op == "sdpa_backward":
            raise standin.cudnnGraphNotSupportedError("not on this GPU")

    monkeypatch.setattr(standin.pygraph, "_validate_attention", unsupported)
    q = drawn(1, 2, 4, 8, device=device)
    with sdpa_kernel(ONLY):
        with pytest.raises(RuntimeError, match="no engine for sdpa_backward of float16.*this GPU"):
            attend(q, q, q)
        assert attend(q.detach(), q.detach(), q.detach()).shape == q.shape


def test_without_the_package_it_is_refused(
    gpu: None, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_cudnn.importlib.util, "find_spec", lambda name: None)
    by_cudnn.library.cache_clear()
    q = drawn(1, 2, 4, 8, device=device)
    with sdpa_kernel(ONLY), pytest.raises(RuntimeError, match=r"not installed: .*\[cud"):
        attend(q, q, q)
    by_cudnn.library.cache_clear()


def test_the_settings_of_pytorch(standin: Any, device: Any) -> None:
    q = drawn(1, 2, 4, 8, device=device)
    params = settings.SDPAParams(q, q, q, None, 0.0, True, False)
    assert settings.cudnn_sdp_enabled() and settings.can_use_cudnn_attention(params)
    settings.enable_cudnn_sdp(False)
    try:
        assert not settings.cudnn_sdp_enabled() and not settings.can_use_cudnn_attention(params)
        results(q, q, q, (q,))
        assert standin._ran == []
        with sdpa_kernel(ONLY):
            assert settings.cudnn_sdp_enabled()
    finally:
        settings.enable_cudnn_sdp(True)
    results(q, q, q, (q,))
    assert len(standin._ran) == 2
    attend(q.float(), q.float(), q.float())  # ours
    assert len(standin._ran) == 2


def test_other_devices_and_streams(standin: Any, device: Any) -> None:
    q = drawn(1, 2, 4, 8, device=device)
    with sdpa_kernel(OURS):
        wanted = results(q, q, q, (q,))
    other = lucid_gpu.cuda.Stream()
    other.wait_stream(lucid_gpu.cuda.current_stream())
    with sdpa_kernel(ONLY), lucid_gpu.cuda.stream(other):
        out = attend(q, q, q)
    assert list(standin._handles.values())[-1][1] == other.cuda_stream
    lucid_gpu.cuda.current_stream().wait_stream(other)
    np.testing.assert_allclose(out.float().detach().cpu().numpy(), wanted[0], atol=0.01)
    if lucid_gpu.cuda.device_count() > 1:
        far = q.detach().to("cuda:1").requires_grad_()
        with sdpa_kernel(ONLY):
            found = results(far, far, far, (far,))
        for ours, theirs in zip(wanted, found, strict=True):
            np.testing.assert_allclose(theirs, ours, atol=0.01)
