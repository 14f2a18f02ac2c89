"""Muon and Adafactor beside PyTorch's."""

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import modules, same_error, torch_module

MATRICES = [np.random.default_rng(i).standard_normal(s) for i, s in enumerate([(4, 3), (3, 7)])]
SETTINGS = [
    {"lr": 0.1},
    {"lr": 0.1, "nesterov": False, "momentum": 0.5, "weight_decay": 0.3},
    {"lr": 0.1, "adjust_lr_fn": "match_rms_adamw", "ns_steps": 3},
]


def stepped(m, device, settings):
    weights = [m.tensor(w).to(device).requires_grad_() for w in MATRICES]
    optimizer = m.optim.Muon(weights, **settings)
    for _ in range(4):
        optimizer.zero_grad()
        sum(((w - 1) ** 2).sum() for w in weights).backward()
        optimizer.step()
    state = optimizer.state_dict()
    means = [state["state"][i]["momentum_buffer"] for i in range(2)]
    told = [state["param_groups"], [list(s) for s in state["state"].values()], repr(optimizer)]
    return [t.detach().cpu().numpy() for t in (*weights, *means)], told


@pytest.mark.parametrize("settings", SETTINGS)
def test_agrees_with_torch(settings, device):
    expected, form = stepped(torch_module(), "cpu", settings)
    found, own = stepped(lucid_gpu, device, settings)
    assert own == form
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=0.02)  # bfloat16 is rounded elsewhere


SHAPES_OF_STEPS = [(4, 3), (3, 7), (16, 16), (48, 20)]


@pytest.mark.parametrize("nesterov", [True, False])
def test_a_step_has_torchs_bits_but_where_sums_in_another_order_round_otherwise(nesterov, device):
    steps = []
    for m, where in ((torch_module(), "cpu"), (lucid_gpu, device)):
        rng = np.random.default_rng(2)
        weights = [m.zeros(s, device=where).requires_grad_() for s in SHAPES_OF_STEPS]
        for w in weights:
            w.grad = m.tensor(rng.standard_normal(w.shape), dtype=m.float32, device=where)
        m.optim.Muon(weights, lr=1.0, nesterov=nesterov).step()
        steps.append([w.detach().cpu().numpy() for w in weights])
    for mine, theirs in zip(steps[1], steps[0], strict=True):
        assert (mine != theirs).mean() < 0.1
        np.testing.assert_allclose(mine, theirs, atol=4e-3)


SHAPES = [(2, 3, 4), (5,), ()]


def test_adafactor_of_every_rank_agrees_with_torch(device):
    def stepped(m, where):
        rng = np.random.default_rng(1)
        weights = [m.tensor(rng.standard_normal(s)).to(where).requires_grad_() for s in SHAPES]
        settings = {"beta2_decay": -0.5, "eps": (1e-4, 0.1), "d": 2.0, "weight_decay": 0.1}
        optimizer = m.optim.Adafactor(weights, **settings, maximize=True)
        for _ in range(3):
            optimizer.zero_grad()
            sum(((w - 1) ** 2).sum() for w in weights).backward()
            optimizer.step()
        state = optimizer.state_dict()["state"]
        told = {(i, k): v for i, of in state.items() for k, v in of.items()}
        return {k: v.detach().cpu().numpy() for k, v in (*enumerate(weights), *told.items())}

    expected, found = stepped(torch_module(), "cpu"), stepped(lucid_gpu, device)
    assert list(found) == list(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6, err_msg=str(name))


def test_steps_have_singular_values_near_one():
    for m, _ in modules():
        w = m.zeros(6, 4, requires_grad=True)
        w.grad = m.tensor(np.random.default_rng(3).standard_normal((6, 4))).float()
        m.optim.Muon([w], lr=1.0, weight_decay=0.0, adjust_lr_fn="match_rms_adamw").step()
        sizes = m.linalg.svdvals(w.detach()).numpy() / (0.2 * 6**0.5)
        assert (sizes > 0.6).all() and (sizes < 1.3).all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.optim.Muon([m.zeros(3, requires_grad=True)]), "Muon only supports 2D param"),
        (lambda m: m.optim.Muon([m.zeros(3, 2)], lr=-1), "Learning rate should be >= 0 but is: -1"),
        (lambda m: m.optim.Muon([m.zeros(3, 2)], adjust_lr_fn="x"), "function x is not supported"),
        (lambda m: m.optim.Adafactor([m.zeros(3)], d=0.5), "threshold d should be >= 1 but is: 0"),
        (lambda m: m.optim.Adafactor([m.zeros(3)], beta2_decay=1), "beta2_decay should be <= 0"),
        (lambda m: m.optim.Adafactor([m.zeros(3)], eps=(-1, 0)), "epsilon1 should be >= 0"),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(call, words)
