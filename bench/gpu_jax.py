"""The cases for JAX, compiled by `jax.jit`, which has no PyTorch names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from bench.gpu_cases import Kit, Step


def _normal(kit: Kit, *shape: int) -> Any:
    few = jnp.asarray(kit.numbers(math.prod(shape))).astype(kit.dtype)
    return jnp.resize(few, shape)


def _sets(kit: Kit, count: int) -> list[list[Any]]:
    return kit.every(lambda: [_normal(kit, *kit.size) for _ in range(count)])


def _step(function: Callable[..., Any], sets: list[list[Any]]) -> Step:
    run = jax.jit(function)

    def step(i: int) -> tuple[Any, ...]:
        found = run(*sets[i])
        return found if isinstance(found, tuple) else (found,)

    return step


def _gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gradients for a cotangent that is given last."""

    def gradient(*arguments: Any) -> Any:
        *inputs, g = arguments
        return jax.vjp(function, *inputs)[1](g)

    return gradient


def chain(x: Any, r: Any) -> Any:
    gelu = 0.5 * x * (1 + jnp.tanh(0.79788456 * (x + 0.044715 * x * x * x)))
    return gelu * r + jax.nn.sigmoid(r) * x


def softmax(x: Any) -> Any:
    return jax.nn.softmax(x.astype(jnp.float32), axis=-1).astype(x.dtype)


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    wide = x.astype(jnp.float32)
    away = wide - wide.mean(-1, keepdims=True)
    scale = jax.lax.rsqrt((away * away).mean(-1, keepdims=True) + 1e-5)
    return (away * scale * weight + bias).astype(x.dtype)


def _layer_norm(kit: Kit) -> Step:
    columns = kit.size[-1]
    parameters = [_normal(kit, columns), _normal(kit, columns)]
    return _step(layer_norm, kit.every(lambda: [_normal(kit, *kit.size), *parameters]))


def _layer_norm_gradient(kit: Kit) -> Step:
    columns = kit.size[-1]
    parameters = [_normal(kit, columns), _normal(kit, columns)]
    sets = kit.every(lambda: [_normal(kit, *kit.size), *parameters, _normal(kit, *kit.size)])
    return _step(_gradient(layer_norm), sets)


def _cross_entropy(kit: Kit) -> Step:
    rows, classes = kit.size

    def loss_of(logits: Any, labels: Any) -> Any:
        scores = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
        return -jnp.take_along_axis(scores, labels[:, None], axis=-1).mean()

    def one() -> list[Any]:
        return [_normal(kit, *kit.size), jnp.asarray(kit.rng.integers(0, classes, rows))]

    return _step(jax.value_and_grad(loss_of), kit.every(one))


STEPS: dict[str, Callable[[Kit], Step]] = {
    "negation": lambda kit: _step(jnp.negative, _sets(kit, 1)),
    "chain-forward": lambda kit: _step(chain, _sets(kit, 2)),
    "chain-backward": lambda kit: _step(_gradient(chain), _sets(kit, 3)),
    "softmax-forward": lambda kit: _step(softmax, _sets(kit, 1)),
    "softmax-backward": lambda kit: _step(_gradient(softmax), _sets(kit, 2)),
    "layer-norm-forward": _layer_norm,
    "layer-norm-backward": _layer_norm_gradient,
    "cross-entropy-32k": _cross_entropy,
    "cross-entropy-128k": _cross_entropy,
}
