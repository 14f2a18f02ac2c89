"""functional_call and stack_module_state."""

from __future__ import annotations

from typing import Any

import pytest

import lucid_gpu
from tests.func.comparing import agree, tensor
from tests.oracle import same_error

pytestmark = pytest.mark.usefixtures("on_device")


def model(m: Any) -> Any:
    net = m.nn.Sequential(m.nn.Linear(3, 4), m.nn.Tanh(), m.nn.Linear(4, 2)).double()
    for i, p in enumerate(net.parameters()):
        p.data = tensor(m, *p.shape, seed=i)
    return net


def params(net: Any) -> dict[str, Any]:
    return {name: p.detach() * 2 for name, p in net.named_parameters()}


def tied(m: Any) -> Any:
    class Tied(m.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.a = m.nn.Parameter(m.ones(1))
            self.b = self.a
            self.register_buffer("count", m.zeros(1))

        def forward(self, x: Any) -> Any:
            self.count += 1
            return self.a + 2 * self.b + x

    return Tied()


def test_parameters_are_replaced_for_the_call_only() -> None:
    def call(m: Any) -> Any:
        net, x = model(m), tensor(m, 5, 3)
        own = dict(net.named_parameters())
        found = m.func.functional_call(net, params(net), (x,))
        assert all(net.get_parameter(name) is p for name, p in own.items())
        return [found, m.func.functional_call(net, params(net), x), net(x)]

    agree(call)


def test_some_parameters_and_several_dictionaries() -> None:
    def call(m: Any) -> Any:
        net, x = model(m), tensor(m, 5, 3)
        first, *others = params(net).items()
        one = m.func.functional_call(net, dict([first]), x)
        return [one, m.func.functional_call(net, (dict([first]), dict(others)), x)]

    agree(call)


def test_gradients_by_a_dictionary() -> None:
    def call(m: Any) -> Any:
        net = model(m)

        def loss(p: Any, x: Any) -> Any:
            return (m.func.functional_call(net, p, (x,)) ** 2).sum()

        x = tensor(m, 5, 3)
        each = m.vmap(m.func.grad(loss), (None, 0))(params(net), x)
        return [m.func.grad(loss)(params(net), x), each]

    agree(call)


def test_tied_weights() -> None:
    def call(m: Any) -> Any:
        net, x, zero = tied(m), m.zeros(1), {"a": m.zeros(1)}
        whole = m.func.functional_call(net, zero, x)
        return [whole, m.func.functional_call(net, zero, x, tie_weights=False)]

    agree(call)
    same_error(
        lambda m: m.func.functional_call(tied(m), {"a": m.zeros(1), "b": m.ones(1)}, m.ones(1)),
        "got multiple values for keys ['a', 'b'], which are tied",
    )


def test_buffers_are_written_in_the_dictionary() -> None:
    def call(m: Any) -> Any:
        net, state = tied(m), {"count": m.ones(1) * 10}
        m.func.functional_call(net, state, m.zeros(1))
        return [state["count"], net.count]

    agree(call)


def test_the_module_is_restored_after_an_error() -> None:
    net = model(lucid_gpu)
    own = dict(net.named_parameters())
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        lucid_gpu.func.functional_call(net, params(net), lucid_gpu.ones(2, 7).double())
    assert all(net.get_parameter(name) is p for name, p in own.items())


def test_an_ensemble() -> None:
    def call(m: Any) -> Any:
        nets = [model(m) for _ in range(3)]
        for i, net in enumerate(nets):
            net[0].weight.data = tensor(m, 4, 3, seed=20 + i)
        parameters, buffers = m.func.stack_module_state(nets)
        assert all(p.requires_grad and p.is_leaf for p in parameters.values())

        def run(p: Any, b: Any, x: Any) -> Any:
            return m.func.functional_call(nets[0], (p, b), (x,))

        return m.vmap(run, (0, 0, None))(parameters, buffers, tensor(m, 5, 3))

    agree(call)


def test_wrong_calls_say_what_was_expected() -> None:
    def wrong(*words: str, **options: Any) -> None:
        same_error(
            lambda m: m.func.functional_call(model(m), options["given"](m), m.ones(1), strict=True),
            *words,
        )

    wrong("Error(s) in reparametrizing for Sequential", "Unexpected key(s): 'x'",
          "Missing key(s):", given=lambda m: {"x": m.ones(1)})  # fmt: skip
    wrong("to be a dict, or a list/tuple of dicts, but got <class 'int'>", given=lambda m: 3)
    wrong("appeared in multiple dictionaries", given=lambda m: (params(model(m)),) * 2)
    same_error(
        lambda m: m.func.functional_call(model(m), {"0.weight": 3}, m.ones(1)),
        "3 is not an instance of",
    )
    stacked = "stack_module_state: Expected"
    same_error(lambda m: m.func.stack_module_state([]), f"{stacked} at least one model, got 0.")
    same_error(lambda m: m.func.stack_module_state([model(m), tied(m)]), f"{stacked} all models")
    same_error(lambda m: m.func.stack_module_state([tied(m), tied(m).eval()]), "training/eval mode")
