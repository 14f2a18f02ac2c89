"""Optimizers: fifty steps beside PyTorch's, groups, state, errors."""

import copy

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import nn, optim
from tests.oracle import same_error, torch_module

pytestmark = pytest.mark.usefixtures("on_device")

SETTINGS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("Adam", {}),
    ("Adam", {"lr": 0.01, "weight_decay": 0.1, "amsgrad": True}),
    ("Adam", {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("AdamW", {"lr": 0.01}),
    ("AdamW", {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6, "amsgrad": True}),
    ("AdamW", {"lr": 0.01, "maximize": True}),
]
X = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
Y = np.array([0, 1, 2, 1, 0])


def pair(device="cpu"):
    """A model of PyTorch's, and ours with the same weights."""
    torch = torch_module()
    torch.manual_seed(0)
    theirs, ours = (
        m.nn.Sequential(m.nn.Linear(6, 8), m.nn.Tanh(), m.nn.Linear(8, 3))
        for m in (torch, lucid_gpu)
    )
    ours.load_state_dict({k: lucid_gpu.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    return theirs, ours.to(device)


def train(m, model, optimizer, steps, device="cpu"):
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        x, y = m.tensor(X).to(device), m.tensor(Y).to(device)
        loss = m.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def assert_equal_weights(ours, theirs):
    for p, q in zip(ours.parameters(), theirs.parameters()):
        mine, other = p.detach().cpu().numpy(), q.detach().numpy()
        np.testing.assert_allclose(mine, other, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(("name", "settings"), SETTINGS)
def test_fifty_steps_agree_with_torch(name, settings, device):
    torch = torch_module()
    theirs, ours = pair(device)
    expected = train(torch, theirs, getattr(torch.optim, name)(theirs.parameters(), **settings), 50)
    optimizer = getattr(optim, name)(ours.parameters(), **settings)
    got = train(lucid_gpu, ours, optimizer, 50, device)
    np.testing.assert_allclose(got, expected, rtol=1e-3)
    assert_equal_weights(ours, theirs)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_groups_and_frozen_parameters_agree_with_torch(name):
    results = []
    for m, model in zip((torch_module(), lucid_gpu), pair()):
        model[0].bias.requires_grad_(False)
        optimizer = getattr(m.optim, name)(
            [{"params": model[0].parameters(), "lr": 0.05}, {"params": model[2].weight}],
            lr=0.01,
            weight_decay=0.1,
        )
        optimizer.add_param_group({"params": [model[2].bias], "weight_decay": 0})
        train(m, model, optimizer, 5)
        for group in optimizer.param_groups:
            group["lr"] *= 0.5
        model[2].weight.requires_grad_(False)  # a parameter that falls behind the others
        train(m, model, optimizer, 3)
        model[2].weight.requires_grad_(True)
        train(m, model, optimizer, 5)
        results.append(model)
    assert_equal_weights(results[1], results[0])


@pytest.mark.parametrize(("name", "settings"), SETTINGS)
def test_state_goes_round(name, settings, tmp_path):
    _, first = pair()
    optimizer = getattr(optim, name)(first.parameters(), **settings)
    train(lucid_gpu, first, optimizer, 3)
    lucid_gpu.save([first.state_dict(), optimizer.state_dict()], tmp_path / "state")

    weights, state = lucid_gpu.load(tmp_path / "state")
    _, second = pair()
    second.load_state_dict(weights)
    again = getattr(optim, name)(second.parameters(), lr=123.0)
    again.load_state_dict(state)
    assert train(lucid_gpu, second, again, 3) == train(lucid_gpu, first, optimizer, 3)


def test_state_dict_has_torchs_form():
    theirs, ours = pair()
    forms = []
    for m, model in ((torch_module(), theirs), (lucid_gpu, ours)):
        optimizer = m.optim.Adam(model.parameters(), amsgrad=True)
        train(m, model, optimizer, 2)
        state = optimizer.state_dict()
        forms.append(
            (
                {k: sorted(v) for k, v in state["state"].items()},
                [group["params"] for group in state["param_groups"]],
                float(state["state"][0]["step"]),
            )
        )
    assert forms[0] == forms[1]


def test_torchs_state_loads():
    torch = torch_module()
    theirs, ours = pair()
    optimizer = torch.optim.Adam(theirs.parameters(), lr=0.01)
    train(torch, theirs, optimizer, 3)
    state = optimizer.state_dict()
    state["state"] = {
        k: {n: lucid_gpu.tensor(t.numpy()) for n, t in v.items()} for k, v in state["state"].items()
    }
    ours.load_state_dict({k: lucid_gpu.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    mine = optim.Adam(ours.parameters())
    mine.load_state_dict(state)
    train(torch, theirs, optimizer, 5)
    train(lucid_gpu, ours, mine, 5)
    assert_equal_weights(ours, theirs)


def test_step_changes_parameters_in_place():
    weight = nn.Parameter(lucid_gpu.ones(3))
    seen = weight.detach()
    optimizer = optim.SGD([weight], lr=1.0)
    weight.sum().backward()
    optimizer.step()
    assert weight.tolist() == seen.tolist() == [0, 0, 0]
    assert weight.is_leaf and weight.requires_grad


def test_in_place_step_is_noticed_by_a_pending_backward():
    weight = nn.Parameter(lucid_gpu.ones(2, 2))
    loss = (lucid_gpu.ones(2, 2) @ weight @ weight).sum()
    weight.grad = lucid_gpu.ones(2, 2)
    optim.SGD([weight]).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_non_contiguous_parameters():
    weight = lucid_gpu.arange(6.0).reshape(2, 3).t().requires_grad_()
    assert not weight.is_contiguous()
    optimizer = optim.Adam([weight], lr=0.5)
    before = weight.detach().clone()
    weight.grad = lucid_gpu.ones(3, 2)
    optimizer.step()
    assert lucid_gpu.allclose(weight.detach(), before - 0.5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_types(dtype):
    weight = nn.Parameter(lucid_gpu.ones(3, dtype=getattr(lucid_gpu, dtype)))
    optimizer = optim.AdamW([weight], lr=0.5)
    weight.square().sum().backward()
    optimizer.step()
    assert weight.dtype is getattr(lucid_gpu, dtype)
    np.testing.assert_allclose(weight.detach().double().numpy(), 0.495, rtol=1e-2)


def test_many_parameters_are_one_kernel():
    weights = [nn.Parameter(lucid_gpu.ones(n)) for n in (3, 1000, 70_000)]
    optimizer = optim.Adam(weights)
    for w in weights:
        w.grad = lucid_gpu.ones_like(w)
    optimizer.step()
    with lucid_gpu.profiler.record() as log:
        optimizer.step()
    if weights[0].device.type == "cpu":
        assert len(log.kernels) == 1


def test_eager_mode_gives_the_same():
    results = []
    for mode in (False, True):
        _, model = pair()
        with lucid_gpu.fusion.eager(mode):
            train(lucid_gpu, model, optim.AdamW(model.parameters(), lr=0.1), 3)
        results.append(model)
    assert_equal_weights(*results)


def test_closure():
    weight = nn.Parameter(lucid_gpu.ones(1))
    optimizer = optim.SGD([weight], lr=0.25)

    def closure():
        optimizer.zero_grad()
        loss = weight.square().sum()
        loss.backward()
        return loss

    with lucid_gpu.no_grad():
        assert optimizer.step(closure).item() == 1
    assert weight.item() == 0.5


def test_zero_grad():
    weight = nn.Parameter(lucid_gpu.ones(2))
    optimizer = optim.SGD([weight])
    weight.sum().backward()
    optimizer.zero_grad(set_to_none=False)
    assert weight.grad.tolist() == [0, 0]
    optimizer.zero_grad()
    assert weight.grad is None
    optimizer.step()  # nothing to do


def test_named_parameters():
    layer = nn.Linear(2, 1)
    optimizer = optim.SGD(layer.named_parameters(), lr=0.1)
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    assert optimizer.param_groups[0]["params"][0] is layer.weight


def test_deepcopy_of_a_state_dict():
    _, model = pair()
    optimizer = optim.Adam(model.parameters())
    train(lucid_gpu, model, optimizer, 1)
    state = copy.deepcopy(optimizer.state_dict())
    before = state["state"][0]["exp_avg"].tolist()
    train(lucid_gpu, model, optimizer, 1)
    assert state["state"][0]["exp_avg"].tolist() == before


def parameter(m):
    return [m.nn.Parameter(m.ones(1))]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.optim.SGD([]), "optimizer got an empty parameter list"),
        (lambda m: m.optim.SGD(m.ones(1)), "should be an iterable of Tensors or dicts"),
        (lambda m: m.optim.SGD([1]), "optimizer can only optimize Tensors"),
        (lambda m: m.optim.SGD([parameter(m)[0] * 2]), "can't optimize a non-leaf Tensor"),
        (lambda m: m.optim.SGD(parameter(m), lr=-1), "Invalid learning rate: -1"),
        (lambda m: m.optim.SGD(parameter(m), momentum=-1), "Invalid momentum value: -1"),
        (lambda m: m.optim.SGD(parameter(m), weight_decay=-1), "Invalid weight_decay value: -1"),
        (
            lambda m: m.optim.SGD(parameter(m), nesterov=True),
            "Nesterov momentum requires a momentum and zero dampening",
        ),
        (lambda m: m.optim.Adam(parameter(m), lr=-1), "Invalid learning rate: -1"),
        (lambda m: m.optim.Adam(parameter(m), eps=-1), "Invalid epsilon value: -1"),
        (lambda m: m.optim.Adam(parameter(m), betas=(1.0, 0.9)), "beta parameter at index 0: 1.0"),
        (lambda m: m.optim.AdamW(parameter(m), betas=(0.9, -1)), "beta parameter at index 1: -1"),
        (lambda m: m.optim.AdamW(parameter(m), weight_decay=-1), "Invalid weight_decay value: -1"),
        (
            lambda m: (lambda p: m.optim.SGD([{"params": p}, {"params": p}]))(parameter(m)),
            "some parameters appear in more than one parameter group",
        ),
        (lambda m: m.optim.SGD(parameter(m)).add_param_group(3), "param_group must be a dict"),
        (
            lambda m: m.optim.SGD(parameter(m)).load_state_dict({"state": {}, "param_groups": []}),
            "loaded state dict has a different number of parameter groups",
        ),
        (
            lambda m: m.optim.SGD(parameter(m)).load_state_dict(
                m.optim.SGD(parameter(m) + parameter(m)).state_dict()
            ),
            "contains a parameter group that doesn't match the size of optimizer's group",
        ),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(call, words)
