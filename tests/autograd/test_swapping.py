"""`utils.swap_tensors`, and modules that convert and load by it, beside PyTorch."""

from __future__ import annotations

import pytest

import lucid_gpu
from tests.oracle import torch_module


def swapped(torch, a, b):
    names = id(a), id(b)
    torch.utils.swap_tensors(a, b)
    assert (id(a), id(b)) == names
    return a, b, type(a).__name__, type(b).__name__, a.requires_grad, b.requires_grad


def with_attributes(torch):
    a, b = torch.ones(2), torch.zeros(3, dtype=torch.float64)
    a.note = 1
    return swapped(torch, a, b), hasattr(a, "note"), b.note


def of_classes(torch):
    return swapped(torch, torch.nn.Parameter(torch.ones(2)), torch.zeros(3))


def with_gradients(torch):
    a, b = torch.ones(2, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)
    (a * 3).sum().backward()
    swapped(torch, a, b)
    (a * a).sum().backward()
    (b * b).sum().backward()
    return a.grad, b.grad


def written_through_memory(torch):
    a, b = torch.ones(2), torch.zeros(3)
    same = a.detach()
    torch.utils.swap_tensors(a, b)
    same.add_(1)
    return a, b


def converted(torch):
    model = torch.nn.Linear(2, 2)
    weight, bias = model.weight, model.bias
    torch.nn.init.ones_(weight)
    torch.nn.init.ones_(bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model.double()
    model(torch.ones(1, 2, dtype=torch.float64)).sum().backward()
    optimizer.step()
    return model.weight is weight, weight, bias


def converted_with_its_gradient(torch):
    model = torch.nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    number = id(model.bias.grad)
    model.double()
    return model.bias.grad, id(model.bias.grad) == number


def loaded(torch, assign=False):
    model, other = torch.nn.BatchNorm1d(2), torch.nn.BatchNorm1d(2).double()
    other.running_mean.fill_(3)
    before = model.weight, model.running_mean
    model.load_state_dict(other.state_dict(), assign=assign)
    return model.weight is before[0], model.running_mean is before[1], before, other.weight


def assigned(torch):
    return loaded(torch, True)


def made_there(torch):
    model = torch.nn.Linear(2, 2)
    weight = model.weight
    model.to("meta")
    return model.to_empty(device="cpu").weight is weight, weight.device


def plain(torch, program, kind="swap"):
    turn = getattr(torch.__future__, f"set_{kind}_module_params_on_conversion")
    turn(kind in ("swap", "overwrite"))
    try:
        return repr(program(torch)).replace("lucid_gpu", "torch")
    finally:
        turn(False)


TENSORS = (with_attributes, of_classes, with_gradients)
MODULES = (converted, converted_with_its_gradient, loaded, assigned, made_there)


@pytest.mark.parametrize("program", [*TENSORS, *MODULES], ids=lambda f: f.__name__)
def test_as_in_torch(program):
    assert plain(lucid_gpu, program) == plain(torch_module(), program)


@pytest.mark.parametrize("program", MODULES[:2], ids=lambda f: f.__name__)
def test_modules_get_new_parameters(program):
    ours, theirs = (plain(module, program, "overwrite") for module in (lucid_gpu, torch_module()))
    assert ours == theirs


def test_memory_goes_along():
    a, b = written_through_memory(lucid_gpu)
    assert a.tolist() == [0, 0, 0] and b.tolist() == [2, 2]


@pytest.mark.parametrize("program", [lambda a: a * a, lambda a: a @ a], ids=["fused", "saved"])
def test_a_graph_of_before_is_refused_in_backward(program):
    """PyTorch refuses to swap, which it knows from counts of references."""
    a, b = (lucid_gpu.full((2, 2), float(n), requires_grad=True) for n in (1, 2))
    y = program(a).sum()
    lucid_gpu.utils.swap_tensors(a, b)
    with pytest.raises(RuntimeError, match="poisoned by swap_tensors|modified by an inplace"):
        y.backward()


def test_a_module_does_not_move_between_forward_and_backward():
    lucid_gpu.__future__.set_swap_module_params_on_conversion(True)
    try:
        model = lucid_gpu.nn.Linear(2, 2)
        y = model(lucid_gpu.ones(1, 2)).sum()
        model.double()
    finally:
        lucid_gpu.__future__.set_swap_module_params_on_conversion(False)
    with pytest.raises(RuntimeError, match="poisoned by swap_tensors"):
        y.backward()


def test_tensors_with_views_are_refused():
    a, b = lucid_gpu.ones(2), lucid_gpu.zeros(2)
    view = a.view(1, 2)
    with pytest.raises(RuntimeError, match="Expected use_count of t1 .* it has views"):
        lucid_gpu.utils.swap_tensors(a, b)
    assert view.tolist() == [[1, 1]] and b.tolist() == [0, 0]


def test_what_module_load_returns_is_no_argument():
    class Kept(lucid_gpu.nn.Parameter):
        def module_load(self, other, assign=False):
            return other

    model = lucid_gpu.nn.Linear(2, 2, bias=False)
    model.weight = Kept(lucid_gpu.ones(2, 2))
    lucid_gpu.__future__.set_swap_module_params_on_conversion(True)
    try:
        with pytest.raises(RuntimeError, match="module_load returned one of self or other"):
            model.load_state_dict({"weight": lucid_gpu.zeros(2, 2)})
    finally:
        lucid_gpu.__future__.set_swap_module_params_on_conversion(False)
