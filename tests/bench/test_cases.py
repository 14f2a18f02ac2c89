"""Every case does the same work on lucid_gpu as on torch; sizes are tiny."""

import importlib
import os
import shutil

import numpy as np
import pytest

import lucid_gpu
from bench import arrays, models
from bench.cases import CASES, chain, losses, power, residual_norm
from bench.graphs import in_graph, replayed
from bench.rounds import difference
from bench.worker import on_host

TINY = {
    "chain": chain((5, 7)),
    "chain, forward read first": chain((5, 7), read_first=True),
    "power": power(10, 8),
    "residual, norm": residual_norm(5, 7),
    "losses": losses(5, 7),
    "mlp": models.mlp((6, 5, 4, 3), 9),
    "lenet": models.lenet(2),
    "resnet": models.resnet((4, 8), blocks=1, batch=2),
    "gpt": models.gpt(layers=2, width=8, heads=2, length=6, batch=2, letters=9),
}


def results(module, build, steps):
    step = build(importlib.import_module(module), "cpu", lambda f: f)
    for _ in range(steps):
        found = step()
    return [np.asarray(r.detach().numpy()) for r in found]


@pytest.mark.parametrize("name", TINY)
def test_like_torch(name):
    pytest.importorskip("torch", reason="the oracle: make test ORACLE=1 installs torch")
    wanted = results("torch", TINY[name], 3)
    found = results("lucid_gpu", TINY[name], 3)
    assert len(found) == len(wanted)
    for f, w in zip(found, wanted, strict=True):
        # Adam makes a step of what rounding leaves of a gradient that is zero: the keys' bias
        assert difference(f, w) < (2e-3 if name == "gpt" else 2e-5)


PROGRAMS = {
    "gaussian-process": arrays.gaussian_process(6, 2),
    "heat": arrays.heat(5, 3),
    "quantum-dot": arrays.quantum_dot(4),
}


def as_it_is(function):
    return function


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_numpy_like_hips_autograd(name):
    hips = pytest.importorskip("autograd")
    build = PROGRAMS[name]
    for found, wanted in zip(build(lucid_gpu, "cpu", as_it_is)(), build(hips, "cpu", as_it_is)()):
        assert type(found) is type(wanted)
        assert difference(found, wanted) < 1e-12


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_numpy_in_jax(name, request):
    jax = pytest.importorskip("jax")
    request.addfinalizer(lambda: jax.config.update("jax_enable_x64", False))
    jax.config.update("jax_enable_x64", True)
    wanted = PROGRAMS[name](lucid_gpu, "cpu", as_it_is)()
    for f, w in zip(PROGRAMS[name](jax, "cpu", jax.jit)(), wanted, strict=True):
        assert difference(np.asarray(f), w) < 1e-12


def test_an_equation_like_hips_autograd():
    hips = pytest.importorskip("autograd")
    build = arrays.hares(2)
    for found, wanted in zip(build(lucid_gpu, "cpu", as_it_is)(), build(hips, "cpu", as_it_is)()):
        assert difference(found, wanted) < 1e-6


@pytest.mark.parametrize("name", ["mlp", *PROGRAMS])
def test_steps_as_graphs(name):
    build = {**TINY, **PROGRAMS}[name]
    step, graphed = (build(lucid_gpu, "cpu", how) for how in (as_it_is, in_graph))
    graphed = replayed(lucid_gpu, graphed)
    for _ in range(3):
        for found, wanted in zip(graphed(), step(), strict=True):
            assert difference(on_host(found), on_host(wanted)) < 1e-12


def test_heat_in_mygrad():
    mygrad = pytest.importorskip("mygrad")
    wanted = PROGRAMS["heat"](lucid_gpu, "cpu", as_it_is)()
    for f, w in zip(PROGRAMS["heat"](mygrad, "cpu", as_it_is)(), wanted, strict=True):
        assert difference(np.asarray(f), w) < 1e-12


@pytest.mark.parametrize(("module", "compiler"), [("jax", "jit"), ("tinygrad", "TinyJit")])
def test_the_chain_of_functions(module, compiler):
    peer = pytest.importorskip(module)
    if module == "tinygrad" and not shutil.which(os.environ.get("CC", "clang")):
        pytest.skip("tinygrad needs clang")
    step = TINY["chain"](peer, "cpu", getattr(peer, compiler))
    for found in (step(), step(), step()):  # a compiler may look twice before it replays
        for f, w in zip(found, results("lucid_gpu", TINY["chain"], 1), strict=True):
            assert f.dtype == w.dtype
            assert difference(np.asarray(f), w) < 1e-6


def test_the_chain_is_what_it_says():
    rng = np.random.default_rng(0)
    x, r, g = (rng.standard_normal((5, 7), np.float32).astype(np.float64) for _ in range(3))
    inner = np.tanh(0.79788456 * (x + 0.044715 * x**3))
    s = 1 / (1 + np.exp(-r))
    slope = 0.5 * (1 + inner) + 0.5 * x * (1 - inner**2) * 0.79788456 * (1 + 3 * 0.044715 * x**2)
    wanted = (
        0.5 * x * (1 + inner) * r + s * x,
        g * (slope * r + s),
        g * (0.5 * x * (1 + inner) + s * (1 - s) * x),
    )
    found = results("lucid_gpu", TINY["chain"], 1)
    for f, w in zip(found, wanted, strict=True):
        assert difference(f, w) < 1e-6


def test_names_are_unique_and_targets_stand():
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    targets = {case.name: case.at_most for case in CASES if case.at_most is not None}
    assert targets == {
        "chain-2^24": 0.06,
        "chain-1024": 0.30,
        "chain-64": 0.70,
        "function": 0.70,
        "residual-norm": 0.5,
        "cross-entropy": 0.5,
        "mlp": 0.80,
        "lenet": 2.0,
        "resnet": 2.5,
        "gpt": 1.1,
        "lstm": 1.5,
        "gaussian-process": 0.5,
        "heat": 0.5,
        "quantum-dot": 0.5,
        "equation": 0.5,
        "memory": 3.5,
        "import": 0.25,
    }
