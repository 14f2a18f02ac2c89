"""``__torch_function__``: subclasses, objects, modes; types, values and gradients beside torch."""

from __future__ import annotations

import copy
import importlib
import inspect
import itertools
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import overrides as public
from lucid_gpu.tape import overrides
from tests.oracle import torch_module

try:
    MODULES = [lucid_gpu, importlib.import_module("torch")]
except ImportError:
    MODULES = [lucid_gpu]


@pytest.fixture(autouse=True)
def nobody_after() -> Iterator[None]:
    """Leave Tensor as it was: what a test defines is asked in that test only."""
    yield
    overrides._switch.for_ever = False
    overrides._turn()
    assert not overrides.handling and not overrides.state.function_modes


def kinds_of(m: Any) -> tuple[Any, Any, list[str]]:
    """A subclass that overrides nothing, one that notes what is asked, and the notes."""
    asked: list[str] = []

    class Plain(m.Tensor): ...

    class Noting(m.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            asked.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs)

    return Plain, Noting, asked


ONE = {
    "exp": lambda m, a: (a * 0.1).exp(),
    "function": lambda m, a: m.exp(a * 0.1),
    "relu": lambda m, a: m.nn.functional.relu(a),
    "softmax": lambda m, a: a.softmax(1),
    "norm": lambda m, a: m.nn.functional.layer_norm(a, (3,)),
    "view": lambda m, a: a.reshape(-1).view(3, 3),
    "T": lambda m, a: a.T,
    "max": lambda m, a: a.max(0)[0].expand(3, 3),
    "sort": lambda m, a: m.sort(a, 1)[0],
    "split": lambda m, a: m.cat(a.split(1)[::-1]),
    "iter": lambda m, a: m.stack(list(a)),
    "index": lambda m, a: a[[2, 0, 1]],
    "in place": lambda m, a: a.clone().mul_(2).add_(1),
    "write": lambda m, a: m.where(a > 0, a, -a),
    "einsum": lambda m, a: m.einsum("ij->ji", a),
    "sum": lambda m, a: a * a.sum() * 0.1,
    "linalg": lambda m, a: a / (1 + m.linalg.norm(a)),
    "detached": lambda m, a: a * a.detach(),
    "reflected": lambda m, a: 1 - a,
}
TWO = {
    "add": lambda m, a, b: a + b,
    "method": lambda m, a, b: a.sub(b),
    "function": lambda m, a, b: m.mul(a, b),
    "alpha": lambda m, a, b: m.add(a, b, alpha=2),
    "matmul": lambda m, a, b: a @ b * 0.3,
    "linear": lambda m, a, b: m.nn.functional.linear(a, b) * 0.3,
    "where": lambda m, a, b: m.where(a > b, a, b),
    "stack": lambda m, a, b: m.stack([a, b]).sum(0),
    "maximum": lambda m, a, b: m.maximum(a, b),
    "loss": lambda m, a, b: m.nn.functional.mse_loss(a, b) * a,
    "lerp": lambda m, a, b: m.lerp(a, b, 0.3),
}


def program(m: Any, seed: int, kind: Any) -> tuple[list[Any], list[Any]]:
    """Types, and values and gradients, of a random program on two tensors of a kind."""
    draw = random.Random(seed)
    arrays = np.random.default_rng(seed).standard_normal((3, 3, 3)).astype("float32")
    values = [m.tensor(array) for array in arrays]
    for i in (0, 1):
        if kind is not None:
            values[i] = values[i].as_subclass(kind)
        values[i].requires_grad_()
    for _ in range(draw.randint(3, 7)):
        if draw.random() < 0.5:
            values.append(ONE[draw.choice(list(ONE))](m, draw.choice(values[-4:])))
        else:
            values.append(
                TWO[draw.choice(list(TWO))](m, draw.choice(values[-4:]), draw.choice(values))
            )
    loss = sum((v * v).sum() for v in values[3:])
    if seed % 2 and loss.requires_grad:
        gradients = m.autograd.grad(loss, values[:2], create_graph=True, allow_unused=True)
        again = [g for g in gradients if g is not None and g.requires_grad]
        if again:
            sum((g * g).sum() for g in again).backward()
    elif loss.requires_grad:
        loss.backward()
    found = [*values, values[0].grad, values[1].grad]
    return [type(v).__name__ for v in found], [v if v is None else v.tolist() for v in found]


@pytest.mark.parametrize("seed", range(24))
def test_random_programs_on_a_subclass(seed: int) -> None:
    _, plain = program(lucid_gpu, seed, None)
    found = []
    for m in MODULES:
        simple, noting, asked = kinds_of(m)
        found.append([program(m, seed, simple), program(m, seed, noting)])
        assert asked
    for types, values in found[0]:
        assert types[0] in ("Plain", "Noting") and types[2] == "Tensor"
        for value, wanted in zip(values, plain, strict=True):
            if wanted is None:
                assert value is None
            else:
                np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-5)
        assert types[-2] in ("Tensor", "NoneType")
    if len(found) == 2:
        for ours, theirs in zip(*found, strict=True):
            assert ours[0] == theirs[0]
            for value, wanted in zip(ours[1], theirs[1], strict=True):
                if wanted is not None:
                    np.testing.assert_allclose(value, wanted, rtol=2e-3, atol=2e-3)


class Diagonal:
    """No tensor, but a matrix to functions that it knows."""

    known: dict[Any, Any] = {}

    def __init__(self, size: int, value: float) -> None:
        self.size, self.value = size, value

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in cls.known:
            return NotImplemented
        return cls.known[func](*args, **(kwargs or {}))


def objects(m: Any) -> list[Any]:
    """What comes of ops on objects that are no tensors, each the first that is met."""
    T, F = m.Tensor, m.nn.functional
    names = [m.mean, m.add, T.add, m.mul, F.linear, m.stack, m.mm, T.matmul, T.__rsub__, m.where]
    Diagonal.known = {
        function: lambda *args, n=n, **named: (n, len(args), sorted(named))
        for n, function in enumerate(names)
    }
    one, x = Diagonal(3, 2.0), m.ones(3, 3)
    calls = [
        lambda: m.mean(one),
        lambda: m.add(x, one),
        lambda: m.add(one, x, alpha=2),
        lambda: x + one,
        lambda: one + x,
        lambda: x.add(one),
        lambda: m.mul(x, one),
        lambda: F.linear(x, one),
        lambda: m.stack([x, one]),
        lambda: m.stack([one, one], dim=1),
        lambda: m.mm(one, x),
        lambda: x @ one,
        lambda: one - x,
        lambda: m.where(x > 0, one, x),
    ]
    found = []
    for call in calls:
        if m is lucid_gpu:
            overrides._switch.for_ever = False
            overrides._turn()
        found.append(call())
    return found


def test_objects_that_are_no_tensors() -> None:
    ours, theirs = objects(lucid_gpu), objects(torch_module())
    for a, b in zip(ours, theirs, strict=True):
        assert a[0] == b[0] or {a[0], b[0]} == {1, 2}  # the first object met in Tensor.add
        assert a[2] == b[2]


def test_indices_and_values_that_override_ops() -> None:
    for case in range(5):
        overrides._switch.for_ever = False
        overrides._turn()
        x = lucid_gpu.tensor([5])
        if case == 0:
            assert x[Like()] == -1 and Like.asked == lucid_gpu.Tensor.__getitem__
        elif case == 1:
            assert x[5, Like()] == -1
        elif case == 2:
            x[Like()] = 1
        elif case == 3:
            x[5, Like()] = 1
        else:
            x[0] = Like()
        if case > 1:
            assert Like.asked == lucid_gpu.Tensor.__setitem__ and x.tolist() == [5]


def test_nobody_answers() -> None:
    Diagonal.known = {}
    one, x = Diagonal(3, 2.0), lucid_gpu.ones(3, 3)
    for call in (lambda: lucid_gpu.sum(one), lambda: lucid_gpu.mul(x, one), lambda: x.mul(one)):
        with pytest.raises(TypeError, match="Multiple dispatch failed for 'torch"):
            call()
    with pytest.raises(TypeError, match="unsupported operand type"):
        x * one


@pytest.mark.parametrize("kind", [lucid_gpu.Tensor, lucid_gpu.nn.Parameter, lucid_gpu.nn.Buffer])
def test_functions_of_pytorch_refuse_tensors_of_lucid_gpu(kind: Any) -> None:
    """An import of torch that was forgotten; PyTorch asks the object, not its class."""
    torch = torch_module()
    with pytest.raises(TypeError, match="no implementation found for 'torch.nn.functional.relu'"):
        torch.nn.functional.relu(kind(lucid_gpu.ones(2)))


class Like:
    """No tensor; notes what it was asked."""

    asked: Any = None

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Like.asked = func
        return -1


def arguments_of(function: Any, value: Any) -> tuple[list[Any], dict[str, Any]]:
    """Arguments for all parameters without a default."""
    args: list[Any] = []
    named: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            args += [value, value]
        elif parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
            if parameter.kind is parameter.KEYWORD_ONLY:
                named[name] = value
            else:
                args.append([value, value] if name == "tensors" else value)
    return args, named


def test_every_public_function_asks() -> None:
    overrides.start()
    count = 0
    for function in itertools.chain(*public._functions().values()):
        Like.asked = None
        args, named = arguments_of(function, Like())
        assert function(*args, **named) == -1 and Like.asked is function, function
        count += 1
    assert count > 700


def test_every_method_and_attribute_asks() -> None:
    seen = []

    class Noting(lucid_gpu.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            seen.append(func)
            return -1

    x = lucid_gpu.ones(2, 2).as_subclass(Noting)
    methods = list(public._methods())
    for method in methods:
        seen.clear()
        if method.__name__ == "__get__":
            name = next(n for n, v in vars(lucid_gpu.Tensor).items() if v is method.__self__)
            assert getattr(x, name) == -1 and seen == [method]
        else:
            args, named = arguments_of(method, x)
            assert method(*args, **named) == -1, method
            name = overrides._OPERATORS.get(method.__name__)
            assert name or seen[0] == method
    assert len(methods) > 580


def noted(m: Any) -> list[Any]:
    """What modes see, and in which order."""
    seen: list[Any] = []

    class Mode(m.overrides.TorchFunctionMode):
        def __init__(self, name: str) -> None:
            self.name = name

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            seen.append((self.name, func.__name__, func == m.Tensor.mul, len(args)))
            return func(*args, **(kwargs or {}))

    x = m.ones(2, requires_grad=True)
    with Mode("a"):
        y = m.zeros(2) + 1
        y.shape
        y.requires_grad = True
        m.nn.functional.softmax(y, dim=0)
        with Mode("b"):
            (x * y).sum().backward()
            with m._C.DisableTorchFunctionSubclass():
                x.exp()
            with m._C.DisableTorchFunction():
                x.exp()
        m.tensor([1.0])
    x.exp()
    return seen


def test_modes() -> None:
    assert noted(lucid_gpu) == noted(torch_module())
    assert not isinstance(vars(lucid_gpu.Tensor)["exp"], overrides.Method)


def order_of(m: Any) -> list[Any]:
    """Who is asked first: from left to right, subclasses before what they descend from."""
    seen: list[str] = []

    def kind(base: Any, name: str) -> Any:
        def asked(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(name + ":" + ",".join(t.__name__ for t in types))
            return NotImplemented

        return type(name, (base,), {"__torch_function__": classmethod(asked)})

    a, b, other = kind(m.Tensor, "A"), None, kind(object, "O")
    b = kind(a, "B")
    x, y, z = m.ones(1).as_subclass(a), m.ones(1).as_subclass(b), other()
    for call in (
        lambda: m.add(x, y),
        lambda: m.stack([z, x, y]),
        lambda: m.nn.functional.linear(x, z, y),
        lambda: x + y,
        lambda: x + z,
        lambda: m.nn.Parameter(m.ones(1)) + x,
    ):
        with pytest.raises(TypeError):
            call()
        seen.append("-")
    return seen


def test_precedence() -> None:
    assert order_of(lucid_gpu) == order_of(torch_module())


def test_functions_of_ones_own() -> None:
    @public.wrap_torch_function(lambda a, b: (a, b))
    def mine(a: Any, b: Any) -> Any:
        return a, b

    assert mine(1, 2) == (1, 2) and mine(Like(), 2) == -1 and Like.asked is mine
    assert public.has_torch_function((1, Like())) and not public.has_torch_function_unary(1)
    with pytest.raises(TypeError, match="no implementation found for"):
        public.handle_torch_function(mine, ())
    Diagonal.known = {}
    with pytest.raises(TypeError, match="on types that implement"):
        mine(Diagonal(1, 1.0), 2)
    with public.TorchFunctionMode(), pytest.raises(NotImplementedError):
        lucid_gpu.ones(1)
    names = public.get_testing_overrides()
    assert names[lucid_gpu.add](1, 2) == -1 and lucid_gpu.Tensor.shape.__get__ in names
    assert lucid_gpu.tensor in public.get_ignored_functions()
    assert public.is_tensor_method_or_property(lucid_gpu.Tensor.exp)
    assert not public.is_tensor_method_or_property(lucid_gpu.exp)
    for function in itertools.chain(*public.get_overridable_functions().values()):
        assert eval(public.resolve_name(function), {"torch": lucid_gpu}) == function


class Tagged(lucid_gpu.Tensor):
    """A subclass that pickle finds."""


def test_copies_and_pickles_are_of_the_subclass() -> None:
    overrides.start()
    x = lucid_gpu.ones(2).as_subclass(Tagged)
    x.tag = 3
    for other in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert type(other) is Tagged and other.tag == 3 and other.tolist() == [1.0, 1.0]
    assert repr(x) == "Tagged([1., 1.])"
    assert pickle.loads(pickle.dumps(lucid_gpu.Tensor.exp)) is lucid_gpu.Tensor.exp
    assert "Tagged" not in repr(lucid_gpu.nn.Parameter(lucid_gpu.ones(1)))


def test_names_taken_before_anybody_overrides_ops() -> None:
    overrides._switch.for_ever = False
    overrides._turn()
    early = {lucid_gpu.Tensor.exp: 1, lucid_gpu.Tensor.shape.__get__: 2, lucid_gpu.Tensor.det: 3}
    seen = []

    class Mine(lucid_gpu.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            seen.append((early.get(func), func is lucid_gpu.Tensor.exp))
            return super().__torch_function__(func, types, args, kwargs)

    x = lucid_gpu.eye(2).as_subclass(Mine)
    x.exp()
    x.shape
    x.det()
    assert seen == [(1, True), (2, False), (3, False)]


def test_modules_and_functions_take_subclasses() -> None:
    plain, _, _ = kinds_of(lucid_gpu)
    layer = lucid_gpu.nn.Linear(2, 2)
    layer.weight = lucid_gpu.nn.Parameter(lucid_gpu.ones(2, 2))
    x = lucid_gpu.ones(3, 2).as_subclass(plain)
    assert type(layer(x)) is plain

    class Twice(lucid_gpu.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            assert type(ctx.saved_tensors[0]) is plain
            return g * 2

    y = lucid_gpu.ones(2).as_subclass(plain).requires_grad_()
    Twice.apply(y).sum().backward()
    assert y.grad.tolist() == [2.0, 2.0] and type(y.grad) is lucid_gpu.Tensor


class Marked:
    """Overrides ops, and of a tensor's attributes has three only."""

    asked: list[Any]

    def __init__(self, value: Any) -> None:
        self.value = value

    def dim(self) -> int:
        return self.value.dim()

    def size(self, dim: int) -> int:
        return self.value.size(dim)

    @property
    def shape(self) -> Any:
        return self.value.shape

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        cls.asked.append(function)
        args = [a.value if isinstance(a, Marked) else a for a in args]
        given = {k: v.value if isinstance(v, Marked) else v for k, v in (kwargs or {}).items()}
        return cls(function(*args, **given))


def test_modules_pass_on_objects_that_are_no_tensors(device: str) -> None:
    for m in (lucid_gpu, torch_module()):
        nn, F = m.nn, m.nn.functional
        calls = {
            nn.BatchNorm2d(4): F.batch_norm,
            nn.InstanceNorm2d(4): F.instance_norm,
            nn.CircularPad2d(1): F.pad,
            nn.Softmax2d(): F.softmax,
            nn.Sigmoid(): m.sigmoid,
            nn.Tanh(): m.tanh,
            nn.ReLU6(): F.hardtanh,
        }
        for module, function in calls.items():
            Marked.asked = []
            where = device if m is lucid_gpu else "cpu"
            x = m.arange(96.0, device=where).view(2, 4, 3, 4)
            y = module.to(where)(Marked(x))
            assert isinstance(y, Marked) and Marked.asked == [function], module
            assert (y.value == module(x)).all()


def test_a_torch_dispatch_is_said_not_to_be_called() -> None:
    with pytest.warns(UserWarning, match="Mine.__torch_dispatch__ is not called"):

        class Mine(lucid_gpu.Tensor):
            @classmethod
            def __torch_dispatch__(cls, *args: Any) -> None: ...


def test_disabled_subclasses_ask_nobody() -> None:
    class Quiet(lucid_gpu.Tensor):
        __torch_function__ = lucid_gpu._C._disabled_torch_function_impl

    assert not overrides.handling
    assert type(lucid_gpu.ones(1).as_subclass(Quiet) + 1) is lucid_gpu.Tensor


@pytest.mark.parametrize("m", MODULES, ids=lambda m: m.__name__)
def test_parameters_are_of_the_subclass(m: Any) -> None:
    _, noting, asked = kinds_of(m)
    layer = m.nn.Linear(2, 2, bias=False)
    layer.weight = m.nn.Parameter(m.tensor([[1.0, 2.0], [3.0, 4.0]]).as_subclass(noting))
    asked.clear()
    y = layer(m.ones(1, 2))
    assert type(layer.weight) is noting is type(y) and "linear" in asked
    assert isinstance(layer.weight, m.nn.Parameter) and layer.weight.requires_grad
    assert [name for name, _ in layer.named_parameters()] == ["weight"]
    y.sum().backward()
    assert layer.weight.grad.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert type(layer.double().weight) is noting and len(list(layer.parameters())) == 1
    assert not isinstance(layer.weight.detach(), m.nn.Parameter)
    assert not isinstance(m.ones(2).as_subclass(noting), m.nn.Parameter)
    with pytest.raises(TypeError, match="cannot assign"):
        layer.weight = m.ones(2).as_subclass(noting)

    class Lost(m.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            with m._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))

    with pytest.raises(RuntimeError, match="Creating a Parameter from an instance of type Lost"):
        m.nn.Parameter(m.ones(2).as_subclass(Lost))


def test_copies_of_parameters_of_a_subclass_are_parameters() -> None:
    overrides.start()
    layer = lucid_gpu.nn.Linear(2, 2)
    layer.weight = lucid_gpu.nn.Parameter(lucid_gpu.ones(2, 2).as_subclass(Tagged))
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert type(other.weight) is Tagged and len(list(other.parameters())) == 2
        assert isinstance(other.weight, lucid_gpu.nn.Parameter) and other.weight.requires_grad


@pytest.mark.parametrize("m", MODULES, ids=lambda m: m.__name__)
def test_what_is_asked_has_the_name_of_the_method(m: Any) -> None:
    _, noting, asked = kinds_of(m)
    x = m.ones(2).as_subclass(noting)
    x[0]
    x[0] = 2.0
    x**2
    x.new_zeros(3)
    x.new_full((3,), 2.0)
    x.subtract(1.0)
    x.arctan2(x)
    expected = [
        "__getitem__",
        "__setitem__",
        "pow",
        "new_zeros",
        "new_full",
        "subtract",
        "arctan2",
    ]
    assert [name for name in asked if name in expected] == expected


@pytest.mark.parametrize("m", MODULES, ids=lambda m: m.__name__)
@pytest.mark.parametrize("way", ["assigned", "updated", "each"])
def test_attributes_copied_to_results_are_the_users(m: Any, way: str) -> None:
    class Marked(m.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            result = super().__torch_function__(func, types, args, kwargs or {})
            if isinstance(result, cls) and args and isinstance(args[0], cls):
                if way == "assigned":
                    result.__dict__ = copy.copy(args[0].__dict__)
                elif way == "updated":
                    result.__dict__.update(args[0].__dict__)
                else:
                    for name, value in vars(args[0]).items():
                        setattr(result, name, value)
            return result

    x = m.tensor([[1.0, -2.0]]).as_subclass(Marked)
    x.tag = [3]
    w = m.tensor([[1.0], [2.0]], requires_grad=True)
    y = (x * 2).relu() @ w
    z = m.nn.functional.linear(x, m.ones(3, 2))
    assert y.tolist() == [[2.0]] and y.tag is x.tag and z.tolist() == [[-1.0] * 3]
    assert dict(vars(y)) == {"tag": [3]} == y.__dict__.copy() and len(vars(y)) == 1
    y.sum().backward()
    assert w.grad.tolist() == [[2.0], [0.0]]
    leaf = m.ones(2).as_subclass(Marked).requires_grad_()
    leaf.tag = 1
    (leaf * 3).sum().backward()
    assert leaf.grad.tolist() == [3.0, 3.0] and dict(vars(leaf)) == {"tag": 1}
    assert "tag" in vars(leaf) and vars(leaf).pop("tag") == 1 and not hasattr(leaf, "tag")


FIRST = """
import lucid_gpu as torch
from lucid_gpu.nn import functional as F

class Mine:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func.__name__

torch.sparse_coo_tensor([[0], [0]], [1.0], (2, 2))  # whose ops stand behind the door
print(F.linear(torch.ones(2), Mine()))
"""


def test_the_first_object_is_asked_behind_other_interpreters() -> None:
    ran = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, check=True)
    assert ran.stdout == "linear\n"


@pytest.mark.parametrize("named", [lambda t: (), lambda t: (t,), lambda t: (t, t)])
def test_a_plain_tensor_answers_for_classes_that_a_subclass_names_as_it(named: Any) -> None:
    torch = pytest.importorskip("torch", reason="extra 'oracle' is not installed")
    said = []
    for m in (lucid_gpu, torch):
        kind: Any = type("Kind", (m.Tensor,), {})
        x = m.ones(2).as_subclass(kind)
        result = m.Tensor.__torch_function__(m.add, named(m.Tensor), (x, 1))
        said.append((type(result) is m.Tensor, result.tolist()))
        assert m.Tensor.__torch_function__(m.add, (kind,), (x, 1)) is NotImplemented
        both = kind.__torch_function__(m.add, (m.Tensor, kind), (x, 1))
        assert type(both) is kind and both.tolist() == [2, 2]
    assert said[0] == said[1]


def test_as_subclass_is_no_op_of_the_class_and_takes_no_attributes() -> None:
    torch = pytest.importorskip("torch", reason="extra 'oracle' is not installed")
    for m in (lucid_gpu, torch):

        class Marked(m.Tensor):
            @classmethod
            def __torch_function__(
                cls, func: Any, types: Any, args: Any = (), kwargs: Any = None, m: Any = m
            ) -> Any:
                types = (m.Tensor if issubclass(t, cls) else t for t in types)
                result = m.Tensor.__torch_function__(func, types, args, kwargs)
                if isinstance(result, m.Tensor) and func.__name__ == "view":
                    result = m.Tensor.as_subclass(result, cls)
                    result.mark = 1
                return result

        x = m.ones(2).as_subclass(Marked)
        x.mark = 1
        assert x.view(2).mark == 1
        plain = x.as_subclass(m.Tensor)
        assert type(plain) is m.Tensor and not hasattr(plain, "mark")
