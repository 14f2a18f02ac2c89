"""Steps that become graphs by themselves give the bits of plain steps, whatever changes between."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import lucid_gpu as torch
from lucid_gpu import nn
from lucid_gpu.launch import Executor
from lucid_gpu.nn import functional as F

pytestmark = [
    pytest.mark.usefixtures("on_device"),
    pytest.mark.skipif(
        Executor.host_cuda, reason="graphs hold NumPy's calls, not CUDA C on the host"
    ),
]


@pytest.fixture(autouse=True)
def with_cublas(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--standin"):
        pytest.skip("a product in a graph calls cuBLAS, which the stand-in for CuPy has not")


class Training:
    """A small model with its optimizer; its step takes a batch and a weight of the loss."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 1)
        )
        self.optimizer: Any = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.rate = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        self.early: Any = None
        self.draws = torch.Generator(torch.get_default_device()).manual_seed(3)

    def step(self, x: Any, y: Any, weight: float = 1.0) -> Any:
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.model(x), y) * weight
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return {"loss": loss, "mean": [x.mean(), len(x)]}

    def adds(self, x: Any, y: Any) -> Any:
        loss = F.mse_loss(self.model(x), y)
        loss.backward()
        return loss

    def batch(self, size: int = 6) -> tuple[Any, Any]:
        x = torch.randn(size, 4, generator=self.draws)
        return x, x.sum(1, keepdim=True)


def numbers(tree: Any) -> list[Any]:
    flat = torch.utils._pytree.tree_leaves(tree)
    return [x.detach().cpu().numpy().tobytes() if isinstance(x, torch.Tensor) else x for x in flat]


def change_nothing(t: Training, step: Any, i: int) -> Any:
    return step(*t.batch())


def change_size(t: Training, step: Any, i: int) -> Any:
    return step(*t.batch(6 if i % 4 else 3))


def change_number(t: Training, step: Any, i: int) -> Any:
    return step(*t.batch(), weight=1.0 + i / 7)


def change_number_late(t: Training, step: Any, i: int) -> Any:
    return step(*t.batch(), weight=1.0 if i < 5 else 0.1 * i)


def change_rate(t: Training, step: Any, i: int) -> Any:
    result = step(*t.batch())
    t.rate.step()
    return result


def change_training(t: Training, step: Any, i: int) -> Any:
    t.model.train(not 4 <= i < 8)
    return step(*t.batch())


def freeze(t: Training, step: Any, i: int) -> Any:
    t.model[0].weight.requires_grad_(not 5 <= i < 9)
    return step(*t.batch())


def give_other_memory(t: Training, step: Any, i: int) -> Any:
    if i == 6:
        t.model[0].weight.data = t.model[0].weight.detach() * 2
    return step(*t.batch())


def load(t: Training, step: Any, i: int) -> Any:
    if i == 6:
        t.model.load_state_dict({k: v * 2 for k, v in t.model.state_dict().items()})
    return step(*t.batch())


def drop_gradients(t: Training, step: Any, i: int) -> Any:
    if i % 3 == 0:
        t.optimizer.zero_grad()
    return step(*t.batch())


def without_gradients(t: Training, step: Any, i: int) -> Any:
    if i % 3:
        return step(*t.batch())
    with torch.no_grad():
        return t.model(t.batch()[0])


def change_number_once(t: Training, step: Any, i: int) -> Any:
    return step(*t.batch(), weight=2.0 if i == 2 else 1.0)


def change_number_to_none_or_zero(t: Training, step: Any, i: int) -> Any:
    return step(*t.batch(), weight={4: 0.0, 5: -0.0, 10: math.nan, 11: math.inf}.get(i, 1.0))


def load_optimizer(t: Training, step: Any, i: int) -> Any:
    if i == 6:
        t.optimizer.load_state_dict(t.early)
    result = step(*t.batch())
    if i == 1:
        t.early = copy.deepcopy(t.optimizer.state_dict())
    return result


def forget_state(t: Training, step: Any, i: int) -> Any:
    if i == 6:
        t.optimizer.state.clear()
    return step(*t.batch())


def add_group(t: Training, step: Any, i: int) -> Any:
    if i == 0:
        del t.optimizer.param_groups[0]["params"][:2]
    if i == 6:
        t.optimizer.add_param_group({"params": [*t.model[0].parameters()], "lr": 0.5})
    return step(*t.batch())


def replace_module(t: Training, step: Any, i: int) -> Any:
    if i == 6:
        t.model[2] = nn.ReLU()
    return step(*t.batch())


def hook(t: Training, step: Any, i: int) -> Any:
    if i == 6:
        t.model[0].register_forward_hook(lambda module, args, result: result * 2)
    return step(*t.batch())


def change_strides(t: Training, step: Any, i: int) -> Any:
    x, y = t.batch()
    x = x.round()  # whole numbers: their mean does not depend on the order, which may be another
    return step(x[:1].expand(6, 4) if i % 2 else x.repeat(1, 2)[:, 2:6], y)


CHANGES: dict[Callable[..., Any], int] = {  # and how many graphs there are in the end
    change_nothing: 1,
    change_size: 2,
    change_number: 1,
    change_number_late: 1,
    change_rate: 1,
    change_training: 2,
    freeze: 4,  # a gradient that is there, or not, is part of what a graph stands on
    give_other_memory: 2,
    load: 1,
    change_number_once: 1,
    change_number_to_none_or_zero: 1,
    load_optimizer: 2,
    forget_state: 2,
    add_group: 2,
    replace_module: 2,
    hook: 2,
    change_strides: 2,
    drop_gradients: 2,
    without_gradients: 1,
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_steps_are_plain_ones_to_the_bit(change: Any) -> None:
    found = []
    for captured in (False, True):
        t = Training()
        step: Any = torch.cuda.captured(t.step) if captured else t.step
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            results = [numbers(change(t, step, i)) for i in range(12)]
        gradients = [p.grad for p in t.model.parameters()]
        # of two graphs the second may round elsewhere, for what reads memory of the first is there
        states = None if change is change_training else t.optimizer.state_dict()
        found.append([*results, numbers([t.model.state_dict(), gradients, states])])
    assert found[0] == found[1]
    assert step.graphs == CHANGES[change]


def test_gradients_that_add_up_and_are_dropped_outside() -> None:
    found = []
    for captured in (False, True):
        t = Training()
        adds: Any = torch.cuda.captured(t.adds) if captured else t.adds
        losses = []
        for i in range(15):
            losses += numbers(adds(*t.batch()))
            if i % 3 == 2:
                t.optimizer.step()
                t.optimizer.zero_grad()
        found.append([losses, numbers(t.model.state_dict())])
    assert found[0] == found[1]
    assert adds.graphs


def test_results_of_earlier_replays_stay() -> None:
    t = Training()
    step: Any = torch.cuda.captured(t.step)
    kept = [step(*t.batch())["loss"] for _ in range(6)]
    values = [loss.item() for loss in kept]
    step(*t.batch())
    assert [loss.item() for loss in kept] == values
    assert len(set(values)) == 6
    assert not kept[-1].requires_grad


def test_arguments_and_parameters_that_are_returned_stay_themselves() -> None:
    weight = torch.ones(2)
    step = torch.cuda.captured(lambda x, n: (x, weight, x[:1], n, None))
    for i in range(5):
        x = torch.full((2,), float(i))
        same, w, part, *others = step(x, 0.5 * i)
        assert same is x and w is weight and others == [0.5 * i, None]
        assert part.tolist() == [i]
    assert step.graphs == 1


def test_a_transformed_call_runs_as_it_is() -> None:
    step = torch.cuda.captured(torch.sin)
    for _ in range(4):
        assert torch.func.vmap(step)(torch.ones(3, 2)).equal(torch.ones(3, 2).sin())
    assert not step.graphs


def test_an_argument_that_is_no_tensor_has_graphs_of_its_own() -> None:
    @torch.cuda.captured
    def powers(x: Any, n: int, *, double: bool = False) -> Any:
        return x**n * (2 if double else 1)

    for n in (2, 3):
        for double in (False, True):
            for _ in range(4):
                x = torch.rand(3)
                assert powers(x, n, double=double).equal(x**n * (1 + double))
    assert powers.graphs == 4


def test_a_method_is_captured() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = nn.Parameter(torch.tensor(3.0))

        @torch.cuda.captured
        def scaled(self, x: Any) -> Any:
            return (self.factor * x).detach()

    module = Scaled()
    for i in range(5):
        assert module.scaled(torch.full((2,), float(i))).tolist() == [3.0 * i] * 2
    assert Scaled.scaled.graphs == 1


# --- what cannot be replayed: one warning, and the step as it is ----------------------------------


def reads(x: Any) -> Any:
    return x * x.sum().item()


def branches(x: Any) -> Any:
    return x if x.sum() > 0 else -x


def writes(x: Any) -> Any:
    return x.add_(1)


def wants_gradients(x: Any) -> Any:
    return x * torch.ones(3, requires_grad=True)


def depends_on_values(x: Any) -> Any:
    return x[x > 0.5]


def writes_unseen(x: Any) -> Any:
    return x.data.add_(1)


def gives_other_memory(x: Any) -> Any:
    x.data = x * 2
    return x.sum()


def gives_a_gradient(x: Any) -> Any:
    x.requires_grad_()
    x.square().sum().backward()
    x.requires_grad_(False)
    return x.grad


def gives_an_object(x: Any) -> Any:
    return SimpleNamespace(x=x)


REFUSED = {
    writes_unseen: "a write to an argument",
    gives_other_memory: "a write to an argument",
    reads: r"reads is not replayed as a graph but run: item\(\) cannot be captured in a graph, "
    r"at .*test_replayed.py:\d+",
    branches: r"item\(\) cannot be captured in a graph, at .*test_replayed.py:\d+",
    writes: "a write to an argument at .*test_replayed.py:.*return the new value instead",
    wants_gradients: r"a result that requires grad at .*call backward\(\)",
    depends_on_values: "an index that is a mask cannot be captured",
}


@pytest.mark.parametrize("function", REFUSED, ids=lambda f: f.__name__)
def test_what_a_graph_cannot_hold_runs_on_with_one_warning(function: Any) -> None:
    step: Any = torch.cuda.captured(function)
    with pytest.warns(UserWarning, match=REFUSED[function]) as warned:
        for i in range(6):
            x = torch.rand(3, generator=torch.Generator(torch.get_default_device()).manual_seed(i))
            y = x.clone()
            assert step(x).equal(function(y))
            assert x.equal(y)
    assert len(warned) == 1
    assert not step.graphs


def test_a_refused_step_has_its_gradients() -> None:
    found = []
    for captured in (False, True):
        t = Training()

        def update(t: Training = t) -> None:
            t.optimizer.step()
            t.optimizer.zero_grad()

        step: Any = torch.cuda.captured(update) if captured else update
        with warnings.catch_warnings(record=True) as warned:
            for _ in range(5):
                t.adds(*t.batch())
                step()
        found.append(numbers([t.model.state_dict(), t.optimizer.state_dict()]))
    assert found[0] == found[1]
    assert "a gradient of an earlier step" in str(warned[-1].message)


def test_buffers_that_are_replaced() -> None:
    norm = nn.BatchNorm1d(2, affine=False).eval()
    step = torch.cuda.captured(norm)
    for i in range(6):
        if i == 4:
            norm.running_mean = torch.ones(2)
        assert step(torch.ones(1, 2)).equal(norm(torch.ones(1, 2)))
    assert step.graphs == 2


def test_parameters_of_modules_within_the_called() -> None:
    attention = nn.MultiheadAttention(4, 1)
    step = torch.cuda.captured(lambda x: attention(x, x, x)[0].detach())
    for i in range(6):
        x = torch.rand(3, 4)
        if i == 4:
            attention.out_proj.weight.data = torch.eye(4)
        assert step(x).equal(attention(x, x, x)[0])


def test_arguments_that_are_given_a_gradient() -> None:
    step = torch.cuda.captured(gives_a_gradient)
    with pytest.warns(UserWarning, match="a gradient of an argument"):
        for _ in range(5):
            x = torch.rand(3)
            assert step(x) is x.grad and x.grad.equal(2 * x)


def test_results_that_are_objects() -> None:
    step = torch.cuda.captured(gives_an_object)
    with pytest.warns(UserWarning, match="a result that is SimpleNamespace"):
        for _ in range(5):
            x = torch.rand(3)
            assert step(x).x is x


def test_arguments_in_memory_that_the_step_writes() -> None:
    total = torch.zeros(4)

    @torch.cuda.captured
    def step(x: Any, part: Any) -> Any:
        total.add_(x)
        return part.sum()

    with pytest.warns(UserWarning, match="an argument in memory that the step writes"):
        for i in range(6):
            part = total[1:] if i > 3 else torch.ones(3)
            assert step(torch.ones(4), part) == (3 * (i + 1) if i > 3 else 3)


def test_a_step_that_changes_settings() -> None:
    t = Training()

    @torch.cuda.captured
    def step(x: Any, y: Any) -> Any:
        t.optimizer.param_groups[0]["lr"] *= 0.5
        return t.step(x, y)

    with pytest.warns(UserWarning, match="a change of an optimizer's settings"):
        for i in range(5):
            step(*t.batch())
            assert t.optimizer.param_groups[0]["lr"] == 0.01 * 0.5 ** (i + 1)


@pytest.mark.parametrize(
    "function",
    [lambda x, w: x * (1 - w), lambda x, w: (x.double() * w).float(), lambda x, w: x * w**2],
)
def test_floats_of_which_arithmetic_has_other_bits(function: Any) -> None:
    step = torch.cuda.captured(function)
    with pytest.warns(UserWarning, match="a float that changes, in more than products"):
        for i in range(5):
            x = torch.rand(9)
            assert step(x, i / 7).equal(function(x, i / 7))


def test_arguments_that_cannot_be_keys() -> None:
    step = torch.cuda.captured(lambda x, y: x + y)
    with pytest.warns(UserWarning, match="an argument that requires grad at"):
        assert step(torch.ones(2, requires_grad=True), 1).requires_grad
    step.reset()
    with pytest.warns(UserWarning, match="an argument that is ndarray at .*give it as a tensor"):
        step(torch.ones(2), torch.ones(2).cpu().numpy()[:1].copy())
    with pytest.raises(TypeError, match="takes the function of a step, but got int"):
        torch.cuda.captured(3)


def test_many_kinds_of_calls_end_in_plain_ones() -> None:
    step = torch.cuda.captured(lambda x, n: x * n)
    with pytest.warns(UserWarning, match="a call of another kind after 8 graphs"):
        for n in range(9):
            for _ in range(3):
                assert step(torch.ones(2), n).tolist() == [n, n]


def test_a_float_beside_other_types_is_not_made_a_tensor() -> None:
    step = torch.cuda.captured(lambda x, w: x * w)
    with pytest.warns(UserWarning, match="a float that changes, in more than products"):
        for i in range(5):
            assert step(torch.ones(2, dtype=torch.float64), 0.1 * i).tolist() == [0.1 * i] * 2


def test_an_error_of_the_step_is_its_own() -> None:
    calls = []

    @torch.cuda.captured
    def step(x: Any) -> Any:
        calls.append(1)
        if len(calls) > 2:
            raise KeyError("mine")
        return x + 1

    step(torch.ones(1))
    step(torch.ones(1))
    with pytest.warns(UserWarning, match="KeyError in a capture"), pytest.raises(KeyError):
        step(torch.ones(1))
