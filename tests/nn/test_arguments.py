"""Constructors given wrong arguments name the class that was called, and what was meant."""

import inspect
import operator
from collections.abc import Callable
from typing import Any

import pytest

import lucid_gpu
from lucid_gpu import nn
from tests.oracle import same_error

CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "missing": (lambda m: m.nn.Conv2d(3, 4), "Conv2d.__init__() missing 1 required"),
    "of a subclass": (lambda m: m.nn.ConvTranspose1d(), "ConvTranspose1d.__init__() missing 3"),
    "nearly": (lambda m: m.nn.Conv2d(3, 4, 3, strides=2), "'strides'; did you mean 'stride'?"),
    "by a name of its own": (
        lambda m: m.optim.Adam([m.ones(1)], learning_rate=0.1),
        "Adam.__init__() got an unexpected keyword argument 'learning_rate'; it takes params, lr, ",
    ),
    "of a row": (lambda m: m.nn.ReLU(inplce=True), "'inplce'; did you mean 'inplace'?"),
    "a base's": (lambda m: m.nn.BatchNorm2d(3, epsilon=1), "BatchNorm2d.__init__() got an unexp"),
    "lazy": (lambda m: m.nn.LazyConv2d(), "LazyConv2d.__init__() missing"),
    "recurrent": (lambda m: m.nn.LSTM(3, 4, num_layer=2), "did you mean 'num_layers'?"),
    "too many": (lambda m: m.nn.Linear(1, 2, True, None, None, 3), "Linear.__init__() takes from"),
    "pool": (lambda m: m.nn.MaxPool2d(), "MaxPool2d.__init__() missing"),
    "optimizer": (
        lambda m: m.optim.SGD([m.ones(1)], 0.1, momentun=0.9),
        "did you mean 'momentum'?",
    ),
    "a base's optimizer": (lambda m: m.optim.AdamW(), "AdamW.__init__() missing 1 required"),
    "scheduler": (
        lambda m: m.optim.lr_scheduler.StepLR(m.optim.SGD([m.ones(1)], 0.1), step_sise=3),
        "StepLR.__init__() got an unexpected keyword argument 'step_sise'; did you mean 'step",
    ),
    "distribution": (lambda m: m.distributions.Normal(0, scal=1), "you mean 'scale'?"),
    "inherited": (
        lambda m: m.distributions.Normal(0.0, 1.0, validate_arg=True),
        "Normal.__init__() got an unexpected keyword argument 'validate_arg'; did you mean",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_class_is_named(name: str) -> None:
    same_error(*CALLS[name])


SETTINGS: dict[str, Callable[[Any], Any]] = {
    "groups": lambda nn: nn.Conv2d(3, 4, 3, groups=2),
    "mode of padding": lambda nn: nn.Conv2d(3, 4, 3, padding_mode="none"),
    "padding": lambda nn: nn.Conv2d(3, 4, 3, padding="some"),
    "stride": lambda nn: nn.Conv2d(3, 4, 3, 2, padding="same"),
    "probability": lambda nn: nn.AlphaDropout(1.5),
    "channels": lambda nn: nn.GroupNorm(2, 3),
    "features": lambda nn: nn.Bilinear(0, 2, 3),
    "cutoffs": lambda nn: nn.AdaptiveLogSoftmaxWithLoss(4, 8, [5, 3]),
    "bounds": lambda nn: nn.Hardtanh(1.0, -1.0),
    "power": lambda nn: nn.MultiMarginLoss(p=3),
    "heads": lambda nn: nn.MultiheadAttention(5, 2),
    "ratio": lambda nn: nn.FractionalMaxPool2d(2, output_ratio=1.5),
    "hidden": lambda nn: nn.LSTM(3, 0),
    "projection": lambda nn: nn.LSTM(3, 4, proj_size=4),
    "nonlinearity": lambda nn: nn.RNN(3, 4, nonlinearity="gelu"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_cannot_be_are_refused_under_the_name_of_the_class(name: str) -> None:
    make = SETTINGS[name]
    kind = make.__code__.co_names[0]
    same_error(lambda m: make(m.nn), f"{kind}: ")


def test_what_else_fails_is_told_as_it_was() -> None:
    class Mine(nn.Conv2d):
        def __init__(self) -> None:
            super().__init__(1, 2, 3)
            int(knd=2)  # type: ignore[call-overload]

    with pytest.raises(TypeError, match=r"^int\(\) got an unexpected|^'knd' is an invalid"):
        Mine()


RELU = nn.ReLU()
FAILING: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "ModuleList.extend": (nn.ModuleList([RELU]), lambda c: c.extend([RELU, 3])),
    "ModuleList.insert": (nn.ModuleList([RELU]), lambda c: c.insert(0, 3)),
    "Sequential.extend": (nn.Sequential(RELU), lambda c: c.extend([RELU, 3])),
    "Sequential.insert": (nn.Sequential(RELU), lambda c: c.insert(0, 3)),
    "ModuleDict.update": (nn.ModuleDict({"a": RELU}), lambda d: d.update({"a": nn.ELU(), "b": 3})),
    "of pairs": (nn.ModuleDict(), lambda d: d.update([("a", RELU), ("b",)])),
}


@pytest.mark.parametrize("name", FAILING)
def test_what_fails_adds_nothing(name: str) -> None:
    modules, change = FAILING[name]
    before = [*modules.named_children()]
    with pytest.raises((TypeError, ValueError, AssertionError)):  # PyTorch asserts some
        change(modules)
    assert [*modules.named_children()] == before


def asked(kind: Any) -> list[list[Any]]:
    """The parameters of a constructor, in the three ways that packages ask for them."""
    spec = inspect.getfullargspec(kind.__init__)
    signatures = inspect.signature(kind), inspect.signature(kind.__init__)
    return [[*spec.args, *spec.kwonlyargs], *[list(s.parameters) for s in signatures]]


@pytest.mark.parametrize("space", ["nn", "optim", "distributions"])
def test_signatures_of_constructors_are_pytorchs(space: str) -> None:
    torch = pytest.importorskip("torch", reason="extra 'oracle' is not installed")
    ours, theirs = getattr(lucid_gpu, space), getattr(torch, space)
    more = {"GRU", "LSTM", "RNN", "NLLLoss2d"}  # decorated there
    more |= {"Parameter", "UninitializedBuffer", "Container"}
    for name in sorted({*dir(ours)} & {*dir(theirs)} - more):
        kind, of_pytorch = getattr(ours, name), getattr(theirs, name)
        if isinstance(kind, type) and "__init__" in vars(of_pytorch):
            assert asked(kind) == asked(of_pytorch), name


def test_signatures_of_constructors() -> None:
    class Own(nn.ReLU):
        def __init__(self, steps: int) -> None:
            super().__init__(inplace=False)

    class LazyOwn(nn.LazyLinear):
        def __init__(self, steps: int) -> None:
            super().__init__(3)

    assert asked(nn.Threshold) == [
        ["self", "threshold", "value", "inplace"],
        ["threshold", "value", "inplace"],
        ["self", "threshold", "value", "inplace"],
    ]
    assert asked(nn.Conv1d)[0][:4] == ["self", "in_channels", "out_channels", "kernel_size"]
    assert asked(nn.LazyConv1d)[0][:3] == ["self", "out_channels", "kernel_size"]
    assert asked(Own) == asked(LazyOwn) == [["self", "steps"], ["steps"], ["self", "steps"]]


MISSPELT = {
    "optim.Adm": "Adam", "nn.Liner": "Linear", "nn.functional.rellu": "relu", "zeross": "zeros",
    "cumsumm": "cumsum", "linalg.nrom": "norm", "utils.data.DataLoder": "DataLoader",
    "distributions.Normall": "Normal", "optim.lr_scheduler.StepLr": "StepLR",
    "sparse.mn": "mm", "autograd.Functon": "Function", "Tensor.summ": "sum",
}  # fmt: skip


@pytest.mark.parametrize("path", MISSPELT)
def test_python_finds_what_was_meant(path: str) -> None:
    """It suggests names of ``dir(error.obj)``, if these are no more than 750."""
    where, _, name = path.rpartition(".")
    namespace = operator.attrgetter(where)(lucid_gpu) if where else lucid_gpu
    with pytest.raises(AttributeError) as raised:
        getattr(namespace, name)
    assert raised.value.name == name and raised.value.obj is namespace
    assert MISSPELT[path] in dir(namespace) and len(dir(namespace)) <= 750
