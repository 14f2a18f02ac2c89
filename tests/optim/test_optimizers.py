"""Optimizers: fifty steps beside PyTorch's, groups, state, errors."""

import copy
import importlib
from contextlib import nullcontext

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import nn, optim
from tests.oracle import gives, modules, plain, same_error, torch_module

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
    ("RMSprop", {}),
    ("RMSprop", {"momentum": 0.9, "centered": True, "weight_decay": 0.1}),
    ("Adagrad", {"lr": 0.1}),
    ("Adagrad", {"lr_decay": 0.01, "weight_decay": 0.1, "initial_accumulator_value": 0.5}),
    ("Adadelta", {"rho": 0.8, "weight_decay": 0.1}),
    ("Adamax", {"weight_decay": 0.1, "maximize": True}),
    ("NAdam", {"weight_decay": 0.1}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.01, "weight_decay": 0.1}),
    ("RAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("ASGD", {"lr": 0.1, "t0": 5, "lambd": 0.01, "weight_decay": 0.1}),
    ("Rprop", {"lr": 1e-4, "etas": (0.5, 1.1)}),
    ("Adafactor", {}),
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


def form(state):
    """A state dict but for its values."""
    of_parameters = {
        k: {name: (tuple(v.shape), str(v.dtype).rpartition(".")[2]) for name, v in values.items()}
        for k, values in state["state"].items()
    }
    return of_parameters, [(group["params"], set(group)) for group in state["param_groups"]]


def numbers_to_ours(value):
    """PyTorch's tensors as ours, inside dictionaries and lists."""
    if isinstance(value, torch_module().Tensor):
        return lucid_gpu.tensor(value.numpy())
    if isinstance(value, dict):
        return {k: numbers_to_ours(v) for k, v in value.items()}
    return [numbers_to_ours(v) for v in value] if isinstance(value, list) else value


LAST = dict(SETTINGS)  # of each optimizer


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        case if case[1] is LAST[case[0]] else pytest.param(*case, marks=pytest.mark.slow)
        for case in SETTINGS
    ],
)
def test_fifty_steps_agree_with_torch(name, settings, device):
    """Losses, weights, states and their form; then ours goes on from PyTorch's state."""
    torch = torch_module()
    theirs, ours = pair(device)
    judge = getattr(torch.optim, name)(theirs.parameters(), **settings)
    expected = train(torch, theirs, judge, 50)
    optimizer = getattr(optim, name)(ours.parameters(), **settings)
    got = train(lucid_gpu, ours, optimizer, 50, device)
    np.testing.assert_allclose(got, expected, rtol=1e-3)
    assert_equal_weights(ours, theirs)
    assert form(optimizer.state_dict()) == form(judge.state_dict())
    assert repr(optimizer) == repr(judge)

    ours.load_state_dict(numbers_to_ours(dict(theirs.state_dict())))
    again = getattr(optim, name)(ours.parameters())
    again.load_state_dict(numbers_to_ours(judge.state_dict()))
    expected, got = train(torch, theirs, judge, 5), train(lucid_gpu, ours, again, 5, device)
    np.testing.assert_allclose(got, expected, rtol=1e-4)


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize(
    ("name", "settings"), [("ASGD", {}), ("ASGD", {"t0": 2}), ("NAdam", {}), ("AdamW", {})]
)
def test_float64_parameters_are_pytorchs_to_twelve_digits(name, settings, twice):
    """Numbers among states are float32; a parameter that a group has twice moves twice."""
    results = []
    for m in (lucid_gpu, torch_module()):
        p, q = (m.tensor(v, dtype=m.float64, requires_grad=True) for v in ([1.0, 2.0], [0.5]))
        with pytest.warns(UserWarning, match="duplicate parameters") if twice else nullcontext():
            optimizer = getattr(m.optim, name)([p, p, q] if twice else [p, q], **settings)
        for _ in range(6):
            optimizer.zero_grad()
            ((p * p).sum() * q.sin()).sum().backward()
            optimizer.step()
        results.append((p.tolist() + q.tolist(), form(optimizer.state_dict())))
    (ours, own), (theirs, expected) = results
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert own == expected


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


def test_step_changes_parameters_in_place():
    weight = nn.Parameter(lucid_gpu.ones(3))
    seen = weight.detach()
    optimizer = optim.SGD([weight], lr=1.0)
    weight.sum().backward()
    optimizer.step()
    assert weight.tolist() == seen.tolist() == [0, 0, 0]
    assert weight.is_leaf and weight.requires_grad


READERS = {
    "pending": (lambda p: p * 2, False),
    "pending, of detached": (lambda p: p.detach() * 2, False),
    "detached": (lambda p: p.detach(), True),
    "data": (lambda p: p.data, True),
    "view": (lambda p: p.detach()[:], True),
    "alias": (lambda p: p.alias(), False),
}


@pytest.mark.parametrize("name", READERS)
def test_who_reads_parameters_at_a_step(name):
    """What was computed keeps its values, what shares memory sees new ones; each step counts."""
    read, shares = READERS[name]
    parameters = [lucid_gpu.full((3,), float(i + 1), requires_grad=True) for i in range(3)]
    optimizer = optim.SGD(parameters, lr=1.0)
    for p in parameters:
        p.grad = lucid_gpu.ones(3)
    for _ in range(2):
        before, versions = parameters[1].tolist(), [p._version for p in parameters]
        reader = read(parameters[1])
        kept = [v * 2 if name.startswith("pending") else v for v in before]
        optimizer.step()
        assert parameters[1].tolist() == [v - 1 for v in before]
        assert reader.tolist() == (parameters[1].tolist() if shares else kept)
        assert [p._version - v for p, v in zip(parameters, versions)] == [1, 1, 1]


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


@pytest.mark.parametrize(
    ("name", "more"),
    [("SGD", {}), ("Adam", {}), ("Adam", {"amsgrad": True}), ("Adagrad", {})],
)
def test_gradients_flow_through_a_differentiable_step(name, more):
    def meta(m):
        rate = m.tensor(0.3, requires_grad=True, dtype=m.float64)
        start = m.ones(3, dtype=m.float64) * rate
        p = start.clone()
        optimizer = getattr(m.optim, name)(
            [p], lr=0.1, weight_decay=0.5, differentiable=True, **more
        )
        for _ in range(1 if more else 2):  # PyTorch refuses a second one
            p.grad = start * 0.7
            optimizer.step()
        (p * p).sum().backward()
        return rate.grad.item()

    assert meta(lucid_gpu) == pytest.approx(meta(torch_module()), rel=1e-4)  # float32 steps


def test_hooks_and_their_order():
    def calls(m):
        told = []
        weight = m.nn.Parameter(m.ones(1))
        optimizer = m.optim.SGD([weight], lr=1.0)
        optimizers = importlib.import_module(f"{m.__name__}.optim.optimizer")
        handles = [
            optimizers.register_optimizer_step_pre_hook(lambda *_: told.append("all, before")),
            optimizers.register_optimizer_step_post_hook(lambda *_: told.append("all, after")),
            optimizer.register_step_post_hook(lambda o, args, kwargs: told.append("after")),
            optimizer.register_step_pre_hook(lambda o, args, kwargs: told.append(len(args))),
        ]
        optimizer.register_state_dict_pre_hook(lambda o: told.append("saving"))
        optimizer.register_state_dict_post_hook(lambda o, s: {**s, "more": 1})
        optimizer.register_load_state_dict_pre_hook(lambda o, s: told.append(s.pop("more")))
        optimizer.register_load_state_dict_post_hook(lambda o: told.append("loaded"))
        optimizer.step()
        optimizer.load_state_dict(optimizer.state_dict())
        for handle in handles:
            handle.remove()
        optimizer.step()
        return told

    assert calls(lucid_gpu) == calls(torch_module())


def test_a_step_hook_changes_the_arguments():
    optimizer = optim.SGD([nn.Parameter(lucid_gpu.ones(1))])
    optimizer.register_step_pre_hook(lambda o, args, kwargs: ((o, lambda: 7), kwargs))
    assert optimizer.step() == 7


def test_a_users_own_optimizer():
    """Its own `step`, with state of its own, as scripts write it."""

    class Sign(optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    state["step"] = state.get("step", 0) + 1
                    p.data.add_(p.grad.sign(), alpha=-group["lr"])

    weight = nn.Parameter(lucid_gpu.ones(2))
    optimizer, told = Sign([weight], lr=0.5), []
    optimizer.register_step_post_hook(lambda *_: told.append(1))
    (weight * 3).sum().backward()
    optimizer.step()
    assert weight.tolist() == [0.5, 0.5] and told == [1]
    assert optimizer.state_dict()["state"] == {0: {"step": 1}}


def test_an_optimizer_around_another_one_need_not_construct_its_base():
    class Twice(optim.Optimizer):
        def __init__(self, optimizer):
            self.optimizer, self.param_groups = optimizer, optimizer.param_groups

        def step(self, closure=None):
            self.optimizer.step()
            return self.optimizer.step(closure)

    weight = nn.Parameter(lucid_gpu.ones(2))
    weight.grad = lucid_gpu.ones(2)
    Twice(optim.SGD([weight], lr=0.25)).step()
    assert weight.tolist() == [0.5, 0.5]


def test_a_rate_may_be_a_tensor():
    weight = nn.Parameter(lucid_gpu.ones(2))
    optimizer = optim.Adam([weight], lr=lucid_gpu.tensor(0.25))
    weight.sum().backward()
    optimizer.step()
    assert weight.tolist() == pytest.approx([0.75, 0.75])


def parameter(m):
    return [m.nn.Parameter(m.ones(1))]


def whole_numbers(kind, m):
    whole = m.ones(2, dtype=m.int64)
    whole.grad = m.ones(2, dtype=m.int64)
    kind([whole]).step()


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
        (lambda m: m.optim.Adam(parameter(m), betas=(0.9,)), "a pair of betas, got (0.9,)"),
        (lambda m: m.optim.AdamW(parameter(m), weight_decay=-1), "Invalid weight_decay value: -1"),
        (
            lambda m: (lambda p: m.optim.SGD([{"params": p}, {"params": p}]))(parameter(m)),
            "some parameters appear in more than one parameter group",
        ),
        (lambda m: m.optim.RMSprop(parameter(m), alpha=-1), "Invalid alpha value: -1"),
        (lambda m: m.optim.Adadelta(parameter(m), rho=2), "Invalid rho value: 2"),
        (lambda m: m.optim.Adagrad(parameter(m), lr_decay=-1), "Invalid lr_decay value: -1"),
        (lambda m: m.optim.Adamax(parameter(m), eps=-1), "Invalid epsilon value: -1"),
        (lambda m: m.optim.NAdam(parameter(m), momentum_decay=-1), "momentum_decay value: -1"),
        (lambda m: m.optim.RAdam(parameter(m), betas=(0, 1.5)), "parameter at index 1: 1.5"),
        (lambda m: m.optim.ASGD(parameter(m), weight_decay=-1), "weight_decay value: -1"),
        (lambda m: m.optim.Rprop(parameter(m), etas=(2, 3)), "Invalid eta values: 2, 3"),
        (lambda m: m.optim.SGD(parameter(m), lr=m.ones(2)), "Tensor lr must be 1-element"),
        (
            lambda m: m.optim.Adam(parameter(m), fused=True, foreach=True),
            "`fused` and `foreach` cannot be `True` together.",
        ),
        (
            lambda m: m.optim.LBFGS([{"params": parameter(m)}, {"params": parameter(m)}]),
            "LBFGS doesn't support per-parameter options",
        ),
        (
            lambda m: m.optim.SGD([("a", parameter(m)[0]), parameter(m)[0]]),
            "all optimizer params should be with/without names",
        ),
        (
            lambda m: m.optim.SGD(parameter(m)).add_param_group(
                {"params": [("a", parameter(m)[0])]}
            ),
            "cannot add param group with names to the optimizer",
        ),
        (lambda m: whole_numbers(m.optim.SGD, m), "does not support parameters of int64"),
        (lambda m: whole_numbers(m.optim.RMSprop, m), "int64"),
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


def test_sparse_gradients_and_complex_parameters_are_refused():
    weight = nn.Parameter(lucid_gpu.ones(2, 2))
    weight.grad = lucid_gpu.eye(2).to_sparse()
    with pytest.raises(RuntimeError, match="Adam does not support sparse gradients"):
        optim.Adam([weight]).step()
    pair_of_numbers = nn.Parameter(lucid_gpu.ones(2, dtype=lucid_gpu.complex64))
    pair_of_numbers.grad = lucid_gpu.ones(2, dtype=lucid_gpu.complex64)
    with pytest.raises(RuntimeError, match="Adafactor does not support complex parameters"):
        optim.Adafactor([pair_of_numbers]).step()
    assert weight.tolist() == [[1, 1], [1, 1]] and pair_of_numbers.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("Adam", {"amsgrad": True}),
        ("AdamW", {}),
        ("SGD", {"momentum": 0.9, "nesterov": True}),
        ("RMSprop", {"momentum": 0.1, "centered": True}),
        ("Adagrad", {"initial_accumulator_value": 0.1}),
        ("Adadelta", {"weight_decay": 0.1}),
        ("NAdam", {}),
        ("RAdam", {}),
        ("Adamax", {}),
        ("ASGD", {}),
        ("Rprop", {}),
    ],
)
def test_complex_parameters_move_as_in_torch(name, settings):
    torch = torch_module()

    def steps(m):
        p = m.nn.Parameter(m.tensor([1 + 2j, 3 - 1j, 0.5j]))
        optimizer = getattr(m.optim, name)([p], lr=0.1, **settings)
        for _ in range(4):
            optimizer.zero_grad()
            ((p * p.conj()).real * m.tensor([1.0, 2.0, 3.0]) + p.imag**3).sum().backward()
            optimizer.step()
        saved = optimizer.state_dict()["state"][0]
        shapes = {k: (v.shape, v.is_complex()) for k, v in saved.items() if m.is_tensor(v)}
        return p.detach().numpy(), {k: v for k, v in shapes.items() if v[1]}

    ours, kept = steps(lucid_gpu)
    theirs, wanted = steps(torch)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    assert kept == wanted


def test_a_state_holds_what_a_user_puts_there():
    p = nn.Parameter(lucid_gpu.ones(2))
    first, second = (optim.SGD([p], lr=0.1) for _ in range(2))
    first.state["epoch"] = 3
    first.state[p] = [1, 2]
    saved = first.state_dict()
    assert saved["state"] == {"epoch": 3, 0: [1, 2]}
    second.load_state_dict(saved)
    assert second.state["epoch"] == 3 and second.state[p] == [1, 2]


def test_state_dicts_without_newer_settings_load():
    """Those of earlier versions of PyTorch, and of optimizers whose class takes care itself."""

    def run(m, where):
        class Newer(m.optim.Adam):
            def __setstate__(self, state):
                super().__setstate__(state)
                for group in self.param_groups:
                    group.setdefault("caution", "none")

        weight = m.nn.Parameter(m.ones(2))
        found = []
        for kind in (m.optim.SGD, m.optim.RMSprop, Newer):
            optimizer = kind([weight], lr=0.1)
            state = optimizer.state_dict()
            for name in ("maximize", "amsgrad", "foreach", "differentiable", "nesterov"):
                state["param_groups"][0].pop(name, None)
            optimizer.load_state_dict(state)
            weight.grad = m.ones(2)
            optimizer.step()
            group = optimizer.param_groups[0]
            found.append([[round(x, 5) for x in weight.tolist()], sorted(group)])
            found.append([group[name] for name in ("maximize", "foreach", "differentiable")])
        return found

    found = [plain(run(m, where)) for m, where in modules()]
    assert all(f == found[0] for f in found)
    assert "caution" in found[0][-2][1]


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", "RMSprop", "Adagrad", "Rprop", "ASGD"])
def test_states_lie_in_memory_as_their_parameters(name, tmp_path):
    """Channels last, also once they were saved; so does a gradient that is added up."""
    settings = {"momentum": 0.9} if name == "SGD" else {}
    layer = lucid_gpu.nn.Conv2d(3, 4, 3).to(memory_format=lucid_gpu.channels_last)
    optimizer = getattr(lucid_gpu.optim, name)(layer.parameters(), lr=0.1, **settings)
    for _ in range(2):
        layer(lucid_gpu.ones(2, 3, 5, 5)).square().sum().backward()
        layer(lucid_gpu.ones(2, 3, 5, 5)).square().sum().backward()
        assert layer.weight.grad.stride() == layer.weight.stride() == (27, 1, 9, 3)
        optimizer.step()
        optimizer.zero_grad()
    lucid_gpu.save(optimizer.state_dict(), tmp_path / "state")
    saved = lucid_gpu.load(tmp_path / "state")["state"][0]
    for states in (optimizer.state[layer.weight], saved):
        laid = [s.stride() for s in states.values() if getattr(s, "ndim", 0) == 4]
        assert laid and all(strides == (27, 1, 9, 3) for strides in laid)


LISTED = {
    "SparseAdam": {},
    "SparseAdam up": {"maximize": True},
    "SGD": {"momentum": 0.9},
    "Adagrad": {},
}


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("name", LISTED)
def test_gradients_that_list_rows_elements_or_nothing(name, dims, device):
    """What a gradient does not list stays, in the parameter and in its moments."""

    def run(m, device):
        def gradient(*listed):
            index = m.tensor(listed, dtype=m.int64, device=device).reshape(-1, 2).T[:dims]
            shape = (len(listed), 3)[: 3 - dims]
            values = m.ones(shape, device=device) * (1 + len(listed))
            return m.sparse_coo_tensor(index, values, (4, 3), device=device)

        p = m.nn.Parameter(m.arange(12.0, device=device).reshape(4, 3))
        optimizer = getattr(m.optim, name.split()[0])([p], lr=0.1, **LISTED[name])
        found = []
        for listed in ((), ((0, 1), (2, 1)), (), ((2, 2),), ((1, 0), (1, 0), (3, 2)), ()):
            p.grad = gradient(*listed)
            optimizer.step()
            found.append((p.detach() * 1e4).round())
        return found

    gives(run(lucid_gpu, device), run, device)


@pytest.mark.parametrize("case", ["plain", "recorded", "sparse", "view", "half", "pending"])
@pytest.mark.parametrize("of", ["optimizer", "module"])
def test_gradients_that_are_zeroed_are_the_same_objects(case, of, device):
    def run(m, device):
        layer = m.nn.Embedding(4, 3, sparse=case == "sparse", device=device)
        layer = layer.half() if case == "half" else layer
        p = layer.weight
        if case == "recorded":
            (p * p * p).sum().backward(create_graph=True)
        elif case == "view":
            p.grad = m.ones(5, 3, device=device)[1:]
        elif case == "pending":
            p.grad = m.ones(4, 3, device=device) * 3
        else:
            layer(m.tensor([0, 1], device=device)).sum().backward()
        gradient = p.grad
        owner = layer if of == "module" else m.optim.SGD(layer.parameters(), lr=0.1)
        owner.zero_grad(set_to_none=False)
        same = p.grad is gradient
        if case != "sparse":
            layer(m.tensor([0, 1], device=device)).sum().backward()
        seen = gradient.to_dense() if case == "sparse" else gradient
        return same, p.grad is gradient, gradient.requires_grad, gradient.grad_fn is None, seen

    gives(run(lucid_gpu, device), run, device)
