"""Attention in tiles: the CUDA C on the host and NumPy against float64, and its bounds."""

from __future__ import annotations

import math
import tracemalloc
import weakref
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import dtypes as dt
from lucid_gpu.device import CPU
from lucid_gpu.devices import philox
from lucid_gpu.kernels import attention as family
from lucid_gpu.kernels import attention_backward, attention_tiles
from lucid_gpu.nn.functional import scaled_dot_product_attention as attend
from tests.oracle import agree
from tests.slow import slow_but

normal = np.random.default_rng(0).standard_normal
TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}


@pytest.fixture(params=["at once", "recorded", "strips", "plain", "tensor cores", "tf32"])
def executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    recorded = request.param in ("recorded", "strips")
    monkeypatch.setattr(family, "FEWEST", 0 if recorded else 1 << 60)
    if request.param == "strips":  # of few rows, added up; earlier recordings do not fit
        monkeypatch.setattr(family, "SCORES", 1000)
        monkeypatch.setattr(family, "ROWS", 4)
        family._recorded.cache_clear()
        request.addfinalizer(family._recorded.cache_clear)
    elif request.param not in ("at once", "recorded"):
        monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
        monkeypatch.setattr(family, "has_tensor_cores", lambda _: request.param != "plain")
    if request.param == "tf32":
        monkeypatch.setattr(lucid_gpu.backends.cuda.matmul, "allow_tf32", True)
        monkeypatch.setitem(TOLERANCE, "float32", 4e-3)  # 2^-11 an operand, and sums that cancel
    return request.param


# NumPy takes no masks and no dropout here.
cuda_c = pytest.mark.parametrize("executor", ["plain", "tensor cores", "tf32"], indirect=True)


def exact(q: Any, k: Any, v: Any, g: Any, rules: family.Rules) -> list[Any]:
    """Result, log2 of the rows' sums and the three gradients, in float64."""
    q, k, v, g = (x.astype(np.float64) for x in (q, k, v, g))
    shared = q.shape[1] // k.shape[1]
    wide_k, wide_v = np.repeat(k, shared, 1), np.repeat(v, shared, 1)
    scores = q @ wide_k.swapaxes(-1, -2) * rules.scale
    if rules.causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    if rules.mask is not None and rules.mask.dtype == bool:
        scores = np.where(rules.mask, scores, -np.inf)
    elif rules.mask is not None:
        scores = scores + rules.mask.astype(np.float64)
    top = scores.max(-1, keepdims=True)
    dead = np.isneginf(top)
    p = np.exp(scores - np.where(dead, 0, top))
    total = p.sum(-1, keepdims=True)
    p /= np.where(dead, 1, total)
    kept = _kept(scores.shape, rules.dropout)
    out = p * kept @ wide_v
    slopes = g @ wide_v.swapaxes(-1, -2) * kept
    ds = p * (slopes - (g * out).sum(-1, keepdims=True)) * rules.scale

    def of_groups(x: Any) -> Any:
        return x.reshape(*k.shape[:2], shared, *k.shape[2:]).sum(2)

    dk, dv = of_groups(ds.swapaxes(-1, -2) @ q), of_groups((p * kept).swapaxes(-1, -2) @ g)
    lse = np.where(dead, np.inf, top + np.log(np.where(dead, 1, total))) / np.log(2)
    return [out, lse[..., 0], ds @ wide_k, dk, dv]


def _kept(shape: tuple[int, ...], dropout: family.Dropout | None) -> Any:
    """What the weights are multiplied by."""
    if dropout is None:
        return 1.0
    p, seed, draw = dropout
    numbers = philox.uniform(seed, draw, math.prod(shape), dt.float32).reshape(shape)
    return (numbers >= np.float32(p)) * (1 / (1 - p) if p < 1 else 0.0)


def check(q: Any, k: Any, v: Any, g: Any, d: Any, rules: family.Rules) -> None:
    out, lse = family.forward(q, k, v, rules, d, CPU)
    gradients = family.backward((q, k, v, out, lse), g, rules, d, CPU)
    names = ("out", "lse", "dq", "dk", "dv")
    for name, found, wanted in zip(
        names, (out, lse, *gradients), exact(q, k, v, g, rules), strict=True
    ):
        assert found.shape == wanted.shape
        assert found.dtype == (np.float32 if name == "lse" else d.numpy)
        size = max(np.abs(wanted[np.isfinite(wanted)]).max(initial=0), 3)
        np.testing.assert_allclose(
            found.astype(np.float64), wanted, rtol=0, atol=TOLERANCE[d.name] * size, err_msg=name
        )


CASES = {  # batch, heads, groups of heads, queries, keys, columns, causal
    "one tile": (1, 1, 1, 64, 64, 64, False),
    "a single row": (1, 2, 2, 1, 1, 32, True),
    "uneven": (2, 4, 2, 33, 70, 32, True),
    "more queries": (1, 2, 1, 131, 33, 40, True),
    "more keys": (1, 2, 2, 65, 130, 96, False),
    "wide": (1, 1, 1, 100, 100, 128, True),
    "odd columns": (1, 3, 1, 31, 37, 33, True),
    "narrow": (1, 1, 1, 5, 7, 1, False),
    "many tiles": (1, 1, 1, 260, 200, 16, True),
}
WIDE = [(70, 50, 160, True), (33, 70, 192, False), (40, 40, 256, True), (65, 33, 250, False)]


@pytest.mark.each_value
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", WIDE, ids=str)
def test_wide_heads(case: tuple[int, int, int, bool], name: str, executor: str) -> None:
    queries, keys, columns, causal = case
    d, rules = dt.BY_NAME[name], family.Rules(0.1, causal)
    q, g = (normal((1, 2, queries, columns)).astype(d.numpy) for _ in range(2))
    k, v = (normal((1, 1, keys, columns)).astype(d.numpy) for _ in range(2))
    check(q, k, v, g, d, rules)


@pytest.mark.each_value
@pytest.mark.parametrize("name", slow_but(TOLERANCE, "float32"))
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_float64(case: str, name: str, executor: str) -> None:
    d = dt.BY_NAME[name]
    batch, heads, groups, queries, keys, columns, causal = CASES[case]
    q, g = (normal((batch, heads, queries, columns)).astype(d.numpy) for _ in range(2))
    k, v = (normal((batch, groups, keys, columns)).astype(d.numpy) for _ in range(2))
    check(q, k, v, g, d, family.Rules(0.2, causal))


MASKS = [(2, 4, 33, 68), (1, 4, 33, 68), (2, 1, 33, 68), (2, 4, 1, 68), (2, 4, 33, 1), (33, 68)]


def _mask(shape: tuple[int, ...], kind: str, queries: int, keys: int) -> Any:
    """A mask with rows that hide every key, where it has rows, broadcast to (2, 4, ...)."""
    shape = (*shape[:-2], min(shape[-2], queries), min(shape[-1], keys))
    shown = np.random.default_rng(9).random(shape) < 0.7
    shown[..., 5 % shape[-2], :] = shape[-2] == 1
    made = shown if kind == "bool" else np.where(shown, normal(shape), -np.inf)
    made = made.astype(dt.BY_NAME[kind].numpy)
    return np.broadcast_to(made, (2, 4, queries, keys))


@cuda_c
@pytest.mark.each_value
@pytest.mark.parametrize("shape", MASKS, ids=str)
@pytest.mark.parametrize("kind", ["bool", "float32", "bfloat16"])
def test_masks(shape: tuple[int, ...], kind: str, executor: str) -> None:
    """Broadcast along each dimension; keys that fill their tiles and that do not."""
    for d in (dt.bfloat16,) if kind == "bfloat16" else (dt.float32, dt.bfloat16):
        for keys in (64, 68):
            q, g = (normal((2, 4, 33, 32)).astype(d.numpy) for _ in range(2))
            k, v = (normal((2, 2, keys, 32)).astype(d.numpy) for _ in range(2))
            check(q, k, v, g, d, family.Rules(0.2, mask=_mask(shape, kind, 33, keys)))


@cuda_c
def test_a_mask_whose_columns_lie_apart(executor: str) -> None:
    q, k, v, g = (normal((2, 4, 40, 32)).astype(np.float32) for _ in range(4))
    mask = _mask((2, 1, 40, 40), "bool", 40, 40).swapaxes(2, 3)
    check(q, k, v, g, dt.float32, family.Rules(0.2, mask=mask))


@cuda_c
def test_the_lowest_number_hides_no_row_whole(executor: str) -> None:
    """Its log2(e)-fold is no float32; added to every score of a row, it leaves the mean."""
    q, k, v = (normal((1, 1, 40, 32)).astype(np.float32) for _ in range(3))
    mask = np.zeros((1, 1, 40, 40), np.float32)
    mask[..., 3, :] = mask[..., 7, 5:] = np.finfo(np.float32).min
    out, _ = family.forward(q, k, v, family.Rules(0.2, mask=mask), dt.float32, CPU)
    bound = max(TOLERANCE["float32"] / 4, 1e-6)
    np.testing.assert_allclose(out[0, 0, 3], v[0, 0].mean(0), atol=bound)
    wanted = exact(q[:, :, 7:8], k[:, :, :5], v[:, :, :5], q[:, :, 7:8], family.Rules(0.2))
    np.testing.assert_allclose(out[0, 0, 7], wanted[0][0, 0, 0], atol=bound)


@pytest.mark.parametrize("columns", slow_but([64, 96, 128, 192], 96))
@pytest.mark.parametrize("executor", ["tensor cores"], indirect=True)
def test_masks_and_dropout_of_wider_heads(columns: int, executor: str) -> None:
    """Their tiles are others, for registers."""
    q, g = (normal((2, 4, 33, columns)).astype(dt.bfloat16.numpy) for _ in range(2))
    k, v = (normal((2, 2, 140, columns)).astype(dt.bfloat16.numpy) for _ in range(2))
    mask = _mask((1, 4, 33, 140), "bool", 33, 140)
    check(q, k, v, g, dt.bfloat16, family.Rules(0.1, True, mask, family.Dropout(0.2, 3, 4)))


@pytest.mark.parametrize("executor", ["tensor cores"], indirect=True)
@pytest.mark.parametrize(
    ("columns", "name", "ruled"),
    [(32, "float16", 0), (60, "bfloat16", 0), (64, "float16", 1), (120, "bfloat16", 0)],
)
def test_warp_groups(
    columns: int, name: str, ruled: bool, executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take rows that begin at 16 bytes, of widths that are padded to 64 or 128."""
    d, found = dt.BY_NAME[name], []
    q = normal((2, 4, 70, columns)).astype(d.numpy)
    k, v = (normal((2, 2, 140, columns)).astype(d.numpy) for _ in range(2))
    rules = family.Rules(0.1, True)
    if ruled:
        rules = family.Rules(0.1, False, _mask((1, 4, 70, 140), "bool", 70, 140))
        rules = rules._replace(dropout=family.Dropout(0.2, 3, 4))
    family._plan.cache_clear()
    for wgmma in (False, True):
        monkeypatch.setattr(family.setting, "wgmma", wgmma)
        monkeypatch.setattr(family.attention_hopper, "_functions", {})
        found.append(family.forward(q, k, v, rules, d, CPU))
        taken = bool(family.attention_hopper._functions)
        assert taken == (wgmma and columns in (64, 120))
    bound = TOLERANCE[name]
    for tiles, warp_groups, wanted in zip(*found, exact(q, k, v, q, rules)):
        np.testing.assert_allclose(warp_groups.astype(float), wanted, rtol=bound, atol=3 * bound)
        if columns == 64:  # the tiles are the same
            np.testing.assert_array_equal(warp_groups, tiles)


@cuda_c
@pytest.mark.each_value
@pytest.mark.parametrize("keys", [64, 68, 70, 37])
@pytest.mark.parametrize("causal", [False, True])
def test_dropout_drops_what_the_composition_would(keys: int, causal: bool, executor: str) -> None:
    for d in (dt.float32, dt.bfloat16):
        q, g = (normal((2, 4, 33, 32)).astype(d.numpy) for _ in range(2))
        k, v = (normal((2, 2, keys, 32)).astype(d.numpy) for _ in range(2))
        rules = family.Rules(0.2, causal, dropout=family.Dropout(0.3, (1 << 63) + 5, 1 << 40))
        check(q, k, v, g, d, rules)
    shown = _mask((2, 4, 33, 1), "bool", 33, keys)
    check(q, k, v, g, d, family.Rules(0.2, mask=shown, dropout=family.Dropout(0.9, 1, 2)))
    check(q, k, v, g, d, family.Rules(0.2, dropout=family.Dropout(1.0, 1, 2)))


@pytest.fixture
def splits(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """As many multiprocessors as let several blocks share the keys of a head."""
    monkeypatch.setattr("lucid_gpu.launch.host.HostLauncher.processors", request.param)
    family._plan_of_gradients.cache_clear()
    request.addfinalizer(family._plan_of_gradients.cache_clear)


@pytest.mark.parametrize("splits", [1, 4, 9], indirect=True)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("queries", [100, 300])
@cuda_c
def test_blocks_that_share_a_head_have_copies_of_dq(
    queries: int, causal: bool, splits: None, executor: str
) -> None:
    """One block walks all the keys, or some walk more tiles than others, or each a tile."""
    for d, columns in ((dt.float32, 64), (dt.float16, 24)):
        q, g = (normal((1, 2, queries, columns)).astype(d.numpy) for _ in range(2))
        k, v = (normal((1, 1, 300, columns)).astype(d.numpy) for _ in range(2))
        check(q, k, v, g, d, family.Rules(0.2, causal))


def test_copies_of_dq_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block for each multiprocessor or tile of keys; of a large one no more than four."""
    monkeypatch.setattr("lucid_gpu.launch.host.HostLauncher.processors", 132)

    def copies(heads: int, rows: int) -> int:
        shape = (1, heads, rows, 64)
        layout = shape, tuple(np.cumprod([4, 64, rows, heads])[::-1].tolist()), np.dtype(np.float32)
        rules = attention_tiles.Described(0.2, False, 0.0, None)
        problem = attention_tiles.Problem.of((layout,) * 8, rules, dt.float32, True, True)
        plan = attention_backward.Plan.of(problem, CPU)
        assert plan.elements == plan.splits * heads * rows * 64
        return plan.splits

    found = [copies(*sizes) for sizes in ((300, 512), (16, 512), (16, 4096), (16, 1 << 16))]
    assert found == [1, 4, 9, 4]


@cuda_c
def test_numbers_of_a_mask_beyond_the_last_query(executor: str) -> None:
    """Where a tile has rows that are no queries, 2 to the power of their scores does not matter."""
    q, k, v, g = (normal((1, 2, 40, 32)).astype(np.float32) for _ in range(4))
    check(q, k, v, g, dt.float32, family.Rules(0.2, mask=np.full((1, 2, 40, 40), 150, np.float32)))


@pytest.mark.parametrize("causal", [False, True])
def test_one_large_head_falls_into_parts(causal: bool) -> None:
    """NumPy's threads share it; their sums are added in a fixed order."""
    q, k, v, g = (normal((1, 1, 1500, 8)).astype(np.float32) for _ in range(4))
    assert 8 * family.SCORES < 1500**2
    check(q, k, v, g, dt.float32, family.Rules(0.2, causal))
    out, lse = family.forward(q, k, v, family.Rules(0.2, causal), dt.float32, CPU)
    first, second = (
        family.backward((q, k, v, out, lse), g, family.Rules(0.2, causal), dt.float32, CPU)
        for _ in range(2)
    )
    assert all((a == b).all() for a, b in zip(first, second))


@pytest.mark.parametrize("causal", [False, True])
def test_recorded_and_at_once_are_the_same_bits(
    causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One text of calls: which way it is run depends on a problem's size only."""
    q, g = (normal((2, 6, 50, 24)).astype(np.float32) for _ in range(2))
    k, v = (normal((2, 2, 45, 24)).astype(np.float32) for _ in range(2))
    found = []
    for fewest in (0, 1 << 60):
        monkeypatch.setattr(family, "FEWEST", fewest)
        out, lse = family.forward(q, k, v, family.Rules(0.2, causal), dt.float32, CPU)
        slopes = family.backward((q, k, v, out, lse), g, family.Rules(0.2, causal), dt.float32, CPU)
        found.append([out, lse, *slopes])
    assert all((a == b).all() for a, b in zip(*found, strict=True))


PACKED = normal((2, 70, 3, 2, 48))
LAYOUTS: dict[str, Any] = {  # what makes a head's rows of a packed array
    "rows of heads": lambda x: x.transpose(2, 0, 3, 1, 4),
    "one element in": lambda x: (
        np.r_[x[:1, 0, 0, 0, 0], x.reshape(-1)][1:].reshape(x.shape).transpose(2, 0, 3, 1, 4)
    ),
    "rows reversed": lambda x: x[:, ::-1].transpose(2, 0, 3, 1, 4),
    "every second column": lambda x: x[..., ::2].transpose(2, 0, 3, 1, 4),
    "one row": lambda x: np.broadcast_to(x[:, :1], x.shape).transpose(2, 0, 3, 1, 4),
    "one head": lambda x: np.broadcast_to(x[:, :, :, :1], x.shape).transpose(2, 0, 3, 1, 4),
    "heads apart": lambda x: np.ascontiguousarray(x.transpose(2, 0, 3, 1, 4)),
}


@pytest.mark.each_value
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_layouts(layout: str, name: str, executor: str) -> None:
    d = dt.BY_NAME[name]
    q, k, v = LAYOUTS[layout](PACKED.astype(d.numpy))
    check(q, k, v, v[..., ::-1, :], d, family.Rules(0.2, True))


def test_results_lie_in_memory_as_their_operands() -> None:
    q, k, v = LAYOUTS["rows of heads"](PACKED.astype(np.float32))
    out, lse = family.forward(q, k, v, family.Rules(1.0, False), dt.float32, CPU)
    dq, dk, dv = family.backward(
        (q, k, v, out, lse), out, family.Rules(1.0, False), dt.float32, CPU
    )
    assert out.transpose(0, 2, 1, 3).flags.c_contiguous
    assert [x.strides for x in (dq, dk, dv)] == [x.strides for x in (q, k, v)]


def test_a_row_of_nan_stays_alone(executor: str) -> None:
    q, k, v = (normal((1, 1, 40, 32)).astype(np.float32) for _ in range(3))
    q[0, 0, 3] = np.nan
    out, _ = family.forward(q, k, v, family.Rules(0.2, True), dt.float32, CPU)
    assert np.isfinite(out[0, 0]).all(1).tolist() == [i != 3 for i in range(40)]


def test_the_same_bits_every_time(executor: str) -> None:
    q, k, v = (normal((1, 2, 150, 32)).astype(np.float16) for _ in range(3))

    def run() -> list[bytes]:
        out, lse = family.forward(q, k, v, family.Rules(0.2, True), dt.float16, CPU)
        found = family.backward((q, k, v, out, lse), q, family.Rules(0.2, True), dt.float16, CPU)
        return [x.tobytes() for x in (out, lse, *found)]

    assert run() == run()


# --- the op --------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_the_op_agrees_with_torch(causal: bool, executor: str) -> None:
    arrays = [normal((2, 3, n, 16)).astype(np.float32) for n in (20, 30, 30)]
    agree(
        lambda m, *t: m.nn.functional.scaled_dot_product_attention(*t, is_causal=causal),
        *arrays, device="cpu", order=1, rtol=1e-4, atol=TOLERANCE["float32"],
    )  # fmt: skip


RULES: dict[str, Any] = {  # of a mask: its shape, and whether it is of bools
    "bools": ((2, 1, 12, 20), True, {}),
    "a row of bools": ((2, 1, 1, 20), True, {}),
    "numbers": ((4, 12, 20), False, {}),
    "a matrix": ((12, 20), False, {"dropout_p": 0.4}),
    "dropout": (None, False, {"dropout_p": 0.4, "is_causal": True}),
}


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("shape", [(2, 4), (4,), ()], ids=str)
def test_masks_and_dropout_are_the_compositions(
    rules: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In tiles, with its gradients of two orders, and in float64, drawn from the same state."""
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    of_mask, bools, how = RULES[rules]
    q, k, v = (normal((*shape, n, 16)) for n in (12, 20, 20))
    mask = None
    if of_mask is not None:
        shown = np.random.default_rng(1).random(of_mask[-len(shape) - 2 :]) < 0.6
        shown[..., 3 % shown.shape[-2], :] = shown.shape[-2] == 1
        mask = shown if bools else np.where(shown, normal(shown.shape), -np.inf)

    def results(kind: str) -> list[Any]:
        leaves = [lucid_gpu.tensor(x.astype(kind), requires_grad=True) for x in (q, k, v)]
        given = mask if mask is None else lucid_gpu.tensor(mask if bools else mask.astype(kind))
        lucid_gpu.manual_seed(5)
        with lucid_gpu.profiler.record() as log:
            out = attend(*leaves, given, **how)
            out.numpy(force=True)
        tiled = any(kernel.name.startswith("lucid_attention") for kernel in log.kernels)
        assert tiled == (kind == "float32")
        first = lucid_gpu.autograd.grad(out.sin().sum(), leaves, retain_graph=True)
        again = lucid_gpu.autograd.grad(out.sin().sum(), leaves, create_graph=True)
        second = lucid_gpu.autograd.grad(sum((g.sin() * g).sum() for g in again), leaves)
        drawn = lucid_gpu.rand(3)  # the generator goes on alike
        return [t.numpy(force=True) for t in (out, *first, *again, *second, drawn)]

    for found, wanted in zip(results("float32"), results("float64"), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_a_mask_that_is_written_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in PyTorch, numbers are saved; of bools a copy is."""
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    shown = normal((10, 10)) > 0
    for written in (shown, np.where(shown, 1, -1).astype(np.float32)):
        mask, wanted = lucid_gpu.tensor(written), None
        for writing in (False, True):
            leaves = _leaves(lucid_gpu.float32, 1, 2, 10, 8)
            for leaf, x in zip(leaves, PACKED.reshape(-1)[:480].reshape(3, 1, 2, 10, 8)):
                leaf.data.copy_(lucid_gpu.tensor(x.astype(np.float32)))
            out = attend(*leaves, mask)
            if writing:
                mask.zero_()
            if writing and written is not shown:
                with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                    out.sum().backward()
                continue
            (found,) = lucid_gpu.autograd.grad(out.sum(), leaves[:1])
            wanted = found if wanted is None else wanted
            assert found.tolist() == wanted.tolist()


def test_a_mask_that_is_trained_and_a_negative_scale_are_composed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    leaves = _leaves(lucid_gpu.float32, 1, 2, 10, 8)
    bias = lucid_gpu.tensor(normal((10, 10)).astype(np.float32), requires_grad=True)
    wide = [t.detach().double().requires_grad_() for t in (*leaves, bias)]
    found = lucid_gpu.autograd.grad(attend(*leaves, bias).sin().sum(), (*leaves, bias))
    wanted = lucid_gpu.autograd.grad(attend(*wide).sin().sum(), wide)
    for ours, exactly in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours.numpy(), exactly.numpy(), rtol=1e-4, atol=1e-5)
    turned = attend(*leaves, scale=-0.5).numpy(force=True)
    np.testing.assert_allclose(
        turned, attend(*wide[:3], scale=-0.5).numpy(force=True), rtol=1e-4, atol=1e-5
    )


SHAPES = [(5, 8), (3, 5, 8), (2, 3, 5, 8), (2, 2, 3, 5, 8), (2, 0, 3, 5, 8), (2, 3, 0, 8)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_rank_agrees_with_torch(shape: tuple[int, ...]) -> None:
    arrays = [normal(shape).astype(np.float32) for _ in range(3)]
    agree(
        lambda m, *t: m.nn.functional.scaled_dot_product_attention(*t),
        *arrays, device="cpu", order=1, rtol=1e-4, atol=1e-5,
    )  # fmt: skip


def test_batched_cotangents_and_tangents_take_the_formulas() -> None:
    q, k, v = _leaves(lucid_gpu.float32, 2, 10, 8)
    out = attend(q, k, v, is_causal=True)
    several = lucid_gpu.tensor(normal((3, 2, 10, 8)).astype(np.float32))
    one_by_one = [lucid_gpu.autograd.grad(out, (q, k, v), g, retain_graph=True) for g in several]
    together = lucid_gpu.autograd.grad(out, (q, k, v), several, is_grads_batched=True)
    for i, batched in enumerate(together):
        wanted = lucid_gpu.stack([gradients[i] for gradients in one_by_one])
        np.testing.assert_allclose(batched.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)
    _, tangent = lucid_gpu.func.jvp(lambda x: attend(x, k, v), (q.detach(),), (several[0],))
    wide = [t.detach().double() for t in (q, k, v, several[0])]
    _, exactly = lucid_gpu.func.jvp(lambda x: attend(x, *wide[1:3]), (wide[0],), (wide[3],))
    np.testing.assert_allclose(tangent.detach().numpy(), exactly.numpy(), rtol=1e-4, atol=1e-5)


def _leaves(d: Any, *shape: int) -> list[Any]:
    arrays = [normal(shape).astype(np.float32) for _ in range(3)]
    return [lucid_gpu.tensor(a).to(d).requires_grad_() for a in arrays]


def test_second_derivatives_are_those_of_the_composition() -> None:
    leaves = _leaves(lucid_gpu.float32, 2, 10, 8)
    wide = [t.detach().double().requires_grad_() for t in leaves]
    found = []
    for q, k, v in (leaves, wide):
        out = attend(q, k, v, is_causal=True)
        first = lucid_gpu.autograd.grad((out**3).sum(), (q, k, v), create_graph=True)
        loss = sum([(x**2).sum() for x in first])
        found.append(lucid_gpu.autograd.grad(loss, (q, k, v)))
    for narrow, exactly in zip(*found):
        np.testing.assert_allclose(narrow.numpy(), exactly.numpy(), rtol=1e-3, atol=1e-3)


def test_writing_what_backward_needs_is_noticed() -> None:
    q, k, v = _leaves(lucid_gpu.float32, 1, 2, 10, 8)
    out = attend(q, k, v)
    view = out.detach().transpose(0, 1)
    view.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_graph_of_attention_is_freed(without_gc: None) -> None:
    q, k, v = _leaves(lucid_gpu.float32, 2, 10, 8)
    out = attend(q, k, v)
    node = weakref.ref(out.grad_fn)
    del out
    assert node() is None


# --- bounds --------------------------------------------------------------------------------------


def test_no_matrix_of_scores_is_moved(executor: str) -> None:
    """One kernel forward and three backward; each array once, and two numbers a row."""
    if executor in ("at once", "recorded", "strips"):
        pytest.skip("NumPy launches no kernels")
    batch, heads, rows, columns = 1, 2, 192, 32
    whole = batch * heads * rows * columns * 2
    line = batch * heads * rows * 4
    leaves = _leaves(lucid_gpu.float16, batch, heads, rows, columns)
    g = leaves[0].detach() * 2
    for x in (*leaves, g):
        x.numpy(force=True)
    with lucid_gpu.profiler.record() as log:
        out = attend(*leaves, is_causal=True)
    (forward,) = log.kernels
    assert forward.name == "lucid_attention_forward_float16"
    assert (forward.bytes_read, forward.bytes_written) == (3 * whole, whole + line)
    with lucid_gpu.profiler.record() as log:
        for x in lucid_gpu.autograd.grad(out, leaves, g):
            x.numpy()
    delta, gradients, dq = log.kernels
    assert delta.name == "lucid_attention_delta_float16"
    assert gradients.name == "lucid_attention_gradients_float16"
    assert dq.name == "lucid_attention_dq_float16"
    assert (delta.bytes_read, delta.bytes_written) == (2 * whole + line, 2 * line)
    assert gradients.bytes_read == 4 * whole + 2 * line
    assert gradients.bytes_written == 2 * whole + 2 * whole  # dk and dv, and dq in float32
    assert (dq.bytes_read, dq.bytes_written) == (2 * whole, whole)


def test_numpy_keeps_no_matrix_of_scores() -> None:
    """The peak, forward and backward, is far below one matrix of scores."""
    rows = 4096
    leaves = _leaves(lucid_gpu.float32, 1, 1, rows, 16)
    lucid_gpu.autograd.grad(attend(*leaves).sum(), leaves)
    tracemalloc.start()
    try:
        lucid_gpu.autograd.grad(attend(*leaves).sum(), leaves)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < rows * rows * 4 / 4


SHARED = {70: 96, 75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}  # KB for a block


def identity(instance: Any) -> str:
    kernel, template = instance
    return "-".join([kernel.name, *(getattr(v, "name", str(v)) for v in template.values())])


INSTANCES = family.INSTANCES + attention_backward.INSTANCES


@pytest.mark.parametrize("instance", INSTANCES, ids=identity)
def test_shared_memory_is_there(instance: Any) -> None:
    kernel, template = instance
    mine = kernel in (family.attention_forward, family.attention_hopper)
    shared_bytes = family.shared_bytes if mine else attention_backward.shared_bytes
    for architecture, most in SHARED.items():
        if architecture >= 80 or not template.get("MMA"):
            assert shared_bytes(template, kernel) <= most * 1024
