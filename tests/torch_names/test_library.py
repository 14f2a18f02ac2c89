"""`torch.library`: ops of users by name, their gradients, and what refuses."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import lucid_gpu
from lucid_gpu import Tensor

library: Any = lucid_gpu.library
_COUNT = itertools.count()


@pytest.fixture
def space() -> Iterator[Any]:
    """A namespace of its own for a test."""
    made = library.Library(f"tests{next(_COUNT)}", "DEF")
    yield made
    made._destroy()


def ops_of(space: Any) -> Any:
    return getattr(lucid_gpu.ops, space.ns)


@pytest.mark.parametrize(
    ("args", "kwargs", "want"),
    [
        ((), {}, [3.0, 5.0]), ((3.0,), {"dims": [4]}, [7.0, 10.0]),
        ((), {"alpha": 5.0}, [6.0, 11.0]), ((), {"mode": "b"}, [-3.0, -5.0]),
    ],
)  # fmt: skip
def test_a_schema_gives_names_and_defaults(space: Any, args: Any, kwargs: Any, want: Any) -> None:
    schema = "f(Tensor x, float alpha=2.0, *, int[] dims=[0, 1], str mode='a') -> Tensor"
    assert space.define(schema) == "f"

    def f(x: Tensor, alpha: float = 2.0, *, dims: Any = (0, 1), mode: str = "a") -> Tensor:
        return (x * alpha + sum(dims)) * (1 if mode == "a" else -1)

    space.impl("f", f, "CPU")
    x = lucid_gpu.tensor([1.0, 2.0])
    assert ops_of(space).f(x, *args, **kwargs).tolist() == want
    assert ops_of(space).f.default(x, *args, **kwargs).tolist() == want
    assert dir(ops_of(space)) == ["f"]


def test_gradients_go_through_lists_of_tensors(space: Any) -> None:
    space.define("join(Tensor[] xs, Tensor y) -> Tensor")
    space.impl("join", lambda xs, y: lucid_gpu.cat(xs) * y, "CompositeExplicitAutograd")
    needed = []

    def save(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[1], *inputs[0])

    def backward(ctx: Any, grad: Any) -> Any:
        y, *xs = ctx.saved_tensors
        needed.append(ctx.needs_input_grad)
        parts = list((grad * y).split([x.numel() for x in xs]))
        return parts, (grad * lucid_gpu.cat(xs)).sum()

    library.register_autograd(f"{space.ns}::join", backward, setup_context=save)
    x = lucid_gpu.tensor([1.0, 2.0], requires_grad=True)
    y = lucid_gpu.tensor(3.0, requires_grad=True)
    ops_of(space).join([x, lucid_gpu.ones(1)], y).pow(2).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [18.0, 36.0]
    assert y.grad is not None and y.grad.item() == 36.0
    assert needed == [([True, False], True)]


def test_a_custom_op_gives_lists_and_takes_defaults(space: Any) -> None:
    @library.custom_op(f"{space.ns}::parts", mutates_args=())
    def parts(x: Tensor, size: int = 1) -> list[Tensor]:
        return [t.clone() for t in x.split(size)]

    inputs_seen = []
    parts.register_autograd(
        lambda ctx, grads: (lucid_gpu.cat(grads), None),
        setup_context=lambda ctx, inputs, output: inputs_seen.append(inputs[1:]),
    )
    x = lucid_gpu.tensor([1.0, 2.0], requires_grad=True)
    a, b = parts(x)
    assert isinstance(parts(x), list)
    (a * 2 + b * 5).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 5.0]
    assert inputs_seen == [(1,), (1,)]


def test_without_a_formula_backward_raises(space: Any) -> None:
    sine = library.custom_op(f"{space.ns}::sine", lambda x: x.sin(), mutates_args=())
    y = sine(lucid_gpu.ones(2, requires_grad=True))
    assert y.requires_grad
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        y.sum().backward()


def test_an_op_that_writes_its_argument(space: Any) -> None:
    write = library.custom_op(f"{space.ns}::write", lambda x: x.add_(1), mutates_args={"x"})
    x = lucid_gpu.zeros(2)
    write(x)
    assert x.tolist() == [1.0, 1.0] and x._version == 1


def test_a_rule_for_vmap(space: Any) -> None:
    square = library.custom_op(f"{space.ns}::sq", lambda x, k=1.0: x * x * k, mutates_args=())
    with pytest.raises(RuntimeError, match="register_autograd first"):
        square.register_vmap(lambda info, in_dims, x: (x, in_dims[0]))
    square.register_autograd(lambda ctx, grad: (grad, None))
    dims = []

    @square.register_vmap
    def _(info: Any, in_dims: Any, x: Tensor, k: float = 1.0) -> Any:
        dims.append(in_dims[0])
        return square(x, k), in_dims[0]

    x = lucid_gpu.arange(6.0).reshape(2, 3).requires_grad_()
    assert lucid_gpu.vmap(square, in_dims=1, out_dims=1)(x).tolist() == (x * x).tolist()
    assert len(dims) == 1


def test_a_function_for_autograd_runs_first_and_calls_below_itself(space: Any) -> None:
    space.define("twice(Tensor x) -> Tensor")

    class Twice(lucid_gpu.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            with lucid_gpu._C._AutoDispatchBelowAutograd():
                return ops_of(space).twice(x)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * 7

    space.impl("twice", lambda x: x * 2, "CPU")
    space.impl("twice", Twice.apply, "Autograd")
    x = lucid_gpu.ones(2, requires_grad=True)
    y = ops_of(space).twice(x)
    y.sum().backward()
    assert y.tolist() == [2.0, 2.0] and x.grad is not None and x.grad.tolist() == [7.0, 7.0]


@pytest.mark.parametrize("way", ["register_fake", "_register_fake", "impl"])
def test_a_fake_function_gives_shapes_on_meta(space: Any, way: str) -> None:
    space.define("counted(Tensor x) -> Tensor")

    def counted(x: Tensor) -> Tensor:
        return lucid_gpu.tensor([[float(x.sum().item())] * 3])

    def fake(x: Tensor) -> Tensor:
        return x.new_empty(1, 3)

    space.impl("counted", counted, "CompositeExplicitAutograd")
    if way == "impl":
        space.impl("counted", fake, "Meta")
    elif way == "register_fake":
        library.register_fake(f"{space.ns}::counted")(fake)
    else:
        space._register_fake("counted", fake)
    x = lucid_gpu.ones(4)
    assert ops_of(space).counted(x).tolist() == [[4.0] * 3]
    made = ops_of(space).counted(x.to("meta"))
    assert made.is_meta and made.shape == (1, 3)


def test_define_and_impl_as_functions() -> None:
    library.define("tests_defined::f", "(Tensor x, int n=3) -> Tensor")
    library.impl("tests_defined::f", "default")(lambda x, n=3: x * n)
    assert lucid_gpu.ops.tests_defined.f(lucid_gpu.ones(2)).tolist() == [3.0, 3.0]


def test_functions_may_come_before_the_op_is_declared() -> None:
    assert library.impl("tests_later::f", ["CPU", "CUDA"])(len) is len
    with library._scoped_library("tests_later", "FRAGMENT") as space:
        space.impl("g", lambda x: x + 1, "CPU")
        space.define("f(Tensor x) -> int")
        space.define("g(Tensor x) -> Tensor")
        ops = lucid_gpu.ops.tests_later
        assert ops.f(lucid_gpu.ones(4)) == 4
        assert ops.g(lucid_gpu.ones(2)).tolist() == [2.0, 2.0]
        space.impl("h", len, "CPU")
    space.define("h(Tensor x) -> int")
    with pytest.raises(NotImplementedError, match="a function for no"):
        ops.h(lucid_gpu.ones(2))
    space._destroy()


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda s: library.Library("aten", "DEF"), ValueError, "reserved namespace"),
        (lambda s: library.Library("a", "X"), ValueError, "Unsupported kind: X"),
        (lambda s: s.define("no schema"), RuntimeError, "expected a schema of the form"),
        (lambda s: library.register_vmap("a::absent", len), RuntimeError, "there is no op"),
        (lambda s: s.impl("f", 3), TypeError, "required to be a callable"),
        (lambda s: ops_of(s).f(), RuntimeError, "missing a required argument: 'x'"),
        (lambda s: ops_of(s).f(lucid_gpu.ones(1)), NotImplementedError, "a function for no"),
        (lambda s: ops_of(s).g, AttributeError, "has no attribute 'g'"),
        (lambda s: lucid_gpu.ops.no_such_space, AttributeError, "no attribute 'no_such_space'"),
        (lambda s: library.custom_op("f", len), ValueError, "'namespace::name'"),
        (lambda s: library.wrap_triton(len), RuntimeError, "cuda.kernel"),
    ],
)  # fmt: skip
def test_what_is_refused(space: Any, call: Any, error: type[Exception], said: str) -> None:
    space.define("f(Tensor x) -> Tensor")
    with pytest.raises(error, match=said):
        call(space)
