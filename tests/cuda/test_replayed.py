"""Steps that become graphs by themselves give the bits of plain steps, whatever changes between."""

from __future__ import annotations

import warnings
from collections.abc import Callable
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
        found.append([*results, numbers([t.model.state_dict(), gradients])])
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


REFUSED = {
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
    with pytest.warns(UserWarning, match="a float that changes, beside tensors of other types"):
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
