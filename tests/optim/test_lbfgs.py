"""LBFGS beside PyTorch's: losses, weights, evaluations, state."""

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import nn, optim
from tests.oracle import same_error, torch_module

pytestmark = pytest.mark.usefixtures("on_device")

X = np.linspace(-2, 2, 24).reshape(8, 3) ** 2
SETTINGS = [
    {"lr": 0.2, "history_size": 10},
    {"lr": 0.5, "history_size": 3, "max_iter": 5},
    {"line_search_fn": "strong_wolfe", "max_iter": 8},
    {"line_search_fn": "strong_wolfe", "lr": 0.1, "max_iter": 4, "history_size": 4},
    {"line_search_fn": "strong_wolfe", "lr": 50.0, "max_iter": 3},
]


def model(m, device="cpu"):
    weight = m.linspace(-1, 1, 6, dtype=m.float64).reshape(3, 2).to(device)
    return [weight.requires_grad_(), m.zeros(2, dtype=m.float64, device=device, requires_grad=True)]


def descend(m, parameters, optimizer, steps, device="cpu"):
    """A small regression with a regular minimum."""
    x, losses = m.tensor(X).to(device), []

    def closure():
        optimizer.zero_grad()
        weight, bias = parameters
        out = (x @ weight + bias).tanh()
        loss = (out - x[:, :2].sin()).square().mean() + 0.01 * weight.square().sum()
        loss.backward()
        return loss

    for _ in range(steps):
        losses.append(optimizer.step(closure).item())
    return losses


@pytest.mark.parametrize("settings", SETTINGS)
def test_agrees_with_torch(settings, device):
    torch = torch_module()
    theirs, ours = model(torch), model(lucid_gpu, device)
    judge, optimizer = torch.optim.LBFGS(theirs, **settings), optim.LBFGS(ours, **settings)
    expected = descend(torch, theirs, judge, 4)
    np.testing.assert_allclose(descend(lucid_gpu, ours, optimizer, 4, device), expected, rtol=1e-7)
    for p, q in zip(ours, theirs):
        np.testing.assert_allclose(p.detach().cpu(), q.detach(), atol=1e-7)
    mine, other = (o.state_dict()["state"][0] for o in (optimizer, judge))
    assert mine.keys() == other.keys()
    for name in ("func_evals", "n_iter"):
        assert mine[name] == other[name]
    assert [len(mine[k]) for k in ("old_dirs", "ro")] == [len(other[k]) for k in ("old_dirs", "ro")]


def test_state_goes_round():
    first = model(lucid_gpu)
    optimizer = optim.LBFGS(first, max_iter=3)
    descend(lucid_gpu, first, optimizer, 2)
    second = [p.detach().clone().requires_grad_() for p in first]
    again = optim.LBFGS(second)
    again.load_state_dict(optimizer.state_dict())
    assert descend(lucid_gpu, second, again, 2) == descend(lucid_gpu, first, optimizer, 2)


def test_errors_are_torchs():
    def other_search(m):
        optimizer = m.optim.LBFGS([m.nn.Parameter(m.ones(1))], line_search_fn="armijo")
        parameter = optimizer.param_groups[0]["params"][0]

        def closure():
            loss = parameter.square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)

    same_error(other_search, "only 'strong_wolfe' is supported")


@pytest.mark.filterwarnings("error")  # a closure's result may have history
def test_a_parameter_without_gradient_stays():
    used, unused = nn.Parameter(lucid_gpu.ones(2)), nn.Parameter(lucid_gpu.ones(3))
    optimizer = optim.LBFGS([used, unused], line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = used.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert unused.tolist() == [1, 1, 1]
    np.testing.assert_allclose(used.tolist(), 0, atol=1e-6)


def test_without_any_gradient_it_stays_where_it_is():
    def stepped(m):
        weight = m.ones(3, requires_grad=True)
        optimizer = m.optim.LBFGS([weight], tolerance_grad=-float("inf"))
        loss = optimizer.step(lambda: m.tensor(10.0))
        return float(loss), weight.tolist()

    assert stepped(lucid_gpu) == stepped(torch_module()) == (10.0, [1.0, 1.0, 1.0])


@pytest.mark.parametrize("line_search_fn", [None, "strong_wolfe"])
def test_complex_parameters_move_as_in_torch(line_search_fn):
    def stepped(m):
        z = m.tensor([1 + 2j, 3 - 1j, 0.5j], dtype=m.complex128, requires_grad=True)
        x = m.tensor([0.5, -2.0], dtype=m.float64, requires_grad=True)
        unused = m.tensor([1j], dtype=m.complex128, requires_grad=True)
        optimizer = m.optim.LBFGS([unused, z, x], lr=0.1, max_iter=6, line_search_fn=line_search_fn)

        def closure():
            optimizer.zero_grad()
            squares = (z * z.conj()).real * m.tensor([1.0, 2.0, 3.0])
            loss = squares.sum() + (z[:2].imag * x).sum() + x.square().square().sum()
            loss.backward()
            return loss

        losses = [optimizer.step(closure).item() for _ in range(3)]
        assert len(optimizer.state_dict()["state"][0]["d"]) == 10
        return losses, [p.detach().numpy() for p in (z, x, unused)]

    losses, ours = stepped(lucid_gpu)
    expected, theirs = stepped(torch_module())
    np.testing.assert_allclose(losses, expected, rtol=1e-7)
    for p, q in zip(ours, theirs):
        np.testing.assert_allclose(p, q, atol=1e-7)
