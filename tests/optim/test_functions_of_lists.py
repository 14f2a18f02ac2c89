"""`adam.adam`, `adamw.adamw` and `sgd.sgd`: steps of lists, beside PyTorch's."""

import importlib

import numpy as np
import pytest

from tests.oracle import array_of, torch_module

SHAPES = ((3,), (2, 2), ())


def _tensors(m, rng, scale=1.0):
    return [m.tensor(np.asarray(scale * rng.standard_normal(s))) for s in SHAPES]


def _function(m, name):
    return getattr(importlib.import_module(f"{m.__name__}.optim.{name}"), name)


def _same(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(array_of(a), array_of(b), rtol=1e-9, atol=1e-12)


def _adam(m, name, amsgrad, maximize):
    rng = np.random.default_rng(0)
    params, zeros = _tensors(m, rng), [[m.zeros_like(p) for p in _tensors(m, rng)] for _ in "abc"]
    steps = [m.tensor(0.0) for _ in params]
    for _ in range(3):
        _function(m, name)(
            params, _tensors(m, rng), *zeros, steps, amsgrad=amsgrad, beta1=0.8, beta2=0.9, lr=0.1,
            weight_decay=0.01, eps=1e-8, maximize=maximize,
        )  # fmt: skip
    return [*params, *zeros[0], *zeros[1], *(zeros[2] if amsgrad else ()), *steps]


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_steps_of_adam_are_torchs(name, amsgrad, maximize):
    import lucid_gpu

    _same(*[_adam(m, name, amsgrad, maximize) for m in (lucid_gpu, torch_module())])


def _sgd(m, momentum, nesterov):
    rng = np.random.default_rng(1)
    params, buffers = _tensors(m, rng), [None] * len(SHAPES)
    for _ in range(3):
        _function(m, "sgd")(
            params, _tensors(m, rng), buffers, weight_decay=0.01, momentum=momentum, lr=0.1,
            dampening=0.0 if nesterov else 0.2, nesterov=nesterov, maximize=False,
        )  # fmt: skip
    return [*params, *(buffers if momentum else ())]


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_steps_of_sgd_are_torchs(momentum, nesterov):
    import lucid_gpu

    _same(*[_sgd(m, momentum, nesterov) for m in (lucid_gpu, torch_module())])
