"""`adam.adam`, `sgd.sgd` and the like: steps of lists, beside PyTorch's."""

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


def _other(m, name, states, maximize, settings):
    rng = np.random.default_rng(2)
    params = _tensors(m, rng)
    lists = [[m.full_like(p, fill) for p in params] for fill in states]
    steps = [m.tensor(0.0) for _ in params]
    if name in ("nadam", "asgd"):  # the last lists are numbers
        for column, fill in list(zip(lists, states, strict=True))[{"nadam": 2, "asgd": 1}[name] :]:
            column[:] = [m.tensor(fill) for _ in params]
    for _ in range(7):
        given = {"maximize": maximize, **settings}
        _function(m, name)(params, _tensors(m, rng), *lists, steps, **given)
    return [*params, *[x for column in lists for x in column], *steps]


BETAS = {"beta1": 0.8, "beta2": 0.9, "lr": 0.1, "weight_decay": 0.01}
RMSPROP = {"lr": 0.1, "alpha": 0.9, "eps": 1e-8, "weight_decay": 0.01, "centered": True}
OTHERS = {
    "rmsprop": ((0.0, 0.0, 0.0), {**RMSPROP, "momentum": 0.5}),
    "adagrad": ((0.3,), {"lr": 0.1, "weight_decay": 0.1, "lr_decay": 0.2, "eps": 1e-9}),
    "adadelta": ((0.0, 0.0), {"lr": 0.5, "rho": 0.8, "eps": 1e-6, "weight_decay": 0.1}),
    "adamax": ((0.0, 0.0), {**BETAS, "eps": 1e-8}),
    "nadam": ((0.0, 0.0, 1.0), {**BETAS, "eps": 1e-8, "momentum_decay": 4e-3}),
    "radam": ((0.0, 0.0), {**BETAS, "eps": 1e-8, "decoupled_weight_decay": True}),
    "rprop": (
        (0.0, 0.1),
        {"step_size_min": 1e-3, "step_size_max": 0.3, "etaminus": 0.4, "etaplus": 1.3},
    ),
    "asgd": (
        (0.0, 1.0, 0.1),
        {"lambd": 0.01, "lr": 0.1, "t0": 3.0, "alpha": 0.7, "weight_decay": 0.1},
    ),
}


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("name", OTHERS)
def test_steps_of_others_are_torchs(name, maximize):
    import lucid_gpu

    of_both = [
        _other(m, name, OTHERS[name][0], maximize, OTHERS[name][1])
        for m in (lucid_gpu, torch_module())
    ]
    if name in ("nadam", "asgd"):  # numbers of float32
        for a, b in zip(*of_both, strict=True):
            np.testing.assert_allclose(array_of(a), array_of(b), rtol=1e-6, atol=1e-7)
    else:
        _same(*of_both)


def test_settings_without_a_default_must_be_given():
    from lucid_gpu.optim.rmsprop import rmsprop

    with pytest.raises(TypeError, match="missing a required.* 'centered'"):
        rmsprop([], [], [], [], [], [], lr=0.1, alpha=0.9, eps=1e-8, weight_decay=0, momentum=0)
