"""Inference mode: what is made there, and what is refused outside; one scenario a fact."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import lucid_gpu
from lucid_gpu import profiler
from tests.oracle import same_error, torch_module

pytestmark = pytest.mark.usefixtures("on_device")

NOT_SAVED = (
    "Inference tensors cannot be saved for backward. Please do not use Tensors created in "
    "inference mode in computation tracked by autograd. To work around this, you can make a clone "
    "to get a normal tensor and use it in autograd"
)
NOT_WRITTEN = "Inplace update to inference tensor outside InferenceMode is not allowed"


def leaf(m: Any) -> Any:
    return m.ones(3, requires_grad=True)


def made(m: Any) -> Any:
    """A tensor made in inference mode."""
    with m.inference_mode():
        return m.ones(3)


def count_of_writes(m: Any) -> Any:
    return made(m)._version


def count_of_writes_inside(m: Any) -> Any:
    with m.inference_mode():
        return m.ones(3)._version


def saved_by_a_product(m: Any) -> Any:
    leaf(m) * made(m)


def saved_by_a_product_inside_a_region(m: Any) -> Any:
    (leaf(m) * 2 + 1) * made(m)


def a_computed_one_saved(m: Any) -> Any:
    with m.inference_mode():
        x = (m.ones(3) * 2).exp()
    leaf(m) / x


def saved_by_a_matrix_product(m: Any) -> Any:
    with m.inference_mode():
        x = m.eye(3)
    m.ones(3, 3, requires_grad=True) @ x


def a_view_of_one_saved(m: Any) -> Any:
    leaf(m)[:2] * made(m)[:2]


def a_detached_one_saved(m: Any) -> Any:
    leaf(m) * made(m).detach()


def saved_by_a_function(m: Any) -> Any:
    class Product(m.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            ctx.save_for_backward(b)
            return a * b

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.saved_tensors[0], None

    Product.apply(leaf(m), made(m))


def written_outside(m: Any) -> Any:
    made(m).add_(1)


def written_outside_under_no_grad(m: Any) -> Any:
    with m.no_grad():
        made(m).add_(1)


def written_by_an_operator(m: Any) -> Any:
    x = made(m)
    x += 1


def assigned_to_outside(m: Any) -> Any:
    made(m)[0] = 1


def written_by_out(m: Any) -> Any:
    m.add(m.ones(3), 1, out=made(m))


def written_through_a_view(m: Any) -> Any:
    made(m)[:2].add_(1)


def made_to_require_grad_outside(m: Any) -> Any:
    made(m).requires_grad_()


REFUSED = {
    count_of_writes: "Inference tensors do not track version counter.",
    count_of_writes_inside: "Inference tensors do not track version counter.",
    saved_by_a_product: NOT_SAVED,
    saved_by_a_product_inside_a_region: NOT_SAVED,
    a_computed_one_saved: NOT_SAVED,
    saved_by_a_matrix_product: NOT_SAVED,
    a_view_of_one_saved: NOT_SAVED,
    a_detached_one_saved: NOT_SAVED,
    saved_by_a_function: NOT_SAVED,
    written_outside: NOT_WRITTEN,
    written_outside_under_no_grad: NOT_WRITTEN,
    written_by_an_operator: NOT_WRITTEN,
    assigned_to_outside: NOT_WRITTEN,
    written_by_out: NOT_WRITTEN,
    written_through_a_view: NOT_WRITTEN,
    made_to_require_grad_outside: "Setting requires_grad=True on inference tensor outside "
    "InferenceMode is not allowed.",
}


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.__name__)
def test_refused_with_torchs_sentence(case: Callable[[Any], Any]) -> None:
    same_error(case, REFUSED[case])


def who_is_an_inference_tensor(m: Any) -> Any:
    x, normal = made(m), m.ones(3)
    with m.inference_mode():
        inside = [m.tensor([1.0]), normal * 2, x[:2], x * x, x.clone(), m.matmul(x, x), x.sum()]
        of_normal = [normal[:2], normal.detach(), normal.view(3)]
    outside = [x[:2], x.detach(), x.view(3)]
    computed = [x + 1, x.clone(), x * x, m.matmul(x, x), normal]
    groups = inside, of_normal, outside, computed
    return [[t.is_inference() for t in group] for group in groups], m.is_inference(x)


def modes(m: Any) -> Any:
    found = []

    def look() -> None:
        made_here = leaf(m) * 2
        found.append((m.is_inference_mode_enabled(), made_here.requires_grad))

    look()
    with m.inference_mode():
        look()
        with m.inference_mode(False):
            look()
        with m.no_grad():
            look()
        with m.enable_grad():
            look()
        look()
    with m.inference_mode(False):
        look()
    look()
    return found


def decorators(m: Any) -> Any:
    @m.inference_mode()
    def called() -> Any:
        return m.is_inference_mode_enabled()

    @m.inference_mode
    def bare() -> Any:
        return m.is_inference_mode_enabled()

    @m.inference_mode(False)
    def ordinary() -> Any:
        return m.is_inference_mode_enabled()

    @m.inference_mode()
    def generator() -> Any:
        got = yield m.is_inference_mode_enabled()
        yield got, m.is_inference_mode_enabled()

    run = generator()
    first, between = next(run), m.is_inference_mode_enabled()
    with m.inference_mode():
        inside = ordinary()
    return called(), bare(), inside, first, between, run.send(5), called.__name__


def an_error_leaves_the_mode(m: Any) -> Any:
    try:
        with m.inference_mode():
            raise KeyError
    except KeyError:
        return m.is_inference_mode_enabled(), m.is_grad_enabled()


def writes_inside(m: Any) -> Any:
    x, normal, wanted = made(m), m.ones(3), leaf(m) * 1
    with m.inference_mode():
        x.add_(1)
        x[:2].mul_(3)
        x[0] = 7
        normal.add_(1)
        normal[:2].mul_(3)
        wanted.add_(1)
        leaf(m).add_(1)
    return (
        x.tolist(), x.is_inference(), normal.tolist(), normal._version, normal.is_inference(),
        wanted._version, wanted.requires_grad,
    )  # fmt: skip


def use_in_what_saves_nothing(m: Any) -> Any:
    w, x = leaf(m), made(m)
    y = w + x - x * 2
    y = m.cat([y, x]) + m.stack([x, x]).view(6)
    m.where(y > 0, y, 0.0).sum().backward()
    normal = m.ones(3)
    normal.add_(x)
    normal.copy_(x)
    return w.grad.tolist(), normal.is_inference()


def a_clone_is_normal(m: Any) -> Any:
    w, x = leaf(m), made(m).clone()
    x.add_(1)
    (w * x).sum().backward()
    return w.grad.tolist()


def what_is_computed_outside_is_normal(m: Any) -> Any:
    w, x = leaf(m), made(m)
    (w * (x * 2)).sum().backward()
    with m.no_grad():
        product = w * x
    return w.grad.tolist(), product.tolist()


def leaves_inside(m: Any) -> Any:
    with m.inference_mode():
        x = m.ones(3).requires_grad_()
        parameter = m.nn.Parameter(m.ones(2))
        y = x * parameter[0]
    return x.requires_grad, parameter.requires_grad, y.requires_grad, y.is_leaf


def data_takes_the_other_tensors_kind(m: Any) -> Any:
    x, normal = made(m), m.zeros(3)
    x.data, normal.data = m.zeros(3), made(m)
    return x.is_inference(), normal.is_inference(), normal.tolist()


def views_inside_have_no_base(m: Any) -> Any:
    with m.inference_mode():
        x = m.ones(3)
        return x[:2]._is_view(), x[:2].mul_(2).tolist(), x.tolist()


AGREED = [
    who_is_an_inference_tensor, modes, decorators, an_error_leaves_the_mode, writes_inside,
    use_in_what_saves_nothing, a_clone_is_normal, what_is_computed_outside_is_normal,
    leaves_inside, data_takes_the_other_tensors_kind, views_inside_have_no_base,
]  # fmt: skip


@pytest.mark.parametrize("case", AGREED, ids=lambda case: case.__name__)
def test_as_in_torch(case: Callable[[Any], Any]) -> None:
    assert case(lucid_gpu) == case(torch_module())


@pytest.mark.parametrize("case", AGREED, ids=lambda case: case.__name__)
def test_as_in_torch_op_by_op(case: Callable[[Any], Any]) -> None:
    with lucid_gpu.fusion.eager():
        assert case(lucid_gpu) == case(torch_module())


def test_the_mode_is_of_one_thread() -> None:
    found = []
    with lucid_gpu.inference_mode():
        thread = threading.Thread(
            target=lambda: found.append(lucid_gpu.is_inference_mode_enabled())
        )
        thread.start()
        thread.join()
    assert found == [False]


def test_functions_give_inference_tensors(device: str) -> None:
    class Double(lucid_gpu.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

    with lucid_gpu.inference_mode():
        y = Double.apply(lucid_gpu.ones(2, device=device, requires_grad=True))
        assert y.is_inference()
        assert not y.requires_grad


def test_ops_fuse_in_inference_mode(device: str) -> None:
    x = lucid_gpu.ones(100, device=device)
    with lucid_gpu.inference_mode(), lucid_gpu.fusion.eager(False):
        y = (x * 2 + 1).tanh() * x
        with profiler.record() as kernels:
            y.tolist()
    assert len(kernels) == 1


def test_what_was_remembered_in_one_mode_is_not_found_in_another(device: str) -> None:
    """Equal expressions in turn: each has the marks of its own mode."""
    x = lucid_gpu.ones(3, device=device, requires_grad=True)
    for _ in range(3):
        y = x * 3 + 1
        assert y.requires_grad
        assert not y.is_inference()
        with lucid_gpu.no_grad():
            y = x * 3 + 1
        assert not y.requires_grad
        assert not y.is_inference()
        with lucid_gpu.inference_mode():
            y = x * 3 + 1
        assert y.is_inference()
        with pytest.raises(RuntimeError, match="cannot be saved for backward"):
            x * y


def test_requires_grad_of_an_inference_tensor_is_refused_outside_though_it_is_set() -> None:
    def scenario(m: Any) -> Any:
        with m.inference_mode():
            x = m.ones(2).requires_grad_()
        x.requires_grad_()

    same_error(scenario, "Setting requires_grad=True on inference tensor outside InferenceMode")


def test_requires_grad_is_set_to_bools() -> None:
    same_error(lambda m: setattr(m.ones(2), "requires_grad", 1), "requires_grad must be a bool")


def test_a_view_whose_history_is_invalid_is_printed() -> None:
    x = lucid_gpu.ones(2, requires_grad=True)
    y = x * 2
    first, _ = y.chunk(2)
    y.mul_(2)
    where = "" if x.device.type == "cpu" else f", device='{x.device}'"
    assert repr(first) == f"tensor([4.]{where}, grad_fn=<Invalid>)"


def test_a_write_in_inference_mode_leaves_a_permuted_parameter_trainable(device: str) -> None:
    for make in (lambda t: t.t(), lambda t: t):
        p = lucid_gpu.nn.Parameter(make(lucid_gpu.ones(3, 2, device=device)))
        with lucid_gpu.inference_mode():
            p.zero_()
        assert not p.is_inference()
        (p * 3).square().sum().backward()
