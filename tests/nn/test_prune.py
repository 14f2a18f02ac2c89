"""Pruned parameters: masks, what chooses them, one method after another; PyTorch is the judge."""

import importlib

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import nn
from lucid_gpu.nn.utils import prune
from tests.oracle import modules, plain, refuses, same_error

normal = np.random.default_rng(0).standard_normal
WEIGHTS = normal((4, 3)), normal((2, 4))
SCORES = normal((4, 3))


def net_of(m, where="cpu"):
    net = m.nn.Sequential(m.nn.Linear(3, 4), m.nn.Linear(4, 2)).double()
    with m.no_grad():
        for layer, weight in zip(net, WEIGHTS):
            layer.weight.copy_(m.tensor(weight))
            layer.bias.zero_()
    return net.to(where)


def pruning(m):
    return importlib.import_module(f"{m.__name__}.nn.utils.prune")


def both(m, net):
    return [(layer, "weight") for layer in net]


PRUNED = {
    "nothing": lambda m, p, net: p.identity(net[0], "weight"),
    "a part": lambda m, p, net: p.l1_unstructured(net[0], "weight", 0.3),
    "a number": lambda m, p, net: p.l1_unstructured(net[0], name="weight", amount=5),
    "none": lambda m, p, net: p.l1_unstructured(net[0], "weight", 0),
    "all": lambda m, p, net: p.l1_unstructured(net[0], "weight", 1.0),
    "by scores": lambda m, p, net: p.l1_unstructured(
        net[0], "weight", 0.5, importance_scores=m.tensor(SCORES).to(net[0].weight.device)
    ),
    "rows": lambda m, p, net: p.ln_structured(net[0], "weight", 0.5, n=2, dim=0),
    "columns": lambda m, p, net: p.ln_structured(net[0], "weight", 1, 1, -1),
    "by the largest": lambda m, p, net: p.ln_structured(net[0], "weight", 2, float("inf"), 0),
    "random rows": lambda m, p, net: p.random_structured(net[0], "weight", 4, 0),
    "random": lambda m, p, net: p.random_unstructured(net[0], "weight", 12),
    "a mask": lambda m, p, net: p.custom_from_mask(
        net[0], "weight", (m.tensor(SCORES) > 0).to(net[0].weight.device)
    ),
    "together": lambda m, p, net: p.global_unstructured(both(m, net), p.L1Unstructured, amount=0.4),
    "together twice": lambda m, p, net: [
        p.global_unstructured(both(m, net), p.L1Unstructured, amount=n) for n in (0.4, 3)
    ],
    "together by scores": lambda m, p, net: p.global_unstructured(
        both(m, net),
        p.L1Unstructured,
        {(net[0], "weight"): m.tensor(SCORES).to(net[0].weight.device)},
        amount=7,
    ),
    "elements, then elements": lambda m, p, net: [
        p.l1_unstructured(net[0], "weight", n) for n in (0.25, 0.5, 1)
    ],
    "elements, then rows": lambda m, p, net: [
        p.l1_unstructured(net[0], "weight", 0.25),
        p.ln_structured(net[0], "weight", 2, 2, 0),
    ],
    "rows, then rows": lambda m, p, net: [
        p.ln_structured(net[0], "weight", 1, 2, 0),
        p.ln_structured(net[0], "weight", 0.4, 2, 0),
    ],
    "columns, then a mask": lambda m, p, net: [
        p.ln_structured(net[0], "weight", 1, 2, 1),
        p.custom_from_mask(net[0], "weight", (m.tensor(SCORES) > 0).to(net[0].weight.device)),
    ],
}


@pytest.mark.parametrize("name", PRUNED)
def test_agrees_with_torch(name, device):
    found = []
    for m, where in modules(device):
        net = net_of(m, where)
        PRUNED[name](m, pruning(m), net)
        net(m.tensor(SCORES).to(where)).square().sum().backward()
        grads = {k: plain(p.grad) for k, p in net.named_parameters()}
        before = plain(net[0].weight), plain(net[0].weight_mask), list(net.state_dict())
        pruned = pruning(m).is_pruned(net)
        for layer in net:
            if pruning(m).is_pruned(layer):
                assert pruning(m).remove(layer, "weight") is layer
        after = plain(net[0].weight), list(net.state_dict()), pruning(m).is_pruned(net)
        found.append((before, pruned, after, grads))
    ours, *theirs = found
    assert ours[:3] == (theirs or found)[0][:3]
    assert ours[1] and not ours[2][2]
    for key, grad in (theirs or found)[0][3].items():
        np.testing.assert_allclose(ours[3][key], grad, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("amount", [0.25, 3])
def test_random_methods_take_as_many_as_asked_for(amount, device):
    layer = nn.Conv2d(4, 3, 1).to(device)
    assert prune.random_unstructured(layer, "weight", amount) is layer
    assert layer.weight_mask.sum().item() == 9
    prune.random_structured(layer, "weight", 1, dim=0)
    rows = layer.weight_mask.sum((1, 2, 3))
    assert (rows == 0).sum().item() >= 1
    other = prune.random_structured(nn.Linear(4, 8).to(device), "weight", amount, dim=1)
    whole = 1 if amount == 0.25 else 3
    assert sorted(other.weight_mask.sum(0).tolist()) == [0.0] * whole + [8.0] * (4 - whole)


def test_pruned_elements_stay_zero_while_trained(device):
    layer = prune.l1_unstructured(nn.Linear(6, 5).to(device), "weight", 0.5)
    start = layer.weight.detach().clone()
    steps = lucid_gpu.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        steps.zero_grad()
        layer(lucid_gpu.ones(2, 6, device=device)).square().sum().backward()
        steps.step()
    layer(lucid_gpu.ones(2, 6, device=device))
    zero = layer.weight_mask == 0
    assert layer.weight[zero].abs().sum().item() == 0
    assert not lucid_gpu.equal(layer.weight, start)
    # what was there for the pruned elements has no gradient
    assert layer.weight_orig.grad[zero].abs().sum().item() == 0


def test_a_pruned_module_is_saved_and_loaded(device):
    layer, twin = [prune.l1_unstructured(nn.Linear(6, 5).to(device), "weight", 0.5) for _ in "ab"]
    x = lucid_gpu.ones(6, device=device)
    assert not lucid_gpu.allclose(twin(x), layer(x))
    twin.load_state_dict(layer.state_dict())
    assert lucid_gpu.equal(twin(x), layer(x))


class Even(prune.BasePruningMethod):
    """Every second element of what is left."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        mask = default_mask.clone()
        mask.view(-1)[::2] = 0
        return mask


def test_a_method_of_ones_own():
    layer = nn.Linear(4, 2)
    hook = Even.apply(layer, "bias")
    assert isinstance(hook, Even)
    assert layer.bias_mask.tolist() == [0, 1]
    Even.apply(layer, "weight")
    hook = Even.apply(layer, "weight")
    assert layer.weight_mask.reshape(-1).tolist() == [0, 0, 0, 1, 0, 0, 0, 1]
    assert isinstance(hook, prune.PruningContainer)
    assert (len(hook), type(hook[0]), [type(each) for each in hook]) == (2, Even, [Even, Even])
    x = lucid_gpu.ones(3)
    assert Even().prune(x).tolist() == [0, 1, 0]
    assert Even().prune(x, default_mask=lucid_gpu.tensor([1.0, 0, 1])).tolist() == [0, 0, 0]


WRONG = {
    "a word": (
        lambda m, p, layer: p.l1_unstructured(layer, "weight", "half"),
        "Must be int or float",
    ),
    "below 0": (
        lambda m, p, layer: p.l1_unstructured(layer, "weight", -1),
        "should either be a float in",
    ),
    "a part above 1": (
        lambda m, p, layer: p.random_unstructured(layer, "weight", 1.5),
        "amount=1.5",
    ),
    "too many": (
        lambda m, p, layer: p.l1_unstructured(layer, "weight", 13),
        "amount=13 should be smaller than the number of parameters to prune=12",
    ),
    "too many rows": (lambda m, p, layer: p.ln_structured(layer, "weight", 5, 2, 0), "to prune=4"),
    "a vector": (
        lambda m, p, layer: p.ln_structured(layer, "bias", 1, 2, 0),
        "multidimensional tensors",
    ),
    "no such dimension": (
        lambda m, p, layer: p.random_structured(layer, "weight", 1, 2),
        "Invalid index",
    ),
    "no such parameter": (lambda m, p, layer: p.identity(layer, "w"), "w"),
    "not pruned": (lambda m, p, layer: p.remove(layer, "weight"), "has to be pruned before"),
    "other scores": (
        lambda m, p, layer: p.l1_unstructured(layer, "weight", 1, importance_scores=m.ones(2)),
        "importance_scores should have the same shape as parameter weight of",
    ),
    "another mask": (
        lambda m, p, layer: p.custom_from_mask(layer, "weight", m.ones(2)),
        "must match",
    ),
    "rows together": (
        lambda m, p, layer: p.global_unstructured(
            [(layer, "weight")], p.LnStructured, amount=1, n=2
        ),
        'Only "unstructured" PRUNING_TYPE supported',
    ),
    "no list": (
        lambda m, p, layer: p.global_unstructured(3, p.L1Unstructured, amount=1),
        "Iterable",
    ),
    "scores in a list": (
        lambda m, p, layer: p.global_unstructured(
            [(layer, "weight")], p.L1Unstructured, [1], amount=1
        ),
        "importance_scores must be of type dict",
    ),
    "no method": (
        lambda m, p, layer: p.PruningContainer().add_pruning_method(3),
        "not a BasePruning",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_torchs_and_change_nothing(name):
    call, words = WRONG[name]
    same_error(lambda m: call(m, pruning(m), m.nn.Linear(3, 4)), words)
    layer = nn.Linear(3, 4)
    for _ in range(2):  # unpruned, then pruned
        before = {k: v.tolist() for k, v in layer.state_dict().items()}
        with pytest.raises((TypeError, ValueError, IndexError, AttributeError, AssertionError)):
            prune.remove(layer, "w") if name == "not pruned" else call(lucid_gpu, prune, layer)
        assert {k: v.tolist() for k, v in layer.state_dict().items()} == before
        assert layer(lucid_gpu.ones(3)).shape == (4,)
        prune.l1_unstructured(prune.identity(layer, "bias"), "weight", 0.5)


def test_a_kind_that_is_none():
    def strange(m, where):
        p = pruning(m)

        class Strange(p.BasePruningMethod):
            PRUNING_TYPE = "strange"

            def compute_mask(self, t, default_mask):
                return default_mask

        layer = p.identity(m.nn.Linear(2, 2), "weight")
        Strange.apply(layer, "weight")

    refuses(ValueError, "Unrecognized PRUNING_TYPE strange", strange)
