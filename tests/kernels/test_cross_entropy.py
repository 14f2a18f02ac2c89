"""Cross entropy by rows: the arrays' side, against its definition in float64."""

from __future__ import annotations

import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import profiler
from lucid_gpu.autograd import gradcheck, gradgradcheck
from lucid_gpu.kernels import cross_entropy as kernels
from lucid_gpu.kernels.cross_entropy import Settings
from lucid_gpu.nn import functional as F
from tests.slow import slow_but

SHAPES = [
    (7,), (1, 1), (0, 3), (1, 33), (5, 10), (1000, 10), (3, 1023), (2, 1025), (3, 5, 2),
    (2, 70, 3, 4), (2, 32768), (1, 128001), (0, 4, 2), (2, 4, 0),
]  # fmt: skip
KINDS = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]
PLAIN = Settings(None, -100, 0.0, "mean")


def problem(shape: tuple[int, ...], kind: Any = np.float64, ignored: int = 0) -> Any:
    """Scores, targets and class weights; some targets are -100."""
    rng = np.random.default_rng(len(shape) + shape[0])
    axis = min(len(shape) - 1, 1)
    classes = shape[axis]
    target = rng.integers(0, classes, (*shape[:axis], *shape[axis + 1 :]))
    if ignored:
        target = np.where(rng.random(target.shape) < 0.3, -100, target)
    x = (rng.standard_normal(shape) * 3).astype(kind)
    return x, np.asarray(target), rng.uniform(0.5, 2, classes)


def expected(x: Any, target: Any, how: Settings, g: Any) -> tuple[Any, Any]:
    """The loss and the gradient of the scores, as the module's formula says it, in float64."""
    axis = min(x.ndim - 1, 1)
    rows = np.moveaxis(x.astype(np.float64), axis, -1)
    classes = rows.shape[-1]
    weight = np.ones(classes) if how.weight is None else how.weight
    kept = target != how.ignore
    safe = np.where(kept, target, 0)
    top = rows.max(-1, keepdims=True)
    log = rows - top - np.log(np.exp(rows - top).sum(-1, keepdims=True))
    own = (1 - how.smoothing) * weight[safe]
    spread = how.smoothing / classes * weight
    onehot = safe[..., None] == np.arange(classes)
    each = -own * (log * onehot).sum(-1) - (spread * log).sum(-1)
    each = np.where(kept, each, 0)
    gradient = (own + spread.sum())[..., None] * np.exp(log) - own[..., None] * onehot - spread
    gradient = np.where(kept[..., None], gradient, 0)
    count = (weight[safe] * kept).sum() if how.reduction == "mean" else 1
    if how.reduction == "none":
        return each, np.moveaxis(gradient * g[..., None], -1, axis)
    return each.sum() / count, np.moveaxis(gradient * g / count, -1, axis)


def by_numpy(x: Any, target: Any, how: Settings, g: Any) -> tuple[Any, Any]:
    value, kept = kernels.on_host(x, target, how)
    return value, kernels.gradient_on_host(x, kept, g, how)


def by_cuda_c(x: Any, target: Any, how: Settings, g: Any) -> tuple[Any, Any]:
    value, noted = kernels.losses.cuda_c(x, target, how)
    assert value.dtype == x.dtype
    return value, kernels.gradient.cuda_c(x, target, noted, g.astype(x.dtype), how)


def at_once(x: Any, target: Any, how: Settings, g: Any) -> tuple[Any, Any]:
    """The gradient with the losses, where the kernels choose that."""
    value, noted = kernels.losses.cuda_c(x, target, how._replace(differentiated=True))
    if noted.ready is None:
        return value, kernels.gradient.cuda_c(x, target, noted, g.astype(x.dtype), how)
    return value, noted.ready.astype(np.float64) * g


ERRORS = {"float64": 1e-11, "float32": 3e-6, "float16": 2e-3, "bfloat16": 1e-2}


def check(x: Any, target: Any, how: Settings, family: Any = by_numpy) -> None:
    rng = np.random.default_rng(1)
    g = rng.standard_normal(target.shape) if how.reduction == "none" else np.asarray(1.7)
    g = g.astype(x.dtype).astype(np.float64)
    with np.errstate(all="ignore"):
        value, gradient = family(x, target, how, g)
        loss, by_hand = expected(x, target, how, g)
    error = ERRORS[x.dtype.name]
    assert gradient.shape == x.shape
    value, gradient = value.astype(np.float64), gradient.astype(np.float64)
    np.testing.assert_allclose(value.reshape(loss.shape), loss, error, error, equal_nan=True)
    largest = np.abs(by_hand).max(initial=1e-30)
    np.testing.assert_allclose(gradient, by_hand, 0, error * largest, equal_nan=True)


FAMILIES = pytest.mark.parametrize("family", [by_numpy, by_cuda_c, at_once])


@pytest.mark.each_value
@FAMILIES
@pytest.mark.parametrize("kind", slow_but(KINDS, np.float32))
@pytest.mark.parametrize("shape", SHAPES)
def test_losses_and_gradients(shape: tuple[int, ...], kind: Any, family: Any) -> None:
    x, target, _ = problem(shape, kind)
    check(x, target, PLAIN, family)
    check(x, target, PLAIN._replace(reduction="none"), family)


@pytest.mark.each_value
@FAMILIES
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(9, 6), (4, 100), (3, 5, 4)])
def test_all_settings_together(
    shape: tuple[int, ...], weighted: bool, smoothing: float, reduction: str, family: Any
) -> None:
    x, target, weight = problem(shape, ignored=1)
    how = Settings(weight if weighted else None, -100, smoothing, reduction)
    check(x, target, how, family)
    check(x, np.abs(target) % shape[1], how._replace(ignore=2), family)


@pytest.mark.parametrize("shape", [(50, 6), (4, 100), (3, 5, 40), (2, 3, 500)])
def test_blocks_give_what_one_block_gives(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "BLOCK", 64)
    x, target, weight = problem(shape, ignored=1)
    check(x, target, Settings(weight, -100, 0.1, "mean"))
    check(x, target, Settings(None, -100, 0.0, "none"))


@FAMILIES
def test_views_are_read_as_they_lie(family: Any) -> None:
    x, target, _ = problem((6, 8))
    check(x[:, ::-1], target, PLAIN, family)
    check(np.asfortranarray(x), target, PLAIN, family)
    check(np.broadcast_to(x[:1], x.shape), target[::-1], PLAIN, family)
    check(x, np.broadcast_to(target[:1], target.shape), PLAIN, family)


@FAMILIES
def test_rows_that_begin_anywhere(family: Any) -> None:
    x, target, _ = problem((3, 1100), np.float32)
    memory = np.empty(x.size + 1, x.dtype)
    memory[1:] = x.reshape(-1)
    check(memory[1:].reshape(x.shape), target, PLAIN, family)


@pytest.mark.parametrize("wrong", [-1, 6, -101])
def test_a_target_that_is_no_class(wrong: int) -> None:
    x, target, _ = problem((9, 6))
    target[4] = wrong
    with pytest.raises(IndexError, match=f"Target {wrong} is out of bounds: the input has 6 cl"):
        kernels.on_host(x, target, PLAIN)
    with pytest.raises(IndexError, match=f"Target {wrong} is out of bounds: the input of a "):
        kernels.losses.cuda_c(x, target, PLAIN)
    kernels.fault.check()  # an error is raised once


@FAMILIES
def test_ignored_scores_may_be_infinite(family: Any) -> None:
    x = np.array([[np.inf, 0], [1, 2]], np.float32)
    for smoothing in (0.0, 0.5):
        how = PLAIN._replace(smoothing=smoothing)
        with np.errstate(all="ignore"):
            value, gradient = family(x, np.array([-100, 1]), how, np.asarray(1.0))
        assert np.isfinite(value)
        np.testing.assert_array_equal(gradient[0], 0)
        assert gradient[1].all()


def test_kernels_and_bytes() -> None:
    """Scores are read once each way; probabilities are never stored."""
    x, target, _ = problem((64, 5000), np.float32)
    with profiler.record() as log:
        _, noted = kernels.losses.cuda_c(x, target, PLAIN)
    rows = 64
    first, second = log.kernels
    assert (first.bytes_read, first.bytes_written) == (8 * rows, 4 + 4)
    read, wrote = x.nbytes + 8 * rows + 4, 2 * 4 * rows + 4 + 4
    assert (second.bytes_read, second.bytes_written) == (read, wrote)
    with profiler.record() as log:
        kernels.gradient.cuda_c(x, target, noted, 1.0, PLAIN)
    (only,) = log.kernels
    assert (only.bytes_read, only.bytes_written) == (x.nbytes + (4 + 8) * rows + 4, x.nbytes)


def test_with_the_gradient_scores_are_read_once() -> None:
    x, target, _ = problem((64, 5000), np.float32)
    with profiler.record() as log:
        _, noted = kernels.losses.cuda_c(x, target, PLAIN._replace(differentiated=True))
    read, wrote = x.nbytes + 8 * 64 + 4, x.nbytes + 4 * 64 + 4 + 4
    assert noted.lse is None
    assert (log.kernels[1].bytes_read, log.kernels[1].bytes_written) == (read, wrote)


# --- the op ---------------------------------------------------------------------------------------


@pytest.fixture(params=["numpy", "host-cuda"])
def executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU tensors go both ways: NumPy's and the GPU's."""
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", request.param == "host-cuda")


@pytest.mark.usefixtures("executor")
class TestOp:
    """`nn.functional.cross_entropy`."""

    @pytest.mark.each_value
    @pytest.mark.parametrize("reduction", ["mean", "none"])
    @pytest.mark.parametrize("smoothing", [0.0, 0.2])
    @pytest.mark.parametrize("shape", [(4, 3), (2, 3, 2)])
    def test_gradients_of_every_order_and_mode(
        self, shape: tuple[int, ...], smoothing: float, reduction: str
    ) -> None:
        x, target, weight = problem(shape, ignored=1)
        t, w = lucid_gpu.tensor(target), lucid_gpu.tensor(weight)

        def loss(x: Any) -> Any:
            return F.cross_entropy(x, t, w, reduction=reduction, label_smoothing=smoothing)

        leaf = lucid_gpu.tensor(x, requires_grad=True)
        assert gradcheck(loss, (leaf,), check_forward_ad=True, check_batched_grad=True)
        assert gradgradcheck(loss, (leaf,))

    @pytest.mark.each_value
    @pytest.mark.parametrize("kind", KINDS[1:])
    def test_the_gradient_upstream_is_honored(self, kind: Any) -> None:
        x, target, _ = problem((6, 5), kind)
        leaf = lucid_gpu.tensor(x, requires_grad=True)
        loss = F.cross_entropy(leaf, lucid_gpu.tensor(target))
        assert loss.dtype == leaf.dtype
        (loss * 3).backward()
        value, gradient = expected(x, target, PLAIN, 3.0)
        error = ERRORS[x.dtype.name]
        np.testing.assert_allclose(float(loss), value, error)
        got = leaf.grad.numpy().astype(np.float64)
        np.testing.assert_allclose(got, gradient, 0, error * np.abs(gradient).max())

    def test_under_vmap_and_grad(self) -> None:
        x, target, _ = problem((6, 5))
        scores, t = lucid_gpu.tensor(x), lucid_gpu.tensor(target)
        each = lucid_gpu.func.vmap(lucid_gpu.func.grad(F.cross_entropy))(scores, t)
        _, gradient = expected(x, target, PLAIN._replace(reduction="none"), np.ones(6))
        np.testing.assert_allclose(each.numpy(), gradient, 1e-12, 1e-15)

    def test_a_second_backward_needs_retain_graph(self) -> None:
        x, target, _ = problem((6, 5))
        leaf = lucid_gpu.tensor(x, requires_grad=True)
        loss = F.cross_entropy(leaf, lucid_gpu.tensor(target))
        loss.backward(retain_graph=True)
        once = leaf.grad.numpy().copy()
        loss.backward()
        np.testing.assert_allclose(leaf.grad.numpy(), 2 * once)
        with pytest.raises(RuntimeError, match="a second time"):
            loss.backward()


KINDS_OF_MANY = pytest.mark.parametrize("kind", [np.float64, np.float32, ml_dtypes.bfloat16])


@KINDS_OF_MANY
def test_many_long_rows_have_their_gradient_at_once(kind: Any) -> None:
    x, target, weight = problem((70, 9001), kind, ignored=1)
    for how in (PLAIN, Settings(weight, -100, 0.1, "sum")):
        check(x, target, how, at_once)
        assert kernels.at_once_of(x.shape, x.dtype)
    assert not kernels.at_once_of((3, 90_001), x.dtype)  # several blocks write a row's gradient


def test_a_block_of_1024_threads_walks_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "at_once_of", lambda *_: True)
    x, target, weight = problem((2, 40_001), np.float32)
    check(x, target, Settings(weight, -100, 0.1, "mean"), at_once)


def test_float16_keeps_its_gradient_for_a_scaled_loss() -> None:
    assert not kernels.at_once_of((1000, 1000), np.dtype(np.float16))


@pytest.fixture
def cuda_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)


def launched(run: Any) -> list[str]:
    """The kernels that a function launches, by their first words."""
    with profiler.record() as log:
        run()
    return [k.name.removeprefix("lucid_cross_entropy_").split("_float")[0] for k in log.kernels]


@pytest.mark.usefixtures("cuda_c")
class TestAtOnce:
    """The op where the gradient is computed with the loss."""

    def leaf(self, kind: Any = np.float32) -> tuple[Any, Any, Any]:
        x, target, _ = problem((64, 100), kind)
        _, gradient = expected(x, target, PLAIN, 1.0)
        return lucid_gpu.tensor(x, requires_grad=True), lucid_gpu.tensor(target), gradient

    def test_two_kernels_a_step(self) -> None:
        x, t, gradient = self.leaf()
        assert launched(lambda: F.cross_entropy(x, t).backward()) == ["count", "rows"]
        np.testing.assert_allclose(x.grad.numpy(), gradient, 1e-4, 1e-8)

    def test_no_gradient_is_computed_that_nobody_wants(self) -> None:
        x, t, _ = self.leaf()
        with profiler.record() as log, lucid_gpu.no_grad():
            F.cross_entropy(x, t).item()
        assert log.kernels[1].bytes_written < x.nbytes

    def test_another_cotangent_is_one_more_kernel(self) -> None:
        x, t, gradient = self.leaf()
        loss = F.cross_entropy(x, t)
        assert len(launched(lambda: (loss / 4).backward() or x.grad.numpy())) == 1
        np.testing.assert_allclose(x.grad.numpy(), gradient / 4, 1e-4, 1e-8)

    def test_scores_that_nobody_else_has_are_let_go(self) -> None:
        x, t, gradient = self.leaf()
        scores = x * 1.0
        memory = weakref.ref(scores.array)
        loss = F.cross_entropy(scores, t)
        del scores
        assert memory() is None
        loss.backward()
        np.testing.assert_allclose(x.grad.numpy(), gradient, 1e-4, 1e-8)

    def test_written_scores_do_not_matter_written_targets_do(self) -> None:
        x, t, gradient = self.leaf()
        scores = x * 1.0
        loss = F.cross_entropy(scores, t)
        scores.detach().zero_()
        loss.backward(retain_graph=True)
        np.testing.assert_allclose(x.grad.numpy(), gradient, 1e-4, 1e-8)
        t.zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()

    def test_each_of_several_passes_has_memory_of_its_own(self) -> None:
        x, t, gradient = self.leaf(np.float64)
        loss = F.cross_entropy(x, t)
        (first,) = lucid_gpu.autograd.grad(loss, x, retain_graph=True)
        first.zero_()
        (second,) = lucid_gpu.autograd.grad(loss, x, lucid_gpu.tensor(3.0).double(), True)
        second.numpy()
        third = loss.grad_fn(lucid_gpu.tensor(1.0).double())
        third.zero_()
        (last,) = lucid_gpu.autograd.grad(loss, x)
        np.testing.assert_allclose(second.numpy(), 3 * gradient, 1e-12)
        np.testing.assert_allclose(last.numpy(), gradient, 1e-12)
        with pytest.raises(RuntimeError, match="a second time"):
            loss.backward()

    def test_a_batch_of_cotangents(self) -> None:
        x, t, gradient = self.leaf(np.float64)
        loss, g = F.cross_entropy(x, t), lucid_gpu.tensor([1.0, -2.0]).double()
        (each,) = lucid_gpu.autograd.grad(loss, x, g, is_grads_batched=True)
        np.testing.assert_allclose(each.numpy(), [gradient, -2 * gradient], 1e-12)

    @pytest.mark.parametrize("kind", KINDS[:2] + KINDS[3:])
    def test_second_derivatives(self, kind: Any) -> None:
        x, target, weight = problem((6, 5), kind, ignored=1)
        weight[2] = 0
        v = np.random.default_rng(3).standard_normal(x.shape)
        results = []
        for host_cuda in (True, False):
            lucid_gpu.launch.Executor.host_cuda = host_cuda
            leaf = lucid_gpu.tensor(x, requires_grad=True)
            w = lucid_gpu.tensor(weight.astype(kind))
            loss = F.cross_entropy(leaf, lucid_gpu.tensor(target), w, label_smoothing=0.1)
            (g,) = lucid_gpu.autograd.grad(loss, leaf, create_graph=True)
            (g * lucid_gpu.tensor(v.astype(kind))).sum().backward()
            results.append([a.detach().numpy().astype(np.float64) for a in (loss, g, leaf.grad)])
        for ours, others in zip(*results):
            np.testing.assert_allclose(ours, others, 0, ERRORS[x.dtype.name])


def test_the_gradient_is_zero_where_nothing_counts() -> None:
    x = lucid_gpu.zeros(2, 3, requires_grad=True)
    loss = F.cross_entropy(x, lucid_gpu.tensor([0, 0]), ignore_index=0)
    for create_graph in (False, True):
        (slope,) = lucid_gpu.autograd.grad(loss, x, retain_graph=True, create_graph=create_graph)
        assert slope.tolist() == [[0, 0, 0]] * 2
