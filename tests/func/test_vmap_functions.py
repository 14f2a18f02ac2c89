"""Custom functions under vmap: Function.vmap and generate_vmap_rule."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import lucid_gpu
from lucid_gpu.autograd import Function
from tests.func.comparing import agree, tensor
from tests.oracle import same_error

pytestmark = pytest.mark.usefixtures("on_device")


def product(m: Any) -> Any:
    """Two outputs of two tensors and a number, to be batched by running its methods."""

    class Product(m.autograd.Function):  # type: ignore[misc, name-defined]
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any, y: Any, n: float) -> Any:
            return x * y * n, x.sum()

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            x, y, ctx.n = inputs
            ctx.save_for_backward(x, y, output[0])

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            x, y, _ = ctx.saved_tensors
            assert x.ndim == y.ndim == g.ndim == 1 and h.ndim == 0
            return g * y * ctx.n + h, g * x * ctx.n, None

    return Product.apply


def doubled(m: Any, out_dim: Any = 0, **members: Any) -> Any:
    """Doubles, and notes what its own vmap is given."""

    def own(info: Any, in_dims: Any, x: Any, n: Any) -> Any:
        given.append((info.batch_size, info.randomness, in_dims, tuple(x.shape)))
        return (x * 2 * n).movedim(in_dims[0], out_dim), out_dim

    given: list[Any] = []
    known: dict[str, Any] = {
        "forward": staticmethod(lambda x, n: x * 2 * n),
        "setup_context": staticmethod(lambda ctx, inputs, output: None),
        "backward": staticmethod(lambda ctx, g: (g * 2, None)),
        "vmap": staticmethod(own),
        **members,
    }
    kind = type("Doubled", (m.autograd.Function,), {k: v for k, v in known.items() if v})
    return kind.apply, given


def test_generate_vmap_rule() -> None:
    def call(m: Any) -> Any:
        f = product(m)
        x, y = tensor(m, 4, 3), tensor(m, 4, 3, seed=1)
        return [
            m.vmap(lambda x, y: f(x, y, 2.0))(x, y),
            m.vmap(lambda x: f(x, y[0], 2.0), 1)(x.t().contiguous()),
            m.vmap(m.vmap(lambda x, y: f(x, y, 2.0), (None, 0)), (0, None))(x, y),
        ]

    agree(call)


def test_gradients_of_a_generated_rule() -> None:
    def call(m: Any) -> Any:
        f = product(m)
        x, y = tensor(m, 4, 3).requires_grad_(), tensor(m, 3, seed=1).requires_grad_()
        out, total = m.vmap(lambda x: f(x, y, 2.0))(x)
        found = m.autograd.grad((out.sin().sum() + total.sum()), (x, y), create_graph=True)
        again = m.autograd.grad((found[0] * found[0]).sum(), (x, y))
        return [found, again]

    agree(call)


def test_gradients_of_each_example_through_a_function() -> None:
    def call(m: Any) -> Any:
        f = product(m)
        slope = m.func.grad(lambda x, y: f(x, y, 3.0)[0].sin().sum(), (0, 1))
        return m.vmap(slope, (0, None))(tensor(m, 4, 3), tensor(m, 3, seed=1))

    agree(call)


def shared_part(m: Any) -> Any:
    """Two outputs, the second of the second input alone."""

    class Shared(m.autograd.Function):  # type: ignore[misc, name-defined]
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any, y: Any) -> Any:
            return x * x, y * 3

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            x, _ = ctx.saved_tensors
            return 2 * x * g, 3 * h

    return Shared.apply


def test_a_gradient_of_what_all_examples_share_is_counted_once() -> None:
    def slopes(m: Any) -> Any:
        x, y = tensor(m, 3), tensor(m, 2)

        def one(row: Any, y: Any) -> Any:
            a, b = shared_part(m)(row, y)
            return a * b.sum()

        return m.func.grad(lambda y: m.func.vmap(one, (0, None))(x, y).sum())(y)

    agree(slopes)


def test_jacobian_of_a_function() -> None:
    def call(m: Any) -> Any:
        f = product(m)
        x, y = tensor(m, 3), tensor(m, 3, seed=1)
        by = m.func.jacrev(lambda x, y: f(x, y, 3.0), (0, 1))
        return [by(x, y), m.vmap(by)(tensor(m, 2, 3), tensor(m, 2, 3, seed=1))]

    agree(call)


@pytest.mark.parametrize("out_dim", [0, 1])
def test_a_vmap_of_its_own(out_dim: int) -> None:
    def call(m: Any) -> Any:
        f, given = doubled(m, out_dim)
        found = m.vmap(lambda x: f(x, 3.0))(tensor(m, 4, 3))
        return [found, given[0][0], given[0][1], given[0][2][0], given[0][3]]

    agree(call)


def test_what_its_own_vmap_returns_is_checked() -> None:
    def returning(value: Any) -> Any:
        own = staticmethod(lambda info, in_dims, x, n: value(x))
        return lambda m: m.vmap(lambda x: doubled(m, vmap=own)[0](x, 1))(m.ones(2, 3))

    same_error(returning(lambda x: x), "Expected the vmap staticmethod to have two returns")
    same_error(returning(lambda x: (x, (0, 0))), "returned an incompatible (output, out_dims)")
    agree(returning(lambda x: (x * 1, None)))


def test_neither_and_both_are_refused() -> None:
    def run(**members: Any) -> Any:
        return lambda m: m.vmap(lambda x: doubled(m, **members)[0](x, 1))(m.ones(2))

    same_error(run(vmap=None), "You tried to vmap over Doubled, but it does not have vmap support")
    same_error(run(generate_vmap_rule=True), "both generate_vmap_rule=True and an overridden vmap")


def test_what_vmap_cannot_pass_on_is_refused_as_in_torch() -> None:
    def by_keyword(m: Any) -> Any:
        class Added(m.autograd.Function):
            @staticmethod
            def forward(x: Any, *, y: Any) -> Any:
                return x + y

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                pass

            @staticmethod
            def vmap(info: Any, in_dims: Any, x: Any, *, y: Any) -> Any:
                return x + y, 0

        return m.vmap(Added.apply)(m.ones(3), y=m.ones(3))

    def without_setup_context(m: Any) -> Any:
        class Sin(m.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x.sin()

        return m.vmap(Sin.apply)(m.ones(3))

    same_error(by_keyword, "kwarg-only Tensor args")
    same_error(without_setup_context, "must override the setup_context staticmethod")


def test_the_older_form_of_forward_is_batched_too() -> None:
    class Square(Function):  # PyTorch wants setup_context here
        generate_vmap_rule = True

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return 2 * g * ctx.saved_tensors[0]

    x = lucid_gpu.tensor([1.0, 2.0, 3.0])
    assert lucid_gpu.vmap(Square.apply)(x).tolist() == [1, 4, 9]
    assert lucid_gpu.vmap(lucid_gpu.func.grad(Square.apply))(x).tolist() == [2, 4, 6]


def test_marks_of_a_generated_rule() -> None:
    class Parts(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            whole = x.floor()
            ctx.mark_non_differentiable(whole)
            ctx.set_materialize_grads(False)
            return x * 2, whole

        @staticmethod
        def backward(ctx: Any, g: Any, unused: Any) -> Any:
            assert unused is None
            return g * 2

    x = lucid_gpu.tensor([1.5, 2.5], requires_grad=True)
    twice, whole = lucid_gpu.vmap(Parts.apply)(x)
    assert not whole.requires_grad and whole.tolist() == [1, 2]
    twice.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2, 2]


def test_mark_dirty_is_refused_by_name() -> None:
    class Twice(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

    with pytest.raises(RuntimeError, match="Twice changes an input in place"):
        lucid_gpu.vmap(Twice.apply)(lucid_gpu.ones(2))


def test_nothing_leaks() -> None:
    f = product(lucid_gpu)
    x = lucid_gpu.randn(4, 3, requires_grad=True)
    y = lucid_gpu.randn(3)
    out, _ = lucid_gpu.vmap(lambda x: f(x, y, 2.0))(x)
    seen = [weakref.ref(out), weakref.ref(out.grad_fn)]
    out.sum().backward()
    out, _ = lucid_gpu.vmap(lambda x: f(x, y, 2.0))(x)  # and without a backward
    seen += [weakref.ref(out), weakref.ref(out.grad_fn)]
    del out, _
    gc.collect()
    assert [r() for r in seen] == [None] * 4


def test_a_list_of_batched_tensors_comes_to_the_users_rule() -> None:
    def call(m: Any) -> Any:
        class Sums(m.autograd.Function):  # type: ignore[misc, name-defined]
            @staticmethod
            def forward(x: Any, others: Any) -> Any:
                return x + others[0] + others[1]

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                pass

            @staticmethod
            def vmap(info: Any, in_dims: Any, x: Any, others: Any) -> Any:
                assert in_dims == (0, [0, 0]), in_dims
                return x + others[0] + others[1], 0

        x = m.arange(6.0).view(3, 2)
        return m.vmap(Sums.apply)(x, [x * 10, x * 100])

    agree(call)


@pytest.mark.parametrize("name", ["new_zeros", "new_ones", "new_full", "new_empty"])
def test_each_example_has_a_new_tensor_of_its_own(name: str) -> None:
    def call(m: Any) -> Any:
        def f(x: Any, y: Any) -> Any:
            made = getattr(y, name)((2,), *[3.0] * (name == "new_full"))
            made[0] = x
            made[1] = y
            return made

        inner = m.vmap(f, in_dims=(None, 0))
        return m.vmap(f)(m.arange(3.0), m.ones(3)), m.vmap(inner)(m.arange(2.0), m.ones(2, 3))

    agree(call)


TRANSFORMS: dict[str, Callable[[Any, Any], Callable[[Any], Any]]] = {
    "vmap": lambda m, f: lambda x: m.vmap(f)(m.stack([x, x * 2])).sum(0),
    "jvp": lambda m, f: lambda x: m.func.jvp(f, (x,), (x * 2,))[1],
    "jacfwd": lambda m, f: lambda x: m.func.jacfwd(f)(x).sum(0),
    "vmap of jvp": lambda m, f: (
        lambda x: m.vmap(lambda t: m.func.jvp(f, (x,), (t,))[1])(m.eye(3)).sum(0)
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("inner", ["grad", "autograd"])
def test_saved_tensors_that_were_written_before(name: str, inner: str) -> None:
    def call(m: Any) -> Any:
        class Cube(m.autograd.Function):
            generate_vmap_rule = True

            @staticmethod
            def forward(x: Any) -> Any:
                return x**3

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                ctx.save_for_backward(inputs[0])
                ctx.save_for_forward(inputs[0])

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * 3 * ctx.saved_tensors[0] ** 2

            @staticmethod
            def jvp(ctx: Any, t: Any) -> Any:
                return t * 3 * ctx.saved_tensors[0] ** 2

        def written(x: Any) -> Any:
            x = x.clone()
            x[0] = x[1] * 2
            x.mul_(2)
            return Cube.apply(x)

        function = TRANSFORMS[name](m, written)
        x = tensor(m, 3).requires_grad_()
        if inner == "grad":
            return m.func.grad(lambda x: function(x).sum())(x)
        return m.autograd.grad(function(x).sum(), x)[0]

    agree(call)
