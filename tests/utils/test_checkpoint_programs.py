"""Random functions under checkpoints: the gradients are those without, whatever surrounds a call.

What a function saves must be the same when it is called again, though by then other values are
pending, other memory is shared, and other reductions wait.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import forward_ad
from lucid_gpu.core.program import forget
from lucid_gpu.fusion import eager
from lucid_gpu.utils.checkpoint import checkpoint
from tests.oracle import modules
from tests.slow import slow_but

# LUCID_TEST_EXAMPLES=100 tries a hundred times as many.
SEEDS = math.ceil(60 * float(os.environ.get("LUCID_TEST_EXAMPLES", "1")))
CLOSE = 1e-6  # what passes through float32 is rounded where it fuses otherwise
Function = Callable[..., Any]

ELEMENTWISE: dict[str, Function] = {
    "tanh": lambda x: x.tanh(),
    "sin": lambda x: x.sin(),
    "exp": lambda x: (x * 0.3).exp(),
    "sigmoid": lambda x: x.sigmoid(),
    "relu": lambda x: x.relu(),
    "gelu": lucid_gpu.nn.functional.gelu,
    "sqrt": lambda x: (x * x + 1).sqrt(),
    "pow": lambda x: x**2,
    "rpow": lambda x: 1.5 ** x.tanh(),
    "clamp": lambda x: x.clamp(-0.5, 0.7),
    "where": lambda x: lucid_gpu.where(x > 0, x, 0.1 * x),
    "reciprocal": lambda x: 1 / (2 + x.cos()),
    "cast": lambda x: x.float().double(),
    "written": lambda x: x.clone().mul_(1.5).add_(x),
    "dropout": lambda x: lucid_gpu.nn.functional.dropout(x, 0.5),
}
TWO: dict[str, Function] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - 2 * y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / (1.5 + y.abs()),
    "maximum": lucid_gpu.maximum,
    "hypot": lucid_gpu.hypot,
    "lerp": lambda x, y: x.lerp(y, 0.3),
}
REDUCTIONS: dict[str, Function] = {
    "sum": lambda x, d: x.sum(d, keepdim=True),
    "mean": lambda x, d: x.mean(d, keepdim=True),
    "std": lambda x, d: x.std(d, keepdim=True),
    "var": lambda x, d: x.var(d, keepdim=True),
    "var_mean": lambda x, d: sum(lucid_gpu.var_mean(x, d, keepdim=True)),
    "norm": lambda x, d: x.norm(dim=d, keepdim=True),
    "norm3": lambda x, d: x.norm(3, dim=d, keepdim=True),
    "softmax": lambda x, d: x.softmax(d),
    "log_softmax": lambda x, d: x.log_softmax(d),
    "logsumexp": lambda x, d: x.logsumexp(d, keepdim=True),
    "amax": lambda x, d: x.amax(d, keepdim=True),
    "max": lambda x, d: x.max(d, keepdim=True).values,
    "cumsum": lambda x, d: x.cumsum(d),
    "prod": lambda x, d: (1 + 0.1 * x).prod(d, keepdim=True),
    "layer_norm": lambda x, d: lucid_gpu.nn.functional.layer_norm(x, (x.shape[-1],)),
    "all_std": lambda x, d: x / (1 + x.std()),
    "all_norm": lambda x, d: x / x.norm(),
    "logcumsumexp": lambda x, d: x.logcumsumexp(d),
}
VIEWS: dict[str, Function] = {
    "rows": lambda x: x[: (x.shape[0] + 1) // 2],
    "turned": lambda x: x.t().reshape(x.shape),
    "flat": lambda x: x.reshape(-1).reshape(x.shape[0], -1),
    "product": lambda x: x @ x.t() @ x * 0.1,
    "stack": lambda x: lucid_gpu.stack([x, x.sin()]).sum(0),
    "cat": lambda x: lucid_gpu.cat([x, x * 2]),
    "flip": lambda x: x.flip(0),
    "index": lambda x: x[[0, -1]],
    "solve": lambda x: lucid_gpu.linalg.solve(x @ x.t() + 2 * lucid_gpu.eye(len(x)).to(x), x),
    "solve vector": lambda x: (
        x * lucid_gpu.linalg.solve(x.t() @ x + 2 * lucid_gpu.eye(x.shape[1]).to(x), x[0])
    ),
    "cholesky": lambda x: (
        lucid_gpu.linalg.cholesky(x @ x.t() + 2 * lucid_gpu.eye(len(x)).to(x)) @ x
    ),
    "det": lambda x: x * (0.1 * x.t() @ x + lucid_gpu.eye(x.shape[1]).to(x)).det(),
    "expand": lambda x: x[:1].expand(x.shape),
}
CONSUMERS: dict[str, Function] = {
    "sum": lambda x: x.sum(),
    "norm": lambda x: x.norm(),
    "mean": lambda x: (x * x).mean(),
    "std": lambda x: (x.std() + 1).log(),
    "logsumexp": lambda x: x.logsumexp((0, 1)),
    "chain": lambda x: (x.sin() * 2 + x).tanh().sum(),
    "twice": lambda x: x.exp().mean() + x.var(),
    "product": lambda x: (x.t() @ x).diagonal().sum(),
}


def fits(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether two values can meet in one op."""
    return all(m == n or 1 in (m, n) for m, n in zip(a, b, strict=True))


def random_function(rng: np.random.Generator, nest: Any = None) -> tuple[str, Function]:
    """Some ten ops on two matrices; parts of it are called by ``nest``, if there is one."""
    pick = lambda table: str(rng.choice(list(table)))  # noqa: E731
    steps: list[tuple[str, Any]] = []
    for _ in range(rng.integers(3, 9)):
        kind = rng.choice(["one", "one", "two", "reduction", "reduction", "view"])
        where, other = int(rng.integers(0, 8)), int(rng.integers(0, 8))
        table = {"one": ELEMENTWISE, "two": TWO, "reduction": REDUCTIONS, "view": VIEWS}[str(kind)]
        steps.append((pick(table), (table, where, other, int(rng.integers(0, 2)))))

    def run(first: int, last: int, *given: Any) -> Any:
        values = list(given)
        for name, (table, where, other, dim) in steps[first:last]:
            x = values[where % len(values)]
            if table is TWO:
                candidates = [v for v in values if fits(tuple(x.shape), tuple(v.shape))]
                result = table[name](x, candidates[other % len(candidates)])
            else:
                result = table[name](x, dim) if table is REDUCTIONS else table[name](x)
            values.append(result)
        return values[-1]

    cut = int(rng.integers(1, len(steps)))

    def function(x: Any, y: Any) -> Any:
        if nest is None:
            return run(0, len(steps), x, y)
        half = nest(lambda *given: run(0, cut, *given), x, y)
        return nest(lambda *given: run(cut, len(steps), *given), half, y)

    return ", ".join(name for name, _ in steps), function


def lent(array: Any, how: str) -> tuple[Any, Any]:
    """A tensor of an array, and who holds the array besides."""
    if how == "own":
        return lucid_gpu.tensor(array), None
    held = array.copy()
    return lucid_gpu.from_numpy(held), held if how == "held" else None


def gradients(
    seed: int, device: str, wrap: Any, nest: Any = None, around: Any = contextlib.nullcontext
) -> tuple[str, list[Any]]:
    """What backward gives for the seed's function, called by ``wrap``, inside ``around``."""
    rng = np.random.default_rng(seed)
    name, function = random_function(rng, nest)
    shape = (int(rng.integers(2, 5)), int(rng.integers(2, 6)))
    kinds = rng.choice(["own", "held", "dropped"], 2)
    lucid_gpu.manual_seed(seed)
    leaves, holders = [], []
    for how in kinds:
        leaf, holder = lent(rng.standard_normal(shape), str(how))
        leaves.append(leaf.to(device).requires_grad_())
        holders.append(holder)
    x, y = leaves
    if rng.integers(0, 3) == 0:
        x = x * 2 + y  # pending where the function is called
    consumer = str(rng.choice(list(CONSUMERS)))
    result = wrap(function, x, y)
    beside = (x * y).std() if rng.integers(0, 3) == 0 else None  # waits
    loss = CONSUMERS[consumer](result)
    if rng.integers(0, 2):
        loss.item()
    holders.clear()  # from here on nobody else holds the memory
    with around():
        loss.backward()
    del beside
    # a leaf that is not reached has none, or zeros if it went into a re-entrant checkpoint
    found = [np.zeros(shape) if t.grad is None else t.grad.cpu().numpy() for t in leaves]
    return f"{name}; {consumer}; {', '.join(kinds)}", found


def plainly(function: Function, *args: Any) -> Any:
    return function(*args)


def kept(function: Function, *args: Any) -> Any:
    return checkpoint(function, *args, use_reentrant=False)


def kept_whole(function: Function, *args: Any) -> Any:
    return checkpoint(function, *args, use_reentrant=False, early_stop=False)


def reentered(function: Function, *args: Any) -> Any:
    return checkpoint(function, *args, use_reentrant=True)


WAYS = {
    "early stop": (kept, None),
    "whole": (kept_whole, None),
    "reentrant": (reentered, None),
    "nested": (kept, kept),
    "nested, whole": (kept_whole, kept_whole),
    "in sequence": (plainly, kept),
    "reentrant in one that is not": (kept, reentered),
}


@pytest.mark.parametrize(
    "way", slow_but(WAYS, "early stop", "nested", "reentrant in one that is not")
)
def test_random_functions(way: str, device: str) -> None:
    wrap, nest = WAYS[way]
    for seed in range(SEEDS):
        _, expected = gradients(seed, device, plainly, nest and plainly)
        name, found = gradients(seed, device, wrap, nest)
        for a, b in zip(expected, found, strict=True):
            np.testing.assert_allclose(b, a, CLOSE, CLOSE, err_msg=f"seed {seed}: {name}")


@contextlib.contextmanager
def forgotten() -> Any:
    """No program that forward used is known any more."""
    forget()
    yield


@contextlib.contextmanager
def among_others() -> Any:
    """A reduction waits, numbers have changed from step to step, and values are pending."""
    x = lucid_gpu.rand(3, 4, dtype=lucid_gpu.float64, requires_grad=True)
    others = [x.sum(0), x.std(), *(x * (0.3 + i) + i for i in range(12))]
    yield
    del others


def second_gradients(seed: int, device: str, wrap: Any, nest: Any) -> tuple[str, list[Any]]:
    """The gradients of a penalty on the gradients of the seed's function, and theirs."""
    rng = np.random.default_rng(seed)
    name, function = random_function(rng, nest)
    shape = (int(rng.integers(2, 5)), int(rng.integers(2, 6)))
    lucid_gpu.manual_seed(seed)
    leaves = [lucid_gpu.tensor(rng.standard_normal(shape)).to(device) for _ in range(2)]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    hooks = lucid_gpu.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)
    with hooks if seed % 2 else contextlib.nullcontext():
        loss = (wrap(function, *leaves) ** 2).mean()
    loss.backward(create_graph=True)
    first = [leaf.grad for leaf in leaves if leaf.grad is not None]
    for leaf in leaves:
        leaf.grad = None
    penalty = sum((g * g.sin()).sum() for g in first)
    if isinstance(penalty, lucid_gpu.Tensor) and penalty.requires_grad:
        penalty.backward()
    found = [*first, *[leaf.grad for leaf in leaves]]
    return name, [np.zeros(shape) if t is None else t.detach().cpu().numpy() for t in found]


@pytest.mark.parametrize("way", ["early stop", "nested", "nested, whole", "in sequence"])
def test_second_derivatives(way: str, device: str) -> None:
    wrap, nest = WAYS[way]
    for seed in range(2000, 2000 + SEEDS // 4):
        _, expected = second_gradients(seed, device, plainly, nest and plainly)
        name, found = second_gradients(seed, device, wrap, nest)
        for a, b in zip(expected, found, strict=True):
            least = 1e-6 * max(1.0, float(np.abs(a).max()))
            np.testing.assert_allclose(b, a, 1e-6, least, err_msg=f"seed {seed}: {name}")


ENDS: dict[str, Function] = {
    "norm": lambda x: x / (1 + x.norm()),
    "sum of rows": lambda x: x * x.sum(1, keepdim=True),
    "largest": lambda x: x - x.max(-1, keepdim=True).values,
    "std": lambda x: x / (1 + x.std(-1, keepdim=True)),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("deep", [1, 2])
def test_a_reentrant_checkpoint_gives_back_its_argument(end: str, deep: int, device: str) -> None:
    """Its backward hands a gradient on that reads what the graph outside of it reads too."""
    found = []
    for again in (plainly, reentered):
        x = lucid_gpu.linspace(-1, 2, 12, dtype=lucid_gpu.float64, device=device)
        x = x.reshape(3, 4).requires_grad_()
        with lucid_gpu.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            value = ENDS[end](x)
            for _ in range(deep):
                value = again(lambda t: t, value).tanh()
        (value * value).sum().backward()
        found.append(x.grad.cpu().numpy())
    np.testing.assert_allclose(found[1], found[0], 1e-12)


AROUND = {
    "forgotten": forgotten,
    "among others": among_others,
    "eager": lambda: eager(True),
    "in a level": forward_ad.dual_level,
}


@pytest.mark.each_value
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("way", ["early stop", "whole", "nested"])
def test_backward_elsewhere(way: str, around: str, device: str) -> None:
    wrap, nest = WAYS[way]
    for seed in range(1000, 1000 + SEEDS // 4):
        _, expected = gradients(seed, device, plainly, nest and plainly)
        name, found = gradients(seed, device, wrap, nest, AROUND[around])
        for a, b in zip(expected, found, strict=True):
            np.testing.assert_allclose(b, a, CLOSE, CLOSE, err_msg=f"seed {seed}: {name}")


REDUCED: dict[str, Function] = {
    "std": lambda m, a: a / (1 + a.std()),
    "var": lambda m, a: a * a.var(0),
    "logsumexp": lambda m, a: a * a.logsumexp(0),
    "std_mean": lambda m, a: a * m.std_mean(a, 1, keepdim=True)[0],
}


@pytest.mark.parametrize(
    ("name", "gradient"),
    [
        (
            "std",
            [[0.071767521, -0.018729116, 0.162264159], [0.132098613, 0.056684748, -0.003646343]],
        ),
        (
            "var",
            [[-0.137948628, -0.202073186, 9.323926229], [0.19925913, 0.145941745, -7.132405107]],
        ),
        (
            "logsumexp",
            [[0.5421831, -0.02521761, 3.284760537], [1.561509275, 0.090426649, -0.496808908]],
        ),
        (
            "std_mean",
            [[0.286062857, -1.573345714, 2.145471429], [0.911163175, 0.050325873, -0.638343968]],
        ),
    ],
)
def test_memory_that_is_lent_no_more(name: str, gradient: Any, device: str) -> None:
    """An array of NumPy's that nobody holds besides, once it is a tensor; values of torch 2.13."""
    function = REDUCED[name]
    for module, where in modules(device):

        def called(a: Any, module: Any = module) -> Any:
            return function(module, a)

        array = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])
        x = module.from_numpy(array.copy())
        x = x.to(where).requires_grad_()
        kept = importlib.import_module(f"{module.__name__}.utils.checkpoint").checkpoint
        kept(called, x, use_reentrant=False).norm().backward()
        np.testing.assert_allclose(x.grad.cpu().numpy(), gradient, rtol=1e-6)
