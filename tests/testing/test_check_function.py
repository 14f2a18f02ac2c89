"""check_function (the row `checking`): what passes, what it catches, and what a person reads."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import Function
from lucid_gpu.autograd.function import once_differentiable
from lucid_gpu.testing import CheckFunctionError, check_function

KEPT: list[object] = []


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x**2


class Power(Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.n = n
        ctx.save_for_backward(x)
        return x**n

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.n * x ** (ctx.n - 1), None


class Product(Function):
    """Two inputs, two outputs, a jvp."""

    @staticmethod
    def forward(x, y):
        return x * y, x + y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return g * y + h, g * x + h

    @staticmethod
    def jvp(ctx, dx, dy):
        x, y = ctx.saved_tensors
        return dx * y + dy * x, dx + dy


def x(*shape, device="cpu", dtype=lucid_gpu.float32):
    numbers = np.random.default_rng(0).uniform(0.5, 1.5, shape)
    return lucid_gpu.tensor(numbers, device=device, dtype=dtype)


def failed(function, *inputs, **options):
    """The rows that failed."""
    with pytest.raises(CheckFunctionError) as error:
        check_function(function, *inputs, **options)
    report = error.value.report
    assert str(report) in str(error.value) and not report.passed
    return {row.name: row.why for row in report.rows if row.result == "FAILED"}


# --- what passes ----------------------------------------------------------------------------------


def test_a_right_function_passes(device):
    report = check_function(Cube, x(2, 3, device=device))
    assert report.passed
    results = {row.name: row.result for row in report.rows}
    on_gpu = "passed" if lucid_gpu.cuda.is_available() else "not applicable"
    assert results == {
        "forward and backward": "passed",
        "gradient": "passed",
        "second gradient": "passed",
        "undefined gradients": "passed",
        "inputs one by one": "not applicable",
        "strided": "passed",
        "two passes": "passed",
        "in-place writes": "passed",
        "own types": "passed",
        "memory": "passed",
        "CPU and GPU": on_gpu,
        "jvp": "not applicable",
    }
    assert report["jvp"].why == "Cube defines no jvp"


def test_the_report_is_a_table_with_one_line_a_check():
    text = str(check_function(Power, x(3, dtype=lucid_gpu.float64), 3))
    first, *rows = text.splitlines()
    assert first.startswith("check_function(Power): ")
    rows = [" ".join(row.split()) for row in rows]
    assert "gradient passed finite differences by input 0, step 1e-06" in rows
    assert "own types not applicable the inputs are checked in their own types" in rows
    assert repr(check_function(Power, x(3), 3)).startswith("check_function(Power)")


@pytest.mark.parametrize("shapes", [[(3, 2), (3, 2)], [(), ()], [(0,), (0,)], [(4,), (4,)]])
def test_two_inputs_two_outputs_and_a_jvp_pass(shapes, device):
    report = check_function(Product, *[x(*s, device=device) for s in shapes])
    assert report["jvp"].result == report["inputs one by one"].result == "passed"


def test_plain_functions_are_checked_too(device):
    report = check_function(lambda a, b: (a @ b).relu().sum(), x(2, 3), x(3, 2))
    assert report.passed and "<lambda>" in str(report)


def test_inputs_stay_as_they_are(device):
    a = x(3, device=device).requires_grad_()
    before = a.tolist()
    check_function(Cube, a)
    assert a.tolist() == before and a.grad is None and a.dtype is lucid_gpu.float32


def test_only_inputs_that_require_grad_are_differentiated_by():
    a, b = x(3).requires_grad_(), x(3)
    assert "finite differences by input 0" in check_function(Product, a, b)["gradient"].why


def test_complex_inputs():
    z = x(3).to(lucid_gpu.complex64) * (1 + 0.5j)

    class Square(Function):
        @staticmethod
        def forward(ctx, z):
            ctx.save_for_backward(z)
            return z * z

        @staticmethod
        def backward(ctx, g):
            (z,) = ctx.saved_tensors
            return g * (2 * z).conj_physical()

    assert check_function(Square, z).passed


def test_once_differentiable_has_no_second_gradient():
    class Once(Cube):
        backward = staticmethod(once_differentiable(Cube.backward))

    row = check_function(Once, x(3))["second gradient"]
    assert row.result == "not applicable" and "@once_differentiable" in row.why


def test_a_function_that_marks_its_input_dirty_passes():
    class Doubled(Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2

    assert check_function(Doubled, x(3)).passed


def test_rows_may_be_left_out():
    row = check_function(Cube, x(3), skip=("memory",))["memory"]
    assert row.why == "left out by the caller"
    with pytest.raises(ValueError, match=r"skip names \['leaks'\]; there are \['gradient'"):
        check_function(Cube, x(3), skip=("leaks",))


def test_a_kernel_of_one_type_is_checked_in_it():
    class Raw(Cube):
        @staticmethod
        def forward(ctx, x):
            assert x.dtype is lucid_gpu.float32, "this kernel takes float32"
            ctx.save_for_backward(x)
            return lucid_gpu.as_tensor(x.numpy() ** 3)

    with pytest.raises(CheckFunctionError, match="this kernel takes float32"):
        check_function(Raw, x(3))
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # gradcheck prefers double precision
        assert check_function(Raw, x(3), dtype=None, eps=1e-2, atol=1e-2, rtol=1e-2,
                              skip=("CPU and GPU",)).passed  # fmt: skip


def test_without_floating_point_inputs_there_is_nothing_to_check():
    with pytest.raises(ValueError, match="at least one floating point or complex tensor"):
        check_function(Cube, lucid_gpu.tensor([1, 2]))


# --- what it catches ------------------------------------------------------------------------------


def test_catches_a_wrong_gradient(device):
    class Wrong(Cube):
        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 2 * x**2

    rows = failed(Wrong, x(2, device=device))
    assert "Jacobian mismatch for output 0 with respect to input 0" in rows["gradient"]
    assert {"gradient"} == set(rows)


def test_catches_a_wrong_second_derivative():
    class Wrong(Cube):
        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 3 * x.detach() ** 2

    rows = failed(Wrong, x(2))
    assert set(rows) == {"second gradient"} and "Jacobian mismatch" in rows["second gradient"]


def test_catches_a_missing_none():
    class Missing(Power):
        @staticmethod
        def backward(ctx, g):
            return Power.backward(ctx, g)[0]

    rows = failed(Missing, x(2), 3)
    assert set(rows) == {"forward and backward"}
    assert "incorrect number of gradients (expected 2, got 1)" in rows["forward and backward"]
    assert "(x, n)" in rows["forward and backward"]


def test_catches_a_leak_through_an_output_kept_in_a_global():
    class Leaking(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.y = x.exp()
            KEPT.append(ctx)
            return ctx.y

        @staticmethod
        def backward(ctx, g):
            return g * ctx.y

    try:
        rows = failed(Leaking, x(2), skip=("second gradient",))
        assert set(rows) == {"memory"}
        assert "output 0, LeakingBackward alive after forward and a collection" in rows["memory"]
        assert f"{__name__}.KEPT holds it" in rows["memory"]
    finally:
        KEPT.clear()


class _Keeper:
    kept: ClassVar[dict] = {}


def _remember(value):
    _Keeper.kept["last"] = [value]


def _keeping(keep):
    """A Function whose forward calls ``keep(ctx)``."""

    class Keeping(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.y = x.exp()
            keep(ctx)
            return ctx.y

        @staticmethod
        def backward(ctx, g):
            return g * ctx.y

    return Keeping


@pytest.mark.parametrize(
    ("keep", "name"),
    [
        (_remember, f"{__name__}._Keeper.kept"),
        (lambda ctx, into=[]: into.append(ctx), "a default argument of <lambda>"),
        (lambda ctx: setattr(_remember, "ctx", ctx), "_remember.ctx"),
    ],
)
def test_names_what_holds_a_leak(keep, name):
    try:
        rows = failed(_keeping(keep), x(2), skip=("second gradient",))
        assert set(rows) == {"memory"}
        assert f"{name} holds it" in rows["memory"]
    finally:
        _Keeper.kept.clear()
        vars(_remember).clear()


def test_names_a_closed_over_list_that_holds_a_leak():
    kept = []
    rows = failed(_keeping(lambda ctx: kept.append(ctx)), x(2), skip=("second gradient",))
    assert "kept, around " in rows["memory"] and " holds it" in rows["memory"]


def test_an_output_kept_on_ctx_alone_is_no_leak():
    class OnCtx(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.y = x * 2
            return ctx.y

        @staticmethod
        def backward(ctx, g):
            return g * 2

    assert check_function(OnCtx, x(2))["memory"].result == "passed"


def test_catches_a_backward_that_works_on_contiguous_gradients_only(device):
    class Contiguous(Cube):
        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            assert g.is_contiguous(), "my kernel ignores strides"
            return g * 3 * x**2

    rows = failed(Contiguous, x(2, 3, device=device), skip=("second gradient", "gradient"))
    assert "with strided cotangents: AssertionError: my kernel ignores strides" in rows["strided"]


def test_catches_a_kernel_that_ignores_the_strides_of_its_input():
    class Ignores(Cube):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            array = x.numpy()
            flat = np.lib.stride_tricks.as_strided(array, (array.size,), (array.itemsize,))
            return lucid_gpu.as_tensor((flat**3).reshape(array.shape))

    rows = failed(Ignores, x(2, 3), skip=("CPU and GPU",))
    assert set(rows) == {"strided"} and "with strided inputs: output 0 differs" in rows["strided"]
    assert "Greatest absolute difference" in rows["strided"]


def test_catches_a_view_of_an_expanded_gradient():
    class Flat(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g.view(-1).view(2, 3) * 2

    rows = failed(Flat, x(2, 3))
    assert "RuntimeError: view" in rows["strided"]


def test_catches_a_backward_that_changes_its_cotangent_in_place(device):
    class Writes(Cube):
        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g.mul_(3 * x**2)

    rows = failed(Writes, x(2, device=device))
    assert "changes the gradient of output 0 in place" in rows["in-place writes"]
    assert "grad.clone()" in rows["in-place writes"]


def test_catches_a_forward_that_changes_its_input_without_saying_so():
    class Writes(Function):
        @staticmethod
        def forward(ctx, x):
            return x.mul_(2) * 1

        @staticmethod
        def backward(ctx, g):
            return g * 2

    rows = failed(Writes, x(2))
    assert "input 0 is changed in place; say ctx.mark_dirty(input)" in rows["in-place writes"]


def test_catches_a_gradient_that_depends_on_what_else_is_wanted():
    class Misled(Product):
        @staticmethod
        def backward(ctx, g, h):
            x, y = ctx.saved_tensors
            if not ctx.needs_input_grad[1]:
                return g * y, None
            return g * y + h, g * x + h

    rows = failed(Misled, x(2), x(2))
    assert "the gradient of input 0 when no other is wanted" in rows["inputs one by one"]


def test_catches_a_backward_that_cannot_take_undefined_gradients():
    class Defined(Product):
        @staticmethod
        def setup_context(ctx, inputs, output):
            Product.setup_context(ctx, inputs, output)
            ctx.set_materialize_grads(False)

    rows = failed(Defined, x(2), x(2))
    assert "undefined" in rows["undefined gradients"]


def test_catches_a_backward_that_spoils_what_it_keeps():
    class Spoils(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.factor = 2.0
            return x * 2

        @staticmethod
        def backward(ctx, g):
            ctx.factor += 1
            return g * (ctx.factor - 1)

    rows = failed(Spoils, x(2))
    assert "a second pass through the graph: gradient 0 differs" in rows["two passes"]


def test_catches_a_result_rounded_to_a_coarser_type():
    class Rounded(Function):
        @staticmethod
        def forward(ctx, x):
            return x.half().float().to(x.dtype) if x.dtype is lucid_gpu.float32 else x * 1

        @staticmethod
        def backward(ctx, g):
            return g * 1

    rows = failed(Rounded, x(50))
    assert set(rows) == {"own types"} and "in float32: output 0 differs" in rows["own types"]


def test_catches_a_wrong_jvp():
    class Wrong(Product):
        @staticmethod
        def jvp(ctx, dx, dy):
            return dx + dy, dx + dy

    rows = failed(Wrong, x(2), x(2))
    assert set(rows) == {"jvp"} and "forward mode mismatch for output 0" in rows["jvp"]


def test_an_error_of_backward_is_reported_once():
    class Fails(Cube):
        @staticmethod
        def backward(ctx, g):
            raise ValueError("not written yet")

    with pytest.raises(CheckFunctionError) as error:
        check_function(Fails, x(2))
    rows = error.value.report.rows
    assert rows[0].why == "ValueError: not written yet"
    assert {row.why for row in rows[1:]} == {"backward does not run"}
    assert str(error.value).count("not written yet") == 1


def test_what_is_no_function_is_refused():
    with pytest.raises(TypeError, match=r"expected a Function class .* got int: write"):
        check_function(3, x(2))
