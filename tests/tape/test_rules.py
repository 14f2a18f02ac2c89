"""Rules beside ops: each stands in the file of its op, and is found by it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import lucid_gpu
from lucid_gpu import ops, vmap
from lucid_gpu.tape import rules
from lucid_gpu.tape.door import op


def of_the_package() -> Iterator[tuple[Any, Any]]:
    """Each op, or vjp, of `lucid_gpu.ops` that has a rule, and the rule."""
    for found in pkgutil.walk_packages(ops.__path__, f"{ops.__name__}."):
        importlib.import_module(found.name)
    for table in (rules.BATCHING, rules.JVP):
        yield from [(f, r) for f, r in table.items() if f.__module__.startswith(ops.__name__)]


# Rules that serve ops of several files.
SHARED = {
    ("along_dim", "lucid_gpu.ops.reductions"),
    ("on_value", "lucid_gpu.tape.rules"),
    ("scatter_batched", "lucid_gpu.ops.scatter"),
}


def test_each_rule_stands_in_the_file_of_its_op() -> None:
    pairs = list(of_the_package())
    assert len(pairs) > 100
    apart = {
        (rule.__name__, rule.__module__)
        for function, rule in pairs
        if rule.__module__ != function.__module__
    }
    assert apart == SHARED


def test_nobody_above_the_ops_registers_a_rule() -> None:
    modules = {f.__module__ for table in (rules.BATCHING, rules.JVP) for f in table}
    declare = (ops.__name__, "lucid_gpu.scipy.")  # SciPy's functions are ops of tables of their own
    above = {m for m in modules if m.startswith("lucid_gpu.") and not m.startswith(declare)}
    assert above == set()


def test_a_rule_is_for_an_op() -> None:
    def plain(x: Any) -> Any:
        return x

    with pytest.raises(TypeError, match=r"batching\(\): plain is no op; mark it with @op first"):
        rules.batching(plain)
    with pytest.raises(TypeError, match="is no op"):  # what wraps an op is called before it
        rules.batching(lucid_gpu.Tensor.cumsum)


def test_a_rule_that_says_notimplemented_leaves_the_call_to_the_body() -> None:
    seen: list[Any] = []

    @op
    def doubled(x: Any) -> Any:
        return x * 2

    @rules.batching(doubled)
    def doubled_batched(level: rules.Batch, f: Any, x: Any) -> Any:
        seen.append((level.size, f is doubled, tuple(level.value(x).shape)))
        return NotImplemented

    found = vmap(doubled)(lucid_gpu.arange(6.0).reshape(2, 3))
    assert found.tolist() == [[0, 2, 4], [6, 8, 10]]
    assert seen == [(2, True, (2, 3))]
    doubled(lucid_gpu.ones(3))
    assert len(seen) == 1


def test_a_rule_for_unbatched_arguments_is_asked_inside_vmap_alone() -> None:
    @op
    def coin(p: float) -> Any:
        return lucid_gpu.full((), p)

    @rules.batching(coin, unbatched=True)
    def coin_batched(level: rules.Batch, f: Any, p: float) -> Any:
        if level.draws_once():
            return level.outside(f, p)
        return level.wrap(lucid_gpu.arange(level.size) + level.outside(f, p))

    x = lucid_gpu.zeros(3)
    assert coin(0.5).item() == 0.5
    assert vmap(lambda t: t + coin(0.5), randomness="same")(x).tolist() == [0.5] * 3
    assert vmap(lambda t: t + coin(0.5), randomness="different")(x).tolist() == [0.5, 1.5, 2.5]
    with pytest.raises(RuntimeError, match="randomness error mode"):
        vmap(lambda t: t + coin(0.5))(x)


def test_a_batch_of_batches_becomes_one_and_comes_apart_again() -> None:
    @op
    def first_of_each(x: Any) -> Any:
        return x[:, :1], x

    @rules.batching(first_of_each)
    def first_of_each_batched(level: rules.Batch, f: Any, x: Any) -> Any:
        assert tuple(level.joined(x).shape) == (6, 4)
        return level.parted(f(level.joined(x)), x.shape[0])

    x = lucid_gpu.arange(24.0).reshape(2, 3, 4)
    first, same = vmap(first_of_each)(x)
    assert lucid_gpu.equal(first, x[:, :, :1]) and lucid_gpu.equal(same, x)
