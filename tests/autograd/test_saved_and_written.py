"""What an op saved and what was written since: refused where torch refuses, fused and op by op."""

from __future__ import annotations

import itertools
import os
import random
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.fusion import eager
from tests.autograd.functions import exponential
from tests.oracle import gives, torch_module

PROGRAMS = int(300 * float(os.environ.get("LUCID_TEST_EXAMPLES", "1")))
WRITTEN = "modified by an inplace operation"
UNARY = (
    *("exp", "tanh", "sigmoid", "sqrt", "reciprocal", "sin", "abs", "neg", "square", "log"),
    *("relu", "clone"),
)
BINARY = ("add", "sub", "mul", "div", "pow", "maximum")
OF_ONE = [
    *("abs", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt"),
    *("reciprocal", "square", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh"),
    *("tanh", "asinh", "acosh", "atanh", "sigmoid", "erf", "erfc", "erfinv", "lgamma"),
    *("digamma", "i0", "floor", "neg", "relu", "clone", "sum", "mean", "prod", "amax"),
    *("amin", "max", "min", "median", "logsumexp:1", "softmax:1", "log_softmax:1"),
    *("cumsum:1", "cumprod:1", "sgn", "var"),
]
OF_TWO = [
    *("add", "sub", "mul", "div", "remainder", "fmod", "pow", "maximum", "minimum", "atan2"),
    *("hypot", "logaddexp", "xlogy", "copysign"),
]
NUMBERS: dict[str, Callable[[Any, float], Any]] = {
    "x * n": lambda x, n: x * n,
    "x + n": lambda x, n: x + n,
    "x ** n": lambda x, n: x**n,
    "x / n": lambda x, n: x / n,
    "n - x": lambda x, n: n - x,
    "n / x": lambda x, n: n / x,
}
SAME_SHAPE: dict[str, Callable[[Any], Any]] = {
    "rows": lambda x: x[[0, 1, 2]],
    "t": lambda x: x.t(),
    "view": lambda x: x.view(9).view(3, 3),
    "detach": lambda x: x.detach(),
    "first": lambda x: x[0].expand(3, 3),
    "amax": lambda x: x.amax(0).expand(3, 3),
    "logsumexp": lambda x: x.logsumexp(0).expand(3, 3),
    "prod": lambda x: x.prod(0).expand(3, 3),
    "sum": lambda x: x.sum(0).expand(3, 3),
    "cumsum": lambda x: x.cumsum(0),
    "softmax": lambda x: x.softmax(0),
}


def _first_row(m: Any, x: Any, y: Any) -> None:
    x[1] = 0.5


def _unrecorded(m: Any, x: Any, y: Any) -> None:
    with m.no_grad():
        x.add_(0.25)


WRITES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "x.add_(y)": lambda m, x, y: x.add_(y),
    "x.mul_(y)": lambda m, x, y: x.mul_(y),
    "x.div_(y)": lambda m, x, y: x.div_(y),
    "x.copy_(y)": lambda m, x, y: x.copy_(y),
    "x.exp_()": lambda m, x, y: x.exp_(),
    "x.sqrt_()": lambda m, x, y: x.sqrt_(),
    "x.sigmoid_()": lambda m, x, y: x.sigmoid_(),
    "x.zero_()": lambda m, x, y: x.zero_(),
    "x.fill_(.5)": lambda m, x, y: x.fill_(0.5),
    "x.sub_(.125)": lambda m, x, y: x.sub_(0.125),
    "x.mul_(x)": lambda m, x, y: x.mul_(x),
    "x[1] = .5": _first_row,
    "unrecorded": _unrecorded,
}


def program(seed: int) -> list[tuple[Any, ...]]:
    """Steps over two leaves, a constant and what came of them: a table, a name in it, operands."""
    draw = random.Random(seed)
    steps: list[tuple[Any, ...]] = []
    n = 3
    for _ in range(draw.randint(3, 11)):
        kind, i, j = draw.random(), draw.randrange(n), draw.randrange(n)
        if kind < 0.3:
            steps.append(("unary", draw.choice(UNARY), i))
        elif kind < 0.55:
            steps.append(("binary", draw.choice(BINARY), i, j))
        elif kind < 0.62:
            steps.append(("number", draw.choice([*NUMBERS]), i, draw.choice([2.0, 1.0, 3.0, 0.5])))
        elif kind < 0.72:
            steps.append(("one", draw.choice([*SAME_SHAPE]), i))
        elif kind < 0.75:
            steps.append(("mm", "", i, j))
        elif kind < 0.78:
            steps.append(("read", "", i))
            continue
        else:
            steps.append(("write", draw.choice([*WRITES]), draw.randrange(2, n), j))
            continue
        n += 1
    return steps


def outcome(m: Any, steps: list[tuple[Any, ...]], asked: int | None = None) -> tuple[Any, ...]:
    """How a program ends: refused on its way, refused going backward, or with gradients.

    Of the leaves; with ``asked`` that of one value alone.
    """
    rng = np.random.default_rng(5)
    values = [m.tensor(rng.uniform(0.1, 0.95, (3, 3))) for _ in range(3)]
    a, b = values[0].requires_grad_(), values[1].requires_grad_()
    try:
        for kind, name, i, *rest in steps:
            x = values[i]
            if kind == "unary":
                values.append(getattr(x, name)())
            elif kind == "binary":
                values.append(getattr(m, name)(x, values[rest[0]]))
            elif kind == "number":
                values.append(NUMBERS[name](x, rest[0]))
            elif kind == "one":
                values.append(SAME_SHAPE[name](x))
            elif kind == "mm":
                values.append(x @ values[rest[0]])
            elif kind == "read":
                x.sum().item()
            else:
                WRITES[name](m, x, values[rest[0]])
        sums = [v.sum() for v in values[3:] if v.requires_grad]
        if not sums:
            return ("constant",)
        total = sum(sums[1:], sums[0])
    except RuntimeError:
        return ("refused",)
    try:
        if asked is not None:
            able = [v for v in values if v.requires_grad]
            one = able[asked % len(able)]
            (g,) = m.autograd.grad(total, [one], allow_unused=True)
            return ("gradients", None if g is None else np.array(g.tolist()))
        total.backward()
    except RuntimeError as error:
        return ("saved and written",) if WRITTEN in str(error) else ("refused",)
    return ("gradients", *[None if t.grad is None else np.array(t.grad.tolist()) for t in (a, b)])


def agrees(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> bool:
    if ours[0] != theirs[0]:
        return False
    for mine, other in zip(ours[1:], theirs[1:], strict=True):
        if mine is None or other is None:
            if mine is not other and np.any(other if mine is None else mine):
                return False
        elif not np.allclose(
            np.nan_to_num(mine, posinf=0, neginf=0), np.nan_to_num(other, posinf=0, neginf=0), 1e-6
        ):
            return False
    return True


def test_random_programs_end_as_in_torch_fused_and_op_by_op() -> None:
    torch = torch_module()
    counts: dict[str, int] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(PROGRAMS):
            steps = program(seed)
            theirs = outcome(torch, steps)
            counts[theirs[0]] = counts.get(theirs[0], 0) + 1
            ours = outcome(lucid_gpu, steps)
            assert agrees(ours, theirs), f"fused, seed {seed}: {ours}, torch: {theirs}\n{steps}"
            with lucid_gpu.fusion.eager():
                ours = outcome(lucid_gpu, steps)
            assert agrees(ours, theirs), f"op by op, seed {seed}: {ours}, torch: {theirs}\n{steps}"
    assert min(counts["saved and written"], counts["gradients"]) > 0.15 * PROGRAMS, counts


def test_gradients_of_one_value_end_as_in_torch_fused_and_op_by_op() -> None:
    torch = torch_module()
    counts: dict[str, int] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(10_000, 10_000 + PROGRAMS):
            steps = program(seed)
            theirs = outcome(torch, steps, seed)
            counts[theirs[0]] = counts.get(theirs[0], 0) + 1
            for mode in (False, True):
                with eager(mode):
                    ours = outcome(lucid_gpu, steps, seed)
                assert agrees(ours, theirs), f"{mode}, {seed}: {ours}, torch: {theirs}\n{steps}"
    assert min(counts["saved and written"], counts["gradients"]) > 0.05 * PROGRAMS, counts


def test_nodes_that_are_called_refuse_what_was_written() -> None:
    def scenario(m: Any) -> Any:
        x = m.ones(2, requires_grad=True)
        y = x * 3
        z = y * y
        before = z.grad_fn(m.ones(2))
        y.add_(1)
        try:
            z.grad_fn(m.ones(2))
        except RuntimeError as error:
            assert WRITTEN in str(error)
            return [g.tolist() for g in before]
        return None

    assert scenario(lucid_gpu) == scenario(torch_module())


@pytest.mark.parametrize("mode", [False, True], ids=["fused", "eager"])
def test_polar_of_pending_operands_has_their_gradients(mode: bool) -> None:
    x = lucid_gpu.tensor([1.0, 2.0], requires_grad=True)
    with eager(mode):
        size, angle = x * 2, x * 0.5
        z = lucid_gpu.polar(size, angle).real.sum()
        grads = lucid_gpu.autograd.grad(z, (size, angle))
    np.testing.assert_allclose(grads[0].tolist(), np.cos([0.5, 1.0]), rtol=1e-6)
    np.testing.assert_allclose(grads[1].tolist(), [2, 4] * -np.sin([0.5, 1.0]), rtol=1e-6)


# --- what each op saves --------------------------------------------------------------------------


def _call(m: Any, name: str, operands: list[Any]) -> Any:
    name, _, dim = name.partition(":")
    return getattr(m, name)(*operands, *([int(dim)] if dim else []))


def _raises(m: Any, name: str, operands: int, which: int, constant: int | None = None) -> bool:
    """Whether backward refuses once an operand, or with -1 the result, is written."""
    rng = np.random.default_rng(3)
    leaves = [m.tensor(rng.uniform(0.2, 0.9, (2, 3))) for _ in range(operands)]
    leaves = [leaf.requires_grad_(i != constant) for i, leaf in enumerate(leaves)]
    values = [leaf + (name == "acosh") for leaf in leaves]
    y = _call(m, name, values)
    (y if which < 0 else values[which]).add_(0.25)
    try:
        y.sum().backward()
    except RuntimeError as error:
        assert WRITTEN in str(error), error
        return True
    return False


@pytest.mark.parametrize("name", [*OF_ONE, *OF_TWO])
def test_ops_save_what_theirs_save(name: str) -> None:
    torch = torch_module()
    operands = 2 if name in OF_TWO else 1
    constants = (None, 0, 1) if operands == 2 else (None,)
    for constant, which in itertools.product(constants, range(-1, operands)):
        theirs = _raises(torch, name, operands, which, constant)
        assert _raises(lucid_gpu, name, operands, which, constant) == theirs, (constant, which)
        with lucid_gpu.fusion.eager():
            ours = _raises(lucid_gpu, name, operands, which, constant)
            assert ours == theirs, f"{constant}, {which}, op by op"


# --- the sentence, and what must not be refused --------------------------------------------------


def test_the_sentence_names_the_versions_and_the_node_that_made_the_value() -> None:
    x = lucid_gpu.ones(3, requires_grad=True)
    y = x + 2
    z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError) as caught:
        z.sum().backward()
    told = str(caught.value)
    assert told.startswith("one of the variables needed for gradient computation has been modified")
    assert "[float32 tensor of shape [3]], which is output 0 of AddBackward0, is at" in told
    assert "is at version 1; expected version 0 instead" in told
    assert "add_ wrote it" in told


def test_a_view_that_is_gone_counts_the_writes_of_its_base() -> None:
    x = lucid_gpu.ones(4, requires_grad=True)
    y = x + 2
    z = y.view(2, 2) ** 2
    y.add_(1)
    with pytest.raises(RuntimeError, match=WRITTEN):
        z.sum().backward()


def test_data_that_is_gone_counts_its_own_writes() -> None:
    x = lucid_gpu.ones(4, requires_grad=True)
    y = lucid_gpu.ones(4) * 3
    z = y.data * x
    y.add_(1)
    z.sum().backward()
    assert x.grad.tolist() == [3.0] * 4


def test_what_is_kept_of_a_realized_region_still_knows() -> None:
    x = lucid_gpu.ones(3, requires_grad=True)
    y = x + 2
    z = (y * y) * 3
    y.add_(1)
    z.tolist()  # nobody is inside any more
    with pytest.raises(RuntimeError, match=WRITTEN):
        z.sum().backward()


THROUGH_VIEWS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "the base, after a result that is saved": lambda y, v, x: (v.sigmoid_(), y.div_(2)),
    "the view itself": lambda y, v, x: (v.exp_(), v.mul_(2)),
    "another part": lambda y, v, x: (v[:1].sqrt_(), y[1:].mul_(2)),
    "saved and read": lambda y, v, x: (v.sigmoid_(), v.sin_()),
    "the view, after its base": lambda y, v, x: (y.tanh_(), v.add_(1)),
    "cleared": lambda y, v, x: (v[1:].exp_(), y.zero_()),
    "after a copy of what is saved elsewhere": lambda y, v, x: (v.copy_(x.sigmoid()), y.mul_(2)),
    "after items of what is saved": lambda y, v, x: (y.__setitem__(0, x.exp()[1]), v.mul_(2)),
    "after what saves nothing": lambda y, v, x: (v.mul_(3), v.add_(2), y.sigmoid_()),
    "after adding what is saved": lambda y, v, x: (v.add_(x.sigmoid()), y.mul_(2)),
    "after a power": lambda y, v, x: (v[:2].pow_(2), y.mul_(2)),
}


@pytest.mark.parametrize("mode", [False, True], ids=["fused", "eager"])
@pytest.mark.parametrize("name", THROUGH_VIEWS)
def test_what_is_written_through_views_ends_as_in_torch(name: str, mode: bool) -> None:
    def end(m: Any) -> Any:
        x = m.tensor([0.1, 0.2, 0.3], requires_grad=True)
        y = x * 1
        v = y.reshape(-1)
        THROUGH_VIEWS[name](y, v, x)
        try:
            y.sum().backward()
        except RuntimeError as error:
            assert WRITTEN in str(error)
            return "refused"
        return np.round(x.grad.numpy(), 5).tolist()

    with eager(mode):
        assert end(lucid_gpu) == end(torch_module())


def test_set_counts_as_a_write() -> None:
    x = lucid_gpu.ones(3, requires_grad=True)
    w = lucid_gpu.ones(3)
    z = x * w
    w.set_(lucid_gpu.zeros(3))
    with pytest.raises(RuntimeError, match=WRITTEN):
        z.sum().backward()


def _functions(m: Any) -> dict[str, Callable[[Any, Any], Any]]:
    f = m.nn.functional
    return {
        "std": lambda x, y: x.std(1),
        "norm": lambda x, y: x.norm(),
        "norm of order 3": lambda x, y: x.norm(3, dim=1),
        "leaky_relu": lambda x, y: f.leaky_relu(x),
        "gelu": lambda x, y: f.gelu(x),
        "softplus": lambda x, y: f.softplus(x),
        "hardsigmoid": lambda x, y: f.hardsigmoid(x),
        "logsigmoid": lambda x, y: f.logsigmoid(x),
        "softshrink": lambda x, y: f.softshrink(x, 0.3),
        "mse_loss": f.mse_loss,
        "smooth_l1_loss": f.smooth_l1_loss,
        "huber_loss": f.huber_loss,
        "silu": lambda x, y: f.silu(x),
        "twice": lambda x, y: f.leaky_relu(x) * 3,
        "cross_entropy": lambda x, y: f.cross_entropy(x, m.tensor([0, 2])),
        "cross_entropy, smoothed": lambda x, y: f.cross_entropy(
            x, m.tensor([0, 2]), label_smoothing=0.1
        ),
        "nll_loss": lambda x, y: f.nll_loss(x, m.tensor([0, 2])),
        "soft_margin_loss": lambda x, y: f.soft_margin_loss(x, y.detach()),
        "multi_margin_loss": lambda x, y: f.multi_margin_loss(x, m.tensor([0, 2])),
        "qr": lambda x, y: m.linalg.qr(x)[1],
        "qr of more rows": lambda x, y: m.linalg.qr(x.t())[0],
        "polar": lambda x, y: m.polar(x, y).abs(),
        "complex": lambda x, y: m.complex(x, y).abs(),
        "slogdet": lambda x, y: m.linalg.slogdet(x @ y.t())[1],
        "attention of three dimensions": lambda x, y: f.scaled_dot_product_attention(
            x[None], y.detach()[None], y.detach()[None]
        ).exp(),
        "clamp": lambda x, y: x.clamp(y, y + 1),
        "fmax": lambda x, y: x.fmax(y),
        "fmin": lambda x, y: x.fmin(y),
        "logaddexp2": lambda x, y: x.logaddexp2(y),
        "nan_to_num": lambda x, y: x.nan_to_num(),
        "sinc": lambda x, y: x.sinc(),
        "entr": lambda x, y: m.special.entr(x),
        "threshold": lambda x, y: f.threshold(x, 0.4, 0.0),
        "nansum": lambda x, y: x.nansum(),
        "nanmean": lambda x, y: x.nanmean(),
        "cdist": lambda x, y: m.cdist(x, y),
        "pdist": lambda x, y: f.pdist(x),
        "dist": lambda x, y: m.dist(x, y),
        "gather": lambda x, y: x.gather(1, m.tensor([[0], [1]])),
        "take": lambda x, y: x.take(m.tensor([0, 3])),
        "masked_select": lambda x, y: x.masked_select(m.tensor([True, False, True])),
        "index_add": lambda x, y: x.index_add(0, m.tensor([1, 0]), y),
        "cummax": lambda x, y: x.cummax(1)[0],
        "lerp": lambda x, y: m.lerp(x.detach(), x.detach() * 2, y),
        "norm of order 1": lambda x, y: x.norm(1),
        "div, rounded down": lambda x, y: x.div(y, rounding_mode="floor"),
        "matrix_exp": lambda x, y: m.matrix_exp(x.t() @ y),
        "solve_triangular": lambda x, y: m.linalg.solve_triangular(x[:, :2], y, upper=True),
        "cholesky_solve": lambda x, y: m.cholesky_solve(y, x[:, :2]),
        "max_pool1d": lambda x, y: f.max_pool1d(x, 2),
        "avg_pool1d": lambda x, y: f.avg_pool1d(x[None], 2),
        "adaptive_avg_pool1d": lambda x, y: f.adaptive_avg_pool1d(x, 2),
        "adaptive_avg_pool1d to one": lambda x, y: f.adaptive_avg_pool1d(x, 1),
        "div by a constant, rounded down": lambda x, y: x.div(y.detach(), rounding_mode="floor"),
        "circular pad": lambda x, y: f.pad(x[None], (1, 1), mode="circular"),
        "adaptive_max_pool1d": lambda x, y: f.adaptive_max_pool1d(x, 2),
        "conv1d": lambda x, y: f.conv1d(x[None], m.ones(1, 2, 2)),
        "pad": lambda x, y: f.pad(x[None], (1, 1), mode="reflect"),
        "relu6": lambda x, y: f.relu6(x),
        "logit": lambda x, y: x.logit(),
        "log_ndtr": lambda x, y: m.special.log_ndtr(x),
        "angle": lambda x, y: m.angle(x),
        "spread of std_mean": lambda x, y: m.std_mean(x, 1)[0],
        "mean of std_mean": lambda x, y: m.std_mean(x, 1)[1],
        "mean of var_mean": lambda x, y: m.var_mean(x, 1)[1],
        "spread of var_mean": lambda x, y: m.var_mean(x, 1)[0],
        "addcmul": lambda x, y: m.addcmul(y, x, x),
        "celu": lambda x, y: f.celu(x),
        "frac": lambda x, y: x.frac(),
    }


@pytest.mark.parametrize("read", [False, True], ids=["pending", "read"])
@pytest.mark.parametrize("name", [*_functions(lucid_gpu)])
def test_compositions_save_what_theirs_save(name: str, read: bool) -> None:
    torch = torch_module()

    def raises(m: Any, which: int) -> bool:
        leaves = [m.tensor([[0.3, 0.5, 0.7], [0.2, 0.9, 0.4]]).requires_grad_() for _ in "xy"]
        values = [leaves[0] + 0.125, leaves[1] * 0.5]
        z = _functions(m)[name](*values)
        total = z.sum()
        if read:
            z.tolist()
        (z if which < 0 else values[which]).add_(0.25)
        try:
            total.backward()
        except RuntimeError as error:
            assert WRITTEN in str(error), error
            return True
        return False

    for which in (-1, 0, 1):
        theirs = raises(torch, which)
        assert raises(lucid_gpu, which) == theirs, which
        with lucid_gpu.fusion.eager():
            assert raises(lucid_gpu, which) == theirs, f"{which}, op by op"


def _in_place_and_more(m: Any) -> dict[str, Callable[[Any, Any], Any]]:
    f = m.nn.functional
    return _functions(m) | {
        "addcmul_": lambda x, y: x.mul(1).addcmul_(y, y),
        "lerp_": lambda x, y: x.mul(1).lerp_(y, y),
        "ldexp_": lambda x, y: x.mul(1).ldexp_(y),
        "index_add_": lambda x, y: x.mul(1).index_add_(0, m.tensor([1, 0]), y),
        "binary_cross_entropy_with_logits": f.binary_cross_entropy_with_logits,
        "mish": lambda x, y: f.mish(x),
        "layer_norm": lambda x, y: f.layer_norm(x, (3,), y[0]),
        "where": lambda x, y: m.where(x > 0.5, x, y),
        "matmul": lambda x, y: x @ y.t(),
    }


@pytest.mark.parametrize("mode", [False, True], ids=["fused", "op by op"])
@pytest.mark.parametrize("name", [*_in_place_and_more(lucid_gpu), *["exp", "mul", "prod", "amax"]])
def test_what_hooks_copied_may_be_written(name: str, mode: bool) -> None:
    copies: Any = (lambda t: t.clone(), lambda t: t)

    def gradients(m: Any, which: int | None) -> Any:
        leaves = [m.tensor([[0.3, 0.5, 0.7], [0.2, 0.8, 0.4]]).requires_grad_() for _ in "xy"]
        values = [leaves[0] + 0.125, leaves[1] * 0.5]
        called = _in_place_and_more(m).get(name)
        with m.autograd.graph.saved_tensors_hooks(*copies):
            if called is not None:
                z = called(*values)
            else:
                z = values[0] * values[1] if name == "mul" else getattr(values[0], name)()
        total = z.sum()
        if which is not None:
            (z if which < 0 else values[which]).add_(0.25)
        total.backward()
        return [np.zeros(1) if t.grad is None else t.grad.numpy() for t in leaves]

    with eager(mode):
        expected = gradients(lucid_gpu, None)
        for which in (-1, 0, 1):
            gradients(torch_module(), which)  # is not refused
            for got, same in zip(gradients(lucid_gpu, which), expected, strict=True):
                np.testing.assert_array_equal(got, same)


@pytest.mark.parametrize("mode", [False, True], ids=["fused", "op by op"])
@pytest.mark.parametrize("name", [*_in_place_and_more(lucid_gpu), *OF_TWO])
def test_what_was_made_in_inference_mode_is_refused_where_theirs_save_it(
    name: str, mode: bool
) -> None:
    def refused(m: Any, which: int) -> bool:
        values = [m.tensor([[0.3, 0.5, 0.7], [0.2, 0.8, 0.4]]).requires_grad_() for _ in "xy"]
        with m.inference_mode():
            values[which] = values[which].detach().clone()
        called = _in_place_and_more(m).get(name) or getattr(m, name)
        try:
            called(*values)
        except RuntimeError as error:
            assert "Inference tensors cannot be saved for backward" in str(error), error
            return True
        return False

    with eager(mode):
        for which in (0, 1):
            assert refused(lucid_gpu, which) == refused(torch_module(), which), which


def _written_by(m: Any) -> dict[str, Callable[[Any, Any], Any]]:
    f, second = m.nn.functional, m.tensor([1, 0])
    ends = m.tensor([[0], [1]])
    return {
        "leaky_relu_": lambda y, w: f.leaky_relu_(y),
        "leaky_relu, inplace": lambda y, w: f.leaky_relu(y, inplace=True),
        "elu_": lambda y, w: f.elu_(y),
        "selu_": lambda y, w: f.selu_(y),
        "celu_": lambda y, w: f.celu_(y),
        "rrelu_": lambda y, w: f.rrelu_(y),
        "rrelu_, training": lambda y, w: f.rrelu_(y, training=True),
        "relu_": lambda y, w: f.relu_(y),
        "hardtanh_": lambda y, w: f.hardtanh_(y),
        "threshold_": lambda y, w: f.threshold_(y, 0.4, 0.0),
        "silu": lambda y, w: f.silu(y, inplace=True),
        "cumprod_": lambda y, w: y.cumprod_(1),
        "cumsum_": lambda y, w: y.cumsum_(1),
        "scatter_reduce_": lambda y, w: y.scatter_reduce_(1, ends, w[:, :1], "prod"),
        "index_reduce_": lambda y, w: y.index_reduce_(0, second, w, "amax"),
        "index_copy_": lambda y, w: y.index_copy_(0, second, w),
        "index_copy": lambda y, w: y.index_copy(0, second, w),
        "index_add_": lambda y, w: y.index_add_(0, second, w),
        "put_": lambda y, w: y.put_(m.tensor([0, 3]), w[0, :2]),
        "put": lambda y, w: y.put(m.tensor([0, 3]), w[0, :2]),
        "nextafter_": lambda y, w: y.nextafter_(w),
        "nextafter": m.nextafter,
        "ldexp_": lambda y, w: y.ldexp_(w),
        "ldexp": m.ldexp,
        "exp_": lambda y, w: y.exp_(),
        "sin_": lambda y, w: y.sin_(),
        "sqrt_": lambda y, w: y.sqrt_(),
        "mul_": lambda y, w: y.mul_(w),
        "pow_": lambda y, w: y.pow_(w),
        "clamp_": lambda y, w: y.clamp_(0.25, 0.6),
        "lerp_": lambda y, w: y.lerp_(w, 0.25),
        "addcmul_": lambda y, w: y.addcmul_(w, w),
        "masked_fill_": lambda y, w: y.masked_fill_(w > 0.4, 0.5),
        "copy_ of a saved result": lambda y, w: y.copy_(w.cumprod(1)),
    }


def _through_no_grad(m: Any, y: Any, w: Any) -> None:
    with m.no_grad():
        y.add_(0.25)


_LATER: dict[str, Callable[[Any, Any, Any], Any]] = {
    "itself": lambda m, y, w: y.add_(0.25),
    "no_grad": _through_no_grad,
    "a row": lambda m, y, w: y[0].mul_(2),
    "detached": lambda m, y, w: y.detach().add_(0.25),
    "the other operand": lambda m, y, w: w.add_(0.25),
}


@pytest.mark.parametrize("mode", [False, True], ids=["fused", "op by op"])
@pytest.mark.parametrize("then", _LATER)
@pytest.mark.parametrize("name", [*_written_by(lucid_gpu)])
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_what_ops_in_place_saved_may_not_be_written(name: str, then: str, mode: bool) -> None:
    def end(m: Any, viewed: bool, wanted: bool) -> Any:
        leaves = [
            m.tensor([[0.3, 0.5, 0.7], [0.2, 0.8, 0.4]], requires_grad=g) for g in (True, wanted)
        ]
        y, w = leaves[0] * 1, leaves[1] + 0.125
        target = y.view(2, 3) if viewed else y
        _LATER[then](m, _written_by(m)[name](target, w), w)
        try:
            y.sum().backward()
        except RuntimeError as error:
            assert WRITTEN in str(error), error
            return WRITTEN
        return [np.zeros(1) if t.grad is None else t.grad.numpy() for t in leaves]

    for viewed, wanted in itertools.product((False, True), repeat=2):
        theirs = end(torch_module(), viewed, wanted)
        with eager(mode):
            ours = end(lucid_gpu, viewed, wanted)
        assert (ours is WRITTEN) == (theirs is WRITTEN), (viewed, wanted, theirs)
        if ours is not WRITTEN and "rrelu" not in name:  # which draws
            for got, expected in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


_SAVES_RESULT: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "softmax": lambda m: lambda y: y.softmax(1),
    "cumprod": lambda m: lambda y: y.cumprod(1),
    "exp": lambda m: m.exp,
    "amax": lambda m: lambda y: y.amax(1),
    "Function": lambda m: exponential(m).apply,
}
_CHANGED: dict[str, Callable[[Any], Any]] = {
    "detach_, written": lambda y: y.detach_().add_(1),
    "detach_, detached, written": lambda y: y.detach_().detach().add_(1),
    "detach_, marked, cloned": lambda y: y.detach_().requires_grad_().clone().add_(1),
    "set, written": lambda y: (setattr(y, "data", y.detach() * 2), y.add_(1)),
    "set to itself, written": lambda y: (setattr(y, "data", y.data), y.add_(1)),
    "viewed, written": lambda y: (y.detach(), y.data, y.view(-1), y.add_(1)),
    "lent, written": lambda y: (y.detach().numpy(), y.detach().add_(1)),
}


@pytest.mark.parametrize("how", ["pending", "stored", "op by op"])
@pytest.mark.parametrize("change", _CHANGED)
@pytest.mark.parametrize("name", _SAVES_RESULT)
def test_a_saved_result_is_known_through_what_becomes_of_its_tensor(
    name: str, change: str, how: str
) -> None:
    def refused(m: Any) -> bool:
        x = m.tensor([[0.3, 0.5, 0.7], [0.2, 0.8, 0.4]], requires_grad=True)
        y = _SAVES_RESULT[name](m)(x * 1)
        z = (y * m.full(tuple(y.shape), 2.0)).sum()
        if how == "stored":
            y.tolist()
        _CHANGED[change](y)
        try:
            z.backward()
        except RuntimeError as error:
            assert WRITTEN in str(error), error
            return True
        return False

    with eager(how == "op by op"):
        assert refused(lucid_gpu) == refused(torch_module())


_SAVES_OPERAND: dict[str, Callable[[Any], Any]] = {
    "std": lambda x: x.std(),
    "cumprod": lambda x: x.cumprod(0),
    "logsumexp": lambda x: x.logsumexp(0),
    "product of elements": lambda x: x * x * x,
    "product": lambda x: x.view(1, 3) @ x.view(3, 1),
    "Function": lambda x: square().apply(x),
}


def square() -> Any:
    class Square(lucid_gpu.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return 2 * g * ctx.saved_tensors[0]

    return Square


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("name", _SAVES_OPERAND)
def test_second_gradients_go_through_an_operand_that_was_detached_in_place(
    name: str, marked: bool
) -> None:
    """PyTorch refuses the first."""
    found = []
    for cut in (False, True):
        leaf = lucid_gpu.tensor([0.5, 2.0, -1.5], requires_grad=True)
        x = leaf * 1.5
        y = _SAVES_OPERAND[name](x)
        if cut:
            x.detach_().requires_grad_(marked)
        (first,) = lucid_gpu.autograd.grad((y * y).sum(), leaf, create_graph=True)
        (second,) = lucid_gpu.autograd.grad((first * first).sum(), leaf)
        found.append((first.tolist(), second.tolist()))
    assert found[0] == found[1]


def test_resize_counts_as_a_write() -> None:
    x = lucid_gpu.ones(3, requires_grad=True)
    w = lucid_gpu.ones(3)
    z = x * w
    w.resize_(4)
    with pytest.raises(RuntimeError, match=WRITTEN):
        z.sum().backward()


IN_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    **{
        name: lambda m, y, name=name: getattr(m.nn.functional, name)(y, inplace=True)
        for name in (
            *("relu", "elu", "leaky_relu", "silu", "hardswish", "hardtanh", "mish", "selu"),
            *("celu", "relu6", "hardsigmoid"),
        )
    },
    "threshold": lambda m, y: m.nn.functional.threshold(y, 0.1, 0.2, inplace=True),
    "dropout": lambda m, y: m.nn.functional.dropout(y, 0.0, True, inplace=True),
    **{
        name: lambda m, y, name=name: getattr(y, name)()
        for name in ("relu_", "sigmoid_", "tanh_", "exp_")
    },
    "add_": lambda m, y: y.add_(1),
    "mul_": lambda m, y: y.mul_(2),
    "clamp_": lambda m, y: y.clamp_(0, 0.5),
}
MADE_BY: dict[str, Callable[[Any, Any], Any]] = {
    "sigmoid": lambda m, x: x.sigmoid(),
    "mul": lambda m, x: x * 2,
    "square": lambda m, x: x * x,
    "exp": lambda m, x: x.exp(),
    "add": lambda m, x: x + 1,
    "softmax": lambda m, x: x.softmax(0),
    "log_softmax": lambda m, x: x.log_softmax(0),
    "matmul": lambda m, x: m.eye(6, dtype=m.float64) @ x,
    "relu": lambda m, x: x.relu(),
}


def _end(m: Any, made: Any, change: Any, saved: bool) -> Any:
    x = m.linspace(-1, 1, 6, dtype=m.float64).requires_grad_()
    y = made(m, x)
    z = y * y if saved else None
    y = change(m, y)
    try:
        (y if z is None else z).sum().backward()
    except RuntimeError as error:
        assert WRITTEN in str(error)
        return "refused"
    return np.round(x.grad.numpy(), 9).tolist()


@pytest.mark.parametrize("mode", [False, True], ids=["fused", "eager"])
@pytest.mark.parametrize("made", MADE_BY)
def test_what_is_changed_in_place_ends_as_in_torch(made: str, mode: bool) -> None:
    torch = torch_module()
    with eager(mode), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, change in IN_PLACE.items():
            for saved in (False, True):
                ours = _end(lucid_gpu, MADE_BY[made], change, saved)
                theirs = _end(torch, MADE_BY[made], change, saved)
                if "refused" in (ours, theirs):
                    assert ours == theirs, (name, saved)
                else:
                    np.testing.assert_allclose(ours, theirs, atol=1e-8, err_msg=name)


def _with_logits(m: Any) -> Any:
    return m.nn.functional.binary_cross_entropy_with_logits


MIXED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "ldexp": (lambda m: m.ldexp, "Dd"),
    "addcmul, first narrower": (lambda m: m.addcmul, "DFD"),
    "addcmul, second narrower": (lambda m: m.addcmul, "DDF"),
    "addcmul, a constant": (lambda m: m.addcmul, "FDf"),
    "addcdiv, first narrower": (lambda m: m.addcdiv, "DFD"),
    "addcdiv, second narrower": (lambda m: m.addcdiv, "DDF"),
    "addcdiv, a constant": (lambda m: m.addcdiv, "FDf"),
    "addcmul, scaled": (lambda m: partial(m.addcmul, value=2.0), "DDD"),
    "addcdiv, scaled": (lambda m: partial(m.addcdiv, value=2.0), "DDD"),
    "var of 16 bits": (lambda m: lambda x: x.var(1), "B"),
    "std of 16 bits": (lambda m: lambda x: x.std(1), "B"),
    "norm of 16 bits": (lambda m: lambda x: x.norm(dim=1), "B"),
    "norm(3) of 16 bits": (lambda m: lambda x: x.norm(3), "B"),
    "logsumexp of 16 bits": (lambda m: lambda x: x.logsumexp(1), "B"),
    "group_norm of 16 bits": (lambda m: lambda x: m.nn.functional.group_norm(x, 1), "B"),
    "batch_norm by running figures": (
        lambda m: lambda x: m.nn.functional.batch_norm(x, m.zeros(3), m.ones(3)),
        "F",
    ),
    "logits and targets": (_with_logits, "Dd"),
    "logits, targets, weights": (_with_logits, "Ddd"),
    "weights of positives": (
        lambda m: lambda x, y, w: _with_logits(m)(x, y, pos_weight=w),
        "Ddd",
    ),
}


_KINDS = {"D": "float64", "F": "float32", "B": "bfloat16"}


def _refused(m: Any, name: str) -> list[bool]:
    """For each operand, whether a write to it between forward and backward is refused."""
    make, kinds = MIXED[name]
    found = []
    for written in range(len(kinds)):
        operands = [
            m.full((2, 3), 0.5, dtype=getattr(m, _KINDS[kind.upper()]))
            .requires_grad_(kind.isupper())
            for kind in kinds
        ]  # fmt: skip
        operands = [x * 1 if x.requires_grad else x for x in operands]
        result = make(m)(*operands)
        with m.no_grad():
            operands[written].add_(0.1)
        try:
            result.sum().backward()
            found.append(False)
        except RuntimeError as error:
            assert WRITTEN in str(error)
            found.append(True)
    return found


@pytest.mark.parametrize("name", MIXED)
def test_operands_that_are_converted_or_folded_in(name: str) -> None:
    assert _refused(lucid_gpu, name) == _refused(torch_module(), name)


# --- how the memory came to be, who reads it, who writes it --------------------------------------

MADE: dict[str, Callable[[Any, Any], Any]] = {
    "a constant": lambda m, p: m.full((3,), 0.25),
    "a pending constant": lambda m, p: m.ones(3).cumsum(0) + 1,
    "pending": lambda m, p: p * 2,
    "computed": lambda m, p: p.cumsum(0),
}
BEFORE: dict[str, Callable[[Any], Any]] = {
    "": lambda c: c,
    "filled": lambda c: c.fill_(0.5),
    "added to": lambda c: c.add_(1),
}
READ_AS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda c: c,
    "detach": lambda c: c.detach(),
    "detach twice": lambda c: c.detach().detach(),
    "data": lambda c: c.data,
    "a view of detach": lambda c: c.detach().view(3),
}
WRITTEN_BY: dict[str, Callable[[Any, Any], Any]] = {
    "add_": lambda m, c: c.add_(1),
    "fill_": lambda m, c: c.fill_(2),
    "an item": lambda m, c: c.__setitem__(0, 1),
    "detach": lambda m, c: c.detach().add_(1),
    "data": lambda m, c: c.data.add_(1),
    "other data": lambda m, c: setattr(c, "data", m.ones(3)),
}


@pytest.mark.parametrize("mode", [False, True], ids=["fused", "eager"])
@pytest.mark.parametrize("read", [False, True], ids=["pending", "read"])
@pytest.mark.parametrize("made", MADE)
def test_memory_is_followed_through_its_history(made: str, read: bool, mode: bool) -> None:
    torch = torch_module()

    def refused(m: Any, before: str, through: str, by: str) -> bool:
        p, w = (m.full((3,), number, requires_grad=True) for number in (0.25, 0.5))
        c = MADE[made](m, p)
        BEFORE[before](c)
        z = w * READ_AS[through](c)
        if read:
            z.tolist()
        WRITTEN_BY[by](m, c)
        try:
            z.sum().backward()
        except RuntimeError as error:
            assert WRITTEN in str(error)
            return True
        return False

    with eager(mode):
        for before, through, by in itertools.product(BEFORE, READ_AS, WRITTEN_BY):
            ours, theirs = (refused(m, before, through, by) for m in (lucid_gpu, torch))
            assert ours == theirs, (before, through, by)


TURNS: dict[str, tuple[int, ...]] = {
    "unsqueeze_": (0,), "t_": (), "transpose_": (0, 1), "squeeze_": ()
}  # fmt: skip
LATER_WRITES: tuple[Callable[[Any], Any], ...] = (
    lambda y: y.detach().mul_(0),
    lambda y: y.view(-1).detach().mul_(0),
    lambda y: y.mul_(0),
)


@pytest.mark.parametrize("op", ["exp", "sigmoid", "sqrt"])
@pytest.mark.parametrize("turn", TURNS)
def test_writes_after_a_change_of_shape_are_counted_for_the_result(op: str, turn: str) -> None:
    for write in LATER_WRITES:
        x = lucid_gpu.tensor([[1.0, 2.0]], requires_grad=True)
        y = getattr(x, op)()
        getattr(y, turn)(*TURNS[turn])
        write(y)
        with pytest.raises(RuntimeError, match=WRITTEN):
            y.sum().backward()


def _parts(m: Any) -> dict[str, Any]:
    """Ops whose operands PyTorch saves for some gradients only, with the shapes of these."""
    f = m.nn.functional
    gru, lstm = [(2, 3), (2, 4), (12, 3), (12, 4), (12,), (12,)], [(16, 3), (16, 4), (16,), (16,)]
    rnn = [(2, 3), (2, 4), (4, 3), (4, 4), (4,), (4,)]
    return {
        "gru_cell": (m.gru_cell, gru),
        "lstm_cell": (
            lambda x, h, c, *w: m.lstm_cell(x, (h, c), *w)[0], [(2, 3), (2, 4), (2, 4), *lstm]
        ),
        "rnn_tanh_cell": (m.rnn_tanh_cell, rnn),
        "rnn_relu_cell": (m.rnn_relu_cell, rnn),
        "ldexp": (m.ldexp, [(3,), (3,)]),
        "instance_norm": (
            lambda x, w, b: f.instance_norm(x, weight=w, bias=b), [(2, 3, 4), (3,), (3,)]
        ),
        "rms_norm": (lambda x, w: f.rms_norm(x, (4,), w), [(2, 3, 4), (4,)]),
        "complex": (lambda a, b: m.view_as_real(m.complex(a, b)), [(3,), (3,)]),
        "index_add": (lambda a, b: m.index_add(a, 0, m.tensor([0, 1]), b), [(3,), (2,)]),
        "attention": (f.scaled_dot_product_attention, [(2, 3, 4)] * 3),
    }  # fmt: skip


@pytest.mark.parametrize("mode", [False, True], ids=["fused", "op by op"])
@pytest.mark.parametrize("name", [*_parts(lucid_gpu)])
def test_what_is_saved_for_other_gradients_may_be_written(name: str, mode: bool) -> None:
    """What PyTorch gives is given; it may also be given where PyTorch refuses."""

    def run(m: Any, needs: int | None, written: int, asked: int) -> Any:
        function, shapes = _parts(m)[name]
        values, d = [], m.float32 if name == "attention" else m.float64
        for i, shape in enumerate(shapes):
            value = (m.arange(1.0, 1 + np.prod(shape), dtype=d) / 7).sin() + 0.1
            value = value.reshape(shape)
            values.append(value.requires_grad_(needs is None or i == needs) * 1)
        result = function(*values)
        total = (result * 1).sum()
        with m.no_grad():
            (result if written < 0 else values[written]).add_(1)
        try:
            return m.autograd.grad(total, values[asked], allow_unused=True)[0]
        except RuntimeError as error:
            assert WRITTEN in str(error), error
            return None

    tolerance = 1e-5 if name == "attention" else 1e-9
    torch, count = torch_module(), len(_parts(lucid_gpu)[name][1])
    combined = name in ("lstm_cell", "rnn_tanh_cell", "rnn_relu_cell")  # one bias, their sum
    for written, asked in itertools.product(range(-1, count), range(count)):
        for needs in (None, asked):
            if combined and needs is None and asked == count - 2:
                continue
            expected = run(torch, needs, written, asked)
            if expected is not None:
                with lucid_gpu.fusion.eager(mode):
                    got = run(lucid_gpu, needs, written, asked)
                assert got is not None, (written, asked, needs)
                same = np.allclose(got.tolist(), expected.tolist(), tolerance, tolerance)
                assert same, (written, asked, needs)


_ON_EXPANDED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "fill_": lambda m, x, v: v.fill_(5.0),
    "masked_fill_": lambda m, x, v: v.masked_fill_(v.detach() > 1, x[1]),
    "v[mask] = number": lambda m, x, v: v.__setitem__(v.detach() > 1, 7.0),
    "index_fill_": lambda m, x, v: v.index_fill_(0, m.tensor([0]), 3.0),
    "threshold_": lambda m, x, v: m.nn.functional.threshold_(v, 0.5, 9.0),
    "tril_": lambda m, x, v: v.tril_(),
}


@pytest.mark.parametrize("mode", [False, True], ids=["fused", "op by op"])
@pytest.mark.parametrize("name", _ON_EXPANDED)
@pytest.mark.filterwarnings("ignore:Use of")
def test_writes_to_expanded_values_with_history(name: str, mode: bool) -> None:
    """They are taken; backward refuses where elements that are one would take its gradient."""

    def run(m: Any, recorded: bool, constant: bool) -> Any:
        x = m.tensor([1.0, -2.0, 3.0], requires_grad=True)
        base = m.ones(3) if constant else x * 2
        view = base.expand(2, 3)
        with m.set_grad_enabled(recorded):
            _ON_EXPANDED[name](m, x, view)
        ends = [view.tolist(), base.tolist(), view.requires_grad]
        if view.requires_grad:
            try:
                ends.append(m.autograd.grad(view.sum(), x)[0].tolist())
            except RuntimeError as error:
                ends.append("more than one element of the written-to tensor" in str(error))
        return ends

    for recorded, constant in itertools.product((False, True), (False, True)):
        expected = run(torch_module(), recorded, constant)
        with lucid_gpu.fusion.eager(mode):
            assert run(lucid_gpu, recorded, constant) == expected


def test_a_recorded_write_to_one_of_overlapping_windows_stays() -> None:
    base = lucid_gpu.tensor([1.0, 2.0, 3.0], requires_grad=True) * 2
    base.unfold(0, 2, 1)[0] = 7.0
    assert base.tolist() == [7.0, 7.0, 6.0]


_BEFORE_DATA: dict[str, Callable[[Any, Any, Any], Any]] = {
    "x * x": lambda m, x, w: x * x + w,
    "x * w": lambda m, x, w: x * w,
    "exp(x) * x": lambda m, x, w: x.exp() * x * w,
    "x ** 3 + w": lambda m, x, w: x**3 + w,
    "spread": lambda m, x, w: (x + m.ones(2, 3)) * w,
    "matmul": lambda m, x, w: m.outer(x, x) @ m.outer(w, w) + x * w,
    "tanh": lambda m, x, w: x.tanh() * w,
}


@pytest.mark.parametrize("mode", [False, True], ids=["fused", "op by op"])
@pytest.mark.parametrize("which", [0, 1], ids=["x", "w"])
@pytest.mark.parametrize("name", _BEFORE_DATA)
def test_backward_reads_what_a_saved_tensor_was_set_to(name: str, which: int, mode: bool) -> None:
    def run(m: Any, written: bool) -> Any:
        x = m.tensor([0.5, 1.0, 2.0], requires_grad=True)
        w = m.tensor([1.5, -1.0, 0.5], requires_grad=which == 1)
        z = _BEFORE_DATA[name](m, x, w)
        ((x, w)[which]).data = m.tensor([3.0, 4.0, 5.0])
        if written:
            with m.no_grad():
                (x, w)[which].add_(1)
        try:
            gradients = m.autograd.grad(z.sum(), (x, w)[: which + 1], create_graph=True)
            ends = [g.tolist() for g in gradients]
            if all(g.requires_grad for g in gradients):
                total = sum((g * g).sum() for g in gradients)
                ends += [g.tolist() for g in m.autograd.grad(total, (x, w)[: which + 1])]
            return ends
        except RuntimeError as error:
            assert WRITTEN in str(error), error
            return None

    for written in (False, True):
        expected = run(torch_module(), written)
        with lucid_gpu.fusion.eager(mode):
            got = run(lucid_gpu, written)
        assert (got is None) == (expected is None)
        for ours, theirs in zip(got or (), expected or (), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5)


# One op each in PyTorch, which reads x anew and nothing that was computed of x before.
_ONE_OP: dict[str, Callable[[Any, Any], Any]] = {
    "silu": lambda f, x: f.silu(x),
    "mish": lambda f, x: f.mish(x),
    "gelu": lambda f, x: f.gelu(x),
    "softplus": lambda f, x: f.softplus(x, 2.0, 1.5),
    "elu": lambda f, x: f.elu(x, 0.7),
    "celu": lambda f, x: f.celu(x, 0.7),
    "leaky_relu": lambda f, x: f.leaky_relu(x, 0.1),
    "hardtanh": lambda f, x: f.hardtanh(x, -0.5, 0.6),
    "clamp": lambda f, x: x.clamp(-0.5, 0.6),
    "softshrink": lambda f, x: f.softshrink(x),
    "mse_loss": lambda f, x: f.mse_loss(x, x.detach() * 2, reduction="none"),
    "smooth_l1_loss": lambda f, x: f.smooth_l1_loss(x, x.detach() * 2, reduction="none"),
    "selu": lambda f, x: f.selu(x),
    "hardsigmoid": lambda f, x: f.hardsigmoid(x),
    "two": lambda f, x: f.gelu(f.silu(x) * 2) + f.silu(x).exp(),
    "of what was computed": lambda f, x: f.silu(x.sin()) * x,
    "reciprocal": lambda f, x: 2 / x,
}
_BEFORE: dict[str, Callable[[Any], Any]] = {
    "leaf": lambda x: x,
    "pending": lambda x: x * 1,
    "of a saved result": lambda x: x.exp(),
}


@pytest.mark.parametrize("how", ["pending", "stored", "op by op"])
@pytest.mark.parametrize("before", _BEFORE)
@pytest.mark.parametrize("name", _ONE_OP)
def test_what_an_op_computed_on_its_way_follows_what_it_saved(
    name: str, before: str, how: str
) -> None:
    def run(m: Any) -> Any:
        x = m.tensor([0.4, -0.3, 1.4], dtype=m.float64, requires_grad=True)
        h = _BEFORE[before](x)
        z = _ONE_OP[name](m.nn.functional, h)
        if how == "stored":
            z.tolist()
        h.data = m.tensor([2.0, 0.55, -0.2], dtype=m.float64)
        (gradient,) = m.autograd.grad((z * m.tensor([1.0, 2.0, 3.0])).sum(), x)
        return gradient.tolist()

    expected = run(torch_module())
    with lucid_gpu.fusion.eager(how == "op by op"):
        np.testing.assert_allclose(run(lucid_gpu), expected, rtol=1e-6)


@pytest.mark.parametrize("mode", [False, True], ids=["fused", "op by op"])
def test_a_quotient_is_computed_again_of_a_divisor_that_was_set(mode: bool) -> None:
    def run(m: Any) -> Any:
        x = m.tensor([0.5, 1.0, 2.0], requires_grad=True)
        w = m.tensor([1.5, -1.0, 0.5], requires_grad=True)
        z = x.exp() / w
        w.data = m.tensor([3.0, 4.0, 5.0])
        return [g.tolist() for g in m.autograd.grad(z.sum(), (x, w))]

    expected = run(torch_module())
    with lucid_gpu.fusion.eager(mode):
        for ours, theirs in zip(run(lucid_gpu), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_a_detached_tensor_is_not_what_another_was_set_to() -> None:
    x, w = lucid_gpu.tensor([1.0, 2.0]), lucid_gpu.tensor([3.0, 4.0], requires_grad=True)
    other = x.detach()
    y = other * w
    x.data = lucid_gpu.tensor([5.0, 6.0])
    assert lucid_gpu.autograd.grad(y.sum(), w)[0].tolist() == [1.0, 2.0]


# What a node computed going forward beside what it saved: (op, whether PyTorch reads both values).
_COMPUTED_BEFORE: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "var": (lambda m, x: x.var(), False),
    "var, rows": (lambda m, x: x.var(1), False),
    "var_mean": (lambda m, x: sum(m.var_mean(x, 0)), False),
    "std": (lambda m, x: x.std(1), False),
    "norm": (lambda m, x: x.norm(3, dim=1), False),
    "cumprod": (lambda m, x: x.cumprod(1), True),
}


@pytest.mark.parametrize("mode", [False, True], ids=["fused", "op by op"])
@pytest.mark.parametrize("how", ["x.data = y", "x.data.copy_(y)"])
@pytest.mark.parametrize("name", _COMPUTED_BEFORE)
def test_no_gradient_is_of_the_values_before_and_after(name: str, how: str, mode: bool) -> None:
    f, both = _COMPUTED_BEFORE[name]
    if name == "norm" and how == "x.data.copy_(y)":
        pytest.skip("fused expressions read the values before the write: docs/differences.md")
    after = [[1.5, -0.3, 0.7], [0.2, -1.1, 2.0]]

    def run(m: Any, before: Any) -> Any:
        x = m.tensor(before, dtype=m.float64, requires_grad=True)
        z = f(m, x)
        y = m.tensor(after, dtype=m.float64)
        if how == "x.data = y":
            x.data = y
        else:
            x.data.copy_(y)
        (gradient,) = m.autograd.grad((z * z.detach().cos() if not both else z).sum(), x)
        return gradient.tolist()

    before = [[0.3, 1.1, -0.7], [0.9, -0.4, 0.5]]
    expected = run(torch_module(), after if both else before)  # new values where PyTorch mixes
    with eager(mode):
        np.testing.assert_allclose(run(lucid_gpu, before), expected, rtol=1e-8)


@pytest.mark.parametrize("how", ["x.data = y", "x.data.copy_(y)"])
@pytest.mark.parametrize("name", ["det", "attention of three dimensions"])
def test_what_is_saved_beside_results_is_of_their_time(name: str, how: str) -> None:
    rng = np.random.default_rng(0)
    before, after = rng.standard_normal((2, 2, 8, 8)).astype(np.float32)
    f = _det if name == "det" else _attention

    def gradient(m: Any, start: Any, then: Any) -> Any:
        x = m.tensor(start, requires_grad=True)
        z = f(m, x)
        if how == "x.data = y":
            x.data = m.tensor(then)
        else:
            x.data.copy_(m.tensor(then))
        return m.autograd.grad(z.sum(), x)[0].tolist()

    expected = [gradient(torch_module(), v, v) for v in (before, after)]
    got = gradient(lucid_gpu, before, after)
    assert any(np.allclose(got, values, rtol=1e-3, atol=1e-4) for values in expected)


def _det(m: Any, x: Any) -> Any:
    return m.linalg.det(x)


def _attention(m: Any, x: Any) -> Any:
    return m.nn.functional.scaled_dot_product_attention(x, x, x)


_MARKED_LATER: dict[str, Callable[[Any, Any, Any], Any]] = {
    "mul": lambda m, x, w: x * w,
    "div": lambda m, x, w: x / w,
    "w / x": lambda m, x, w: w / x,
    "pow": lambda m, x, w: x**w,
    "of w": lambda m, x, w: x * w.sin().exp(),
    "twice": lambda m, x, w: x * w + w * w * x,
    "where": lambda m, x, w: m.where(x > 1, x * w, x),
    "of the product": lambda m, x, w: m.sigmoid(x * w),
    "mse_loss": lambda m, x, w: m.nn.functional.mse_loss(x, w),
    "detached": lambda m, x, w: x * w.detach(),
    "detached beside": lambda m, x, w: (x * w.detach()).sin() * w,
}


@pytest.mark.parametrize("mode", [False, True], ids=["fused", "op by op"])
@pytest.mark.parametrize("then", ["as it is", "set", "written"])
@pytest.mark.parametrize("name", _MARKED_LATER)
def test_what_requires_grad_after_it_was_saved(name: str, then: str, mode: bool) -> None:
    function = _MARKED_LATER[name]

    def outcome(m: Any) -> Any:
        x = m.tensor([0.5, 1.0, 2.0], dtype=m.float64, requires_grad=True)
        w = m.tensor([1.5, 0.25, 3.0], dtype=m.float64)
        y = function(m, x, w)
        w.requires_grad_()
        if then == "set":
            w.data = m.tensor([2.5, 0.5, 1.25], dtype=m.float64)
        elif then == "written":
            with m.no_grad():
                w.mul_(2)
        try:
            (g,) = m.autograd.grad(y.sum(), x, create_graph=True)
        except RuntimeError as error:
            assert WRITTEN in str(error)
            return WRITTEN
        second = [None, None]
        if g.requires_grad:
            second = m.autograd.grad((g * g).sum(), (x, w), allow_unused=True)
        return [[0.0] * 3 if t is None else t.tolist() for t in (g, *second)]

    expected = outcome(torch_module())
    with eager(mode):
        found = outcome(lucid_gpu)
    if WRITTEN in (expected, found):
        assert found == expected
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("dividend", [lambda x: x, lambda x: x * 2 + 1])
def test_a_dividend_that_is_not_kept(dividend: Any) -> None:
    """PyTorch has it; here it is the result times the old divisor, for a first gradient."""

    def quotient(m: Any) -> tuple[Any, Any, Any]:
        x = m.tensor([0.5, 1.0, 2.0], requires_grad=True)
        w = m.tensor([1.5, -1.0, 0.5], requires_grad=True)
        z = dividend(x) / w
        assert z.tolist()
        w.data = m.tensor([3.0, 4.0, 5.0])
        return z.sum(), x, w

    ours, theirs = [
        m.autograd.grad(y, (x, w)) for m in (lucid_gpu, torch_module()) for y, x, w in [quotient(m)]
    ]
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.tolist(), b.tolist(), rtol=1e-6)
    z, *ends = quotient(lucid_gpu)
    with pytest.raises(RuntimeError, match=r"given other values by x\.data = y"):
        lucid_gpu.autograd.grad(z, ends, create_graph=True)


def test_values_set_before_the_forward_pass_are_no_replacement() -> None:
    x, w = [lucid_gpu.ones(3, requires_grad=True) for _ in range(2)]
    w.data = lucid_gpu.tensor([3.0, 4.0, 5.0])
    z = (x * 2 + 1) / w
    assert z.tolist()
    (slope,) = lucid_gpu.autograd.grad(z.sum(), w, create_graph=True)
    slope.sum().backward()
    np.testing.assert_allclose(w.grad.tolist(), [6 / n**3 for n in (3, 4, 5)], rtol=1e-6)


def test_a_detached_tensor_does_not_follow_the_one_it_came_from() -> None:
    x, w = lucid_gpu.ones(2, requires_grad=True), lucid_gpu.tensor([2.0, 3.0])
    y = x * w.detach()
    w.data = lucid_gpu.tensor([5.0, 6.0])
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 3.0]


@pytest.mark.parametrize("by_one", ["times", "over"])
@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "sqrt"])
def test_a_result_times_one_may_be_written_though_its_operand_was_saved(
    name: str, by_one: str, device: str
) -> None:
    def scenario(m: Any, d: str) -> Any:
        x = m.tensor([0.5, 1.0, 2.0], device=d, requires_grad=True)
        y = getattr(x, name)() * 1 if by_one == "times" else getattr(x, name)() / 1.0
        y[:2].mul_(0)
        y.sum().backward()
        return [g > 0 for g in x.grad.tolist()]

    gives([False, False, True], scenario, device)


def _given_another_shape(m: Any, name: str, shape: tuple[int, ...], twice: bool) -> Any:
    x = m.arange(6.0).reshape(2, 3).requires_grad_()
    y = {"sin": m.sin, "mm": lambda x: x @ m.ones(3, 3), "sum": lambda x: x.sum(0)}[name](x)
    y.data = m.full(shape, 2.0)
    if twice:
        y.data = m.full(shape, 3.0)
    try:
        (y * y).sum().backward()
    except RuntimeError as error:
        assert "invalid gradient" in str(error) and "expected shape compatible" in str(error)
        return "refused"
    return y.grad_fn.name(), x.grad.numpy().round(4).tolist()


@pytest.mark.parametrize("shape", [(3,), (4,), (), (1, 3), (3, 2), (2, 2, 3), (5, 3)], ids=str)
@pytest.mark.parametrize("name", ["sin", "mm", "sum"])
@pytest.mark.parametrize("twice", [False, True])
def test_a_result_whose_data_got_another_shape_has_the_gradient_of_torch_or_a_refusal(
    name: str, shape: tuple[int, ...], twice: bool
) -> None:
    got = _given_another_shape(lucid_gpu, name, shape, twice)
    assert got == _given_another_shape(torch_module(), name, shape, twice)


def test_a_result_whose_data_got_another_dtype_has_a_gradient_of_its_own() -> None:
    def gradient(m: Any) -> Any:
        x = m.ones(3, requires_grad=True)
        y = x.exp()
        y.data = m.full((3,), 2.0, dtype=m.float64)
        (y * y).sum().backward()
        return str(x.grad.dtype).split(".")[-1], x.grad.numpy().round(4).tolist()

    assert gradient(lucid_gpu) == gradient(torch_module())
