"""Reductions: what feeds them and what is made of them in one kernel, on both executors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import dtypes as dt
from lucid_gpu import explain, profiler
from lucid_gpu.fusion import eager, pending_reductions, scheduler
from lucid_gpu.fusion.realize import waiting
from lucid_gpu.fusion.reduction_table import TABLE
from tests.fusion.nvrtc import architectures, compiled
from tests.fusion.plans import needs_compiler, random
from tests.slow import slow_but


@pytest.fixture(params=["cpu", pytest.param("host-cuda", marks=needs_compiler)])
def executor(request: Any, monkeypatch: Any) -> Any:
    """The NumPy executor, then CUDA C on the host."""
    from lucid_gpu.core.program import forget

    forget()
    if request.param == "host-cuda":
        monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    with eager(False):
        yield request.param
    forget()


NUMPY = {
    "sum": np.sum,
    "mean": np.mean,
    "prod": np.prod,
    "amax": np.max,
    "amin": np.min,
    "any": np.any,
    "all": np.all,
    "argmax": np.argmax,
    "argmin": np.argmin,
    "var": np.var,
    "logsumexp": lambda x, axis: np.log(np.exp(x).sum(axis=axis)),
}
SHAPES = {
    "rows": ((33, 31), 1),
    "columns": ((31, 33), 0),
    "long rows": ((3, 1025), 1),
    "long columns": ((1023, 3), 0),
    "middle": ((5, 33, 4), 1),
    "one": ((4, 1), 1),
    "in chunks": ((1, 70001), 1),
    "columns in chunks": ((70001, 2), 0),
}


def reduced_by(name: str, x: Any, axis: int) -> Any:
    if name == "var":
        return x.var(axis, correction=0)
    return getattr(x, name)(axis)


@pytest.mark.each_value
@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("name", NUMPY)
def test_every_reduction_gives_what_numpy_gives(executor: str, name: str, case: str) -> None:
    shape, axis = SHAPES[case]
    array = random(shape, dt.float64)
    if name == "prod":
        array = 1 + array / 1000
    if name in ("any", "all"):
        array = array > (0 if name == "any" else -2.99)
    found = reduced_by(name, lucid_gpu.tensor(array), axis).numpy()
    np.testing.assert_allclose(found, NUMPY[name](array, axis=axis), 1e-10, 1e-10)


@pytest.mark.each_value
@pytest.mark.slow
@pytest.mark.parametrize("d", [d for d in dt.ALL if d.category < 3], ids=str)
@pytest.mark.parametrize("name", ["amax", "amin", "argmax", "argmin", "sum", "any", "all"])
def test_every_type(executor: str, name: str, d: dt.dtype) -> None:
    array = random((33, 65), d)
    if d is dt.bool and name.startswith("arg"):
        with pytest.raises(RuntimeError, match="bool"):
            reduced_by(name, lucid_gpu.tensor(array), 0)
        return
    for axis in (0, 1):
        found = reduced_by(name, lucid_gpu.tensor(array), axis)
        wide = array.astype(np.float64)
        wanted = NUMPY[name](wide, axis=axis)
        truth = dt.uint8 if d is dt.uint8 else dt.bool  # PyTorch's bytes stay bytes
        kind = {"any": truth, "all": truth, "argmax": dt.int64, "argmin": dt.int64}.get(name, d)
        assert found.dtype is (dt.int64 if name == "sum" and d.category < 2 else kind)
        tolerance = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 1e-4}.get(d.name, 1e-12)
        np.testing.assert_allclose(found.numpy().astype(np.float64), wanted, tolerance, tolerance)


@pytest.mark.each_value
@pytest.mark.parametrize("view", ["transposed", "reversed", "every second", "broadcast"])
@pytest.mark.parametrize("name", ["sum", "amax", "argmax", "argmin", "var", "logsumexp"])
def test_strides(executor: str, name: str, view: str) -> None:
    whole = random((24, 40), dt.float64)
    array = {
        "transposed": whole.T,
        "reversed": whole[::-1, ::-1],
        "every second": whole[:, 1::2],
        "broadcast": np.broadcast_to(whole[:1], whole.shape),
    }[view]
    x = lucid_gpu.from_numpy(array) if view != "broadcast" else None
    if x is None:
        x = lucid_gpu.tensor(whole[:1]).expand(*whole.shape)
    for axis in (0, 1):
        found = reduced_by(name, x * 1.5, axis).numpy()
        np.testing.assert_allclose(found, NUMPY[name](array * 1.5, axis=axis), 1e-10, 1e-10)


def test_ties_and_nan_go_to_the_first(executor: str) -> None:
    x = lucid_gpu.tensor([[1.0, 3, 3, 0, 0], [2, np.nan, 5, np.nan, -np.inf], [np.inf] * 5])
    assert x.argmax(1).tolist() == [1, 1, 0]
    assert x.argmin(1).tolist() == [3, 1, 0]
    assert x.argmax().item() == 6
    assert np.isnan(x.amax(1).numpy()[1]) and np.isnan(x.amin(1).numpy()[1])


def test_infinities(executor: str) -> None:
    inf = float("inf")
    x = lucid_gpu.tensor([[-inf, -inf], [inf, 1.0], [-inf, 2.0], [inf, -inf]])
    assert x.logsumexp(1).tolist() == [-inf, inf, 2.0, inf]
    assert x.amax(1).tolist() == [-inf, inf, 2.0, inf]
    assert x.amin(1).tolist() == [-inf, 1.0, -inf, -inf]


def kernels(function: Any) -> list[Any]:
    with profiler.record() as log:
        function()
    return log.kernels


class TestWhatSharesAKernel:
    def test_what_is_made_of_the_result(self, executor: str) -> None:
        x, b = lucid_gpu.tensor(random((50, 20), dt.float32)), lucid_gpu.ones(50)
        b.array
        (kernel,) = kernels(lambda: ((x * x).sum(1) * b + 1).sqrt().array)
        assert kernel.ops == ("mul", "sum", "mul", "add", "sqrt")
        assert kernel.bytes_read == 50 * 20 * 4 + 50 * 4
        assert kernel.bytes_written == 2 * 50 * 4  # the sum is a tensor too, and the root

    def test_a_mean_and_a_norm(self, executor: str) -> None:
        x = lucid_gpu.tensor(random((50, 20), dt.float32))
        assert len(kernels(lambda: (x * 2).mean(1).array)) == 1
        assert len(kernels(lambda: x.norm(dim=1).array)) == 1
        assert len(kernels(lambda: (x * 2).mean().array)) == 1

    def test_several_of_one_space(self, executor: str) -> None:
        x, y = (lucid_gpu.tensor(random((50, 20), dt.float32, seed=i)) for i in range(2))

        def several() -> Any:
            results = x.sum(0), (x * y).sum(0, keepdim=True), x.amax(0), (y + x).mean(0)
            return [r.numpy() for r in results]

        (kernel,) = kernels(several)
        assert kernel.bytes_read == 2 * 50 * 20 * 4
        a, b = x.numpy(), y.numpy()
        wanted = a.sum(0), (a * b).sum(0, keepdims=True), a.max(0), (a + b).mean(0)
        for found, right in zip(several(), wanted, strict=True):
            assert found.shape == right.shape
            np.testing.assert_allclose(found, right, 1e-4, 1e-5)

    def test_other_spaces_have_kernels_of_their_own(self, executor: str) -> None:
        x = lucid_gpu.tensor(random((50, 20), dt.float32))

        def two() -> None:
            rows, columns = x.sum(1), x.sum(0)
            rows.array, columns.array

        assert len(kernels(two)) == 2

    def test_another_shape_does_not_join(self, executor: str) -> None:
        x = lucid_gpu.tensor(random((5, 20), dt.float32))
        found = kernels(lambda: (x - x.mean(1, keepdim=True)).array)
        assert [k.shape for k in found] == [(5, 20), (5, 20)]

    def test_explain_says_so_beforehand(self, executor: str) -> None:
        x = lucid_gpu.tensor(random((5, 20), dt.float32))
        total, other = (x * 2).sum(1), x.sum(0)
        y = total * 3
        said = explain(y, other)
        assert [k.ops for k in said.kernels] == [("sum",), ("mul", "sum", "mul")]
        found = kernels(lambda: (y.array, other.array))
        assert [k.ops for k in found] == [k.ops for k in said.kernels]
        assert explain(total, other).kernels == []

    def test_a_gradient_sums_all_it_needs_at_once(self, executor: str) -> None:
        x = lucid_gpu.tensor(random((40, 8), dt.float32))
        scale, shift = (lucid_gpu.ones(8, requires_grad=True) for _ in range(2))
        y = x * scale + shift
        g = lucid_gpu.tensor(random((40, 8), dt.float32, seed=3))

        def back() -> None:
            y.backward(g)
            scale.grad.array, shift.grad.array

        (kernel,) = kernels(back)
        assert kernel.bytes_read == 2 * 40 * 8 * 4
        np.testing.assert_allclose(scale.grad.numpy(), (g * x).numpy().sum(0), 1e-5, 1e-5)
        np.testing.assert_allclose(shift.grad.numpy(), g.numpy().sum(0), 1e-5, 1e-5)


@needs_compiler
class TestWhatIsStoredToo:
    """CUDA C stores a value in the pass that reduces it."""

    @pytest.fixture(autouse=True)
    def _cuda_c(self, monkeypatch: Any) -> Any:
        from lucid_gpu.core.program import forget

        forget()
        monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
        with eager(False):
            yield
        forget()

    @pytest.mark.each_value
    @pytest.mark.parametrize("d", [dt.float32, dt.bfloat16, dt.float64], ids=str)
    @pytest.mark.parametrize(
        ("shape", "axes"),
        [
            ((33, 40), (0,)),
            ((33, 40), (1,)),
            ((7, 5, 6), (0, 2)),
            ((7, 5, 6), (1,)),
            ((1, 70001), (1,)),
            ((70001, 2), (0,)),
            ((31, 33), (0, 1)),
        ],
    )
    def test_sums_and_what_they_sum(self, d: dt.dtype, shape: Any, axes: Any) -> None:
        array = random(shape, d)
        x, row = lucid_gpu.tensor(array), lucid_gpu.tensor(random(shape[-1:], d, seed=1))

        def both() -> Any:
            y = (x * row + 0.5).tanh()
            total, top = y.to(dt.float64).sum(axes), x.amax(axes)
            return [t.to(dt.float64).numpy() for t in (y.detach(), total, top)]

        y, total, top = both()
        wide, wide_row = array.astype(np.float64), row.to(dt.float64).numpy()
        tolerance = {"float32": 1e-6, "bfloat16": 1e-2, "float64": 1e-13}[d.name]
        np.testing.assert_allclose(y, np.tanh(wide * wide_row + 0.5), tolerance, tolerance)
        np.testing.assert_array_equal(top, wide.max(axes))
        size = np.sqrt(y.size)
        np.testing.assert_allclose(total, y.sum(axes), 10 * tolerance, 10 * tolerance * size)

    def test_one_pass(self) -> None:
        x = lucid_gpu.tensor(random((33, 40), dt.float32))
        x.array

        def both() -> None:
            y = (x * 2).tanh()
            total = y.sum(0)
            y.array, total.array

        (kernel,) = kernels(both)
        assert kernel.bytes_read == 33 * 40 * 4
        assert kernel.bytes_written == 33 * 40 * 4 + 40 * 4

    def test_transposed_and_reversed(self) -> None:
        array = random((24, 40), dt.float32)
        base = lucid_gpu.tensor(array)
        for x, view in ((base.t(), array.T), (base[::2], array[::2]), (base[:, 1:], array[:, 1:])):
            for axis in (0, 1):
                y = x * 2
                total = y.sum(axis)
                np.testing.assert_array_equal(y.numpy(), view * 2)
                np.testing.assert_allclose(total.numpy(), (view * 2).sum(axis), 1e-5, 1e-5)

    def test_a_bias_gradient_is_summed_where_the_cotangent_is_stored(self) -> None:
        x = lucid_gpu.tensor(random((64, 16), dt.float32))
        w = lucid_gpu.tensor(random((16, 32), dt.float32), requires_grad=True)
        b = lucid_gpu.zeros(32, requires_grad=True)
        y = (x @ w + b).tanh()
        y.array
        g = lucid_gpu.tensor(random((64, 32), dt.float32, seed=2))

        def back() -> None:
            y.backward(g)
            w.grad.array, b.grad.array

        (kernel,) = [k for k in kernels(back) if k.ops]
        assert kernel.bytes_read == 2 * 64 * 32 * 4
        assert kernel.bytes_written == 64 * 32 * 4 + 32 * 4
        wanted = g.numpy() * (1 - y.detach().numpy() ** 2)
        np.testing.assert_allclose(b.grad.numpy(), wanted.sum(0), 1e-5, 1e-5)
        np.testing.assert_allclose(w.grad.numpy(), x.numpy().T @ wanted, 1e-4, 1e-5)

    def test_values_of_something_else_have_their_own_kernel(self) -> None:
        x, y = lucid_gpu.ones(4, 5), lucid_gpu.ones(4, 5)
        x.array, y.array
        total = (x * 2).sum(0)
        assert len(kernels(lambda: ((y * 3).array, total.array))) == 2

    def test_a_value_made_of_the_result_does_not_wait_for_itself(self) -> None:
        x = lucid_gpu.tensor(random((4, 5), dt.float32))
        y = x - x.mean(1, keepdim=True)
        wanted = x.numpy() - x.numpy().mean(1, keepdims=True)
        np.testing.assert_allclose(y.numpy(), wanted, 1e-5, 1e-6)

    @pytest.mark.parametrize("axis", [0, 1])
    def test_it_compiles(self, axis: int) -> None:
        from lucid_gpu.fusion.cuda_reduction import reduction
        from lucid_gpu.fusion.cuda_source import work_of
        from tests.fusion.plans import leaf, op

        for shape in ((64, 32), (70000, 64)):
            value = op("tanh", leaf(np.ones(shape, np.float32)))
            recipe = pending_reductions.recipe_of(value, "sum", (axis,), (shape[1 - axis],), None)
            plan, _ = pending_reductions.plan_of(
                [pending_reductions.Pending(value, recipe)], [value], False
            )
            for architecture in architectures():
                assert compiled(reduction(work_of(plan)).source, architecture) == ""


class TestWaiting:
    def test_what_nobody_reads_is_not_computed(self, executor: str) -> None:
        x = lucid_gpu.tensor(random((5, 4), dt.float32))

        def unread() -> None:
            x.sum()
            (x * 2).array

        assert len(kernels(unread)) == 1

    def test_old_contents_are_summed(self, executor: str) -> None:
        x = lucid_gpu.ones(4)
        total, doubled = x.sum(), (x * 2).sum()
        x.add_(1)
        assert (total.item(), doubled.item(), x.sum().item()) == (4, 8, 8)

    def test_memory_of_others_is_summed_at_once(self, executor: str) -> None:
        array = np.ones(4, np.float32)
        total = lucid_gpu.from_numpy(array).sum()
        array[:] = 5
        assert total.item() == 4

    def test_a_result_can_be_written_and_viewed(self, executor: str) -> None:
        x = lucid_gpu.ones(4, 3)
        total = x.sum(0)
        first = total[:1]
        total += 1
        assert (total.tolist(), first.tolist()) == ([5, 5, 5], [5])
        other = x.sum(1).detach()
        other.zero_()
        assert other.tolist() == [0] * 4

    def test_few_wait(self, executor: str) -> None:
        x = lucid_gpu.ones(4)
        x.array
        totals = [(x * i).sum() for i in range(40)]
        assert len(waiting) <= scheduler.MOST_REDUCTIONS
        assert [t.item() for t in totals] == [4 * i for i in range(40)]

    def test_a_long_chain_neither_recurses_nor_grows(self, executor: str) -> None:
        total = lucid_gpu.ones(2)
        for _ in range(3000):
            total = (total * 0.5).sum(0, keepdim=True).expand(2)
        np.testing.assert_allclose(total.numpy(), [1, 1])

    def test_what_it_reads_is_let_go_at_the_next_kernel(self, executor: str) -> None:
        import weakref

        x = lucid_gpu.ones(1000)
        gone = weakref.ref(x._cell())
        total = (x * 2).sum().detach() + 1
        del x
        (lucid_gpu.ones(3) * 2).array
        assert gone() is None
        assert total.item() == 2001

    def test_large_arrays_are_not_kept_for_one_another(self) -> None:
        import weakref

        with eager(False):
            x, y = lucid_gpu.rand(scheduler.LARGE), lucid_gpu.rand(scheduler.LARGE)
            gone = weakref.ref(x._cell())
            totals = [x.sum(), (x * y).sum()]
            del x
            assert gone() is not None
            totals.append(lucid_gpu.ones(scheduler.LARGE).sum())
            assert gone() is None
            assert len([t.item() for t in totals]) == 3

    def test_threads_see_it_whole(self, executor: str) -> None:
        x = lucid_gpu.tensor(random((64, 64), dt.float32, "positive"))
        for _ in range(20):
            total = (x * 2).sum(1)
            with ThreadPoolExecutor(4) as team:
                found = [team.submit(total.numpy) for _ in range(4)]
            for one in found:
                np.testing.assert_allclose(one.result(), (x.numpy() * 2).sum(1), 1e-5)

    def test_other_threads_leave_it_alone(self, executor: str) -> None:
        """They may be on another stream, whose work the reader would not wait for."""
        x = lucid_gpu.ones(4)
        total = (x * 2).sum()
        with ThreadPoolExecutor(1) as team:
            team.submit(lambda: (lucid_gpu.ones(3) * 2).array).result()
        assert type(total._expr.leaves[0]) is pending_reductions.ReducedCell
        assert total.item() == 8
        with ThreadPoolExecutor(1) as team:
            assert team.submit((x * 3).sum().item).result() == 12

    def test_a_thread_that_comes_second_changes_nothing(self, executor: str) -> None:
        x = lucid_gpu.ones(4)
        total = (x * 2).sum()
        pending = total._expr.leaves[0].source  # alive, as long as the reader holds it
        with ThreadPoolExecutor(1) as team:
            array = team.submit(lambda: total.array).result()
        pending_reductions.flush()
        assert total.array is array and array == 8 and pending.cells

    def test_another_may_compute_it_while_operands_are_compared(self, executor: str) -> None:
        total = (lucid_gpu.ones(4) * 2).sum()

        class Operand:
            since = 0

            @property
            def leaves(self) -> tuple[Any, ...]:
                assert total.item() == 8  # as another thread may at any moment
                return ()

        waiting_for_it = total * 2
        assert scheduler.met([waiting_for_it._expr, Operand()]) == []

    def test_eager_computes_on_its_line(self) -> None:
        x = lucid_gpu.ones(4)
        with eager():
            with profiler.record() as log:
                x.sum()
            assert len(log.kernels) == 1


def test_nothing_to_reduce(executor: str) -> None:
    x = lucid_gpu.zeros(0, 3)
    assert x.sum(0).tolist() == [0, 0, 0] and x.prod(0).tolist() == [1, 1, 1]
    assert x.any(0).tolist() == [False] * 3 and x.all(0).tolist() == [True] * 3
    assert np.isnan(x.mean(0).numpy()).all() and x.sum(1).shape == (0,)
    with pytest.raises(IndexError, match="non-zero size"):
        x.amax(0)


def test_nothing_beside_what_is_reduced(executor: str) -> None:
    x = lucid_gpu.zeros(0, 3, requires_grad=True)
    for name in ("amax", "amin", "logsumexp", "var", "mean"):
        y = reduced_by(name, x * 2, 1)
        assert y.shape == (0,) and y.tolist() == []
        (gradient,) = lucid_gpu.autograd.grad((y + 1).sum(), x)
        assert gradient.shape == (0, 3)
    assert lucid_gpu.zeros(0, 3, dtype=dt.int32).amax(1).tolist() == []
    assert lucid_gpu.zeros(0, 3).logsumexp(0).tolist() == [float("-inf")] * 3


@pytest.mark.each_value
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("name", NUMPY)
def test_results_are_row_major_whatever_the_values(executor: str, name: str, keepdim: bool) -> None:
    array = random((2, 3, 4), dt.float64, "positive")
    array = array > 1 if name in ("any", "all") else array
    x = lucid_gpu.tensor(array).permute(2, 1, 0)
    axis = 2 if name.startswith("arg") else (0,)
    correction = {"correction": 0} if name == "var" else {}
    if name == "prod":
        axis = 0
    found = getattr(x, name)(dim=axis, keepdim=keepdim, **correction)
    wide = NUMPY[name](array.transpose(2, 1, 0), axis=axis)
    assert found.array.flags.c_contiguous
    np.testing.assert_allclose((found * 1).numpy().reshape(wide.shape), wide, 1e-10, 1e-10)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_first_of_equals_after_rounding(executor: str, name: str) -> None:
    x = lucid_gpu.tensor([1.0, 1.0078125, 1.015625], dtype=dt.bfloat16)
    y = x * (1 if name == "argmax" else -1) + 100  # all of them round to 101 or 99
    assert getattr(y, name)(0).item() == 0 == getattr(y.clone().float().numpy(), name)()


@pytest.mark.each_value
@pytest.mark.parametrize("d", [dt.float16, dt.bfloat16, dt.float32], ids=str)
@pytest.mark.parametrize("name", ["amax", "amin", "max"])
def test_the_gradient_of_an_extremum_of_what_is_rounded(
    executor: str, name: str, d: dt.dtype
) -> None:
    x = lucid_gpu.tensor(random((40,), dt.float32)).to(d).requires_grad_()
    y = x * x * 1.1 + 1
    getattr(y, name)().backward()
    y = y.detach().double().numpy()
    hit = y == (y.min() if name == "amin" else y.max())
    wanted = np.where(hit, 2.2 * x.detach().double().numpy() / hit.sum(), 0)
    np.testing.assert_allclose(x.grad.double().numpy(), wanted, 2e-2)


@pytest.mark.each_value
@pytest.mark.parametrize("d", [dt.float32, dt.bfloat16, dt.float64], ids=str)
@pytest.mark.parametrize("name", ["var", "logsumexp", "mean", "amax", "prod", "norm"])
def test_gradients(executor: str, name: str, d: dt.dtype) -> None:
    array = random((4, 5), d, "positive")
    x = lucid_gpu.tensor(array, requires_grad=True)
    wide = lucid_gpu.tensor(array.astype(np.float64), requires_grad=True)
    results = []
    for t in (x, wide):
        y = t.norm(dim=1) if name == "norm" else reduced_by(name, t * 1, 1)
        weights = lucid_gpu.tensor([1.0, -2, 3, 0.5]).to(t.dtype)
        (y * weights).sum().backward()
        results.append(t.grad.numpy().astype(np.float64))
    tolerance = {"float32": 1e-5, "bfloat16": 4e-2, "float64": 1e-12}[d.name]
    np.testing.assert_allclose(*results, tolerance, tolerance)


def test_the_gradient_of_a_complex_product(executor: str) -> None:
    x = lucid_gpu.tensor(random((2, 3), dt.complex128), requires_grad=True)
    assert lucid_gpu.autograd.gradcheck(lambda t: (t * 2).prod(1), (x,))


@pytest.mark.each_value
@pytest.mark.parametrize("name", ["var", "logsumexp", "mean", "norm", "prod"])
def test_first_and_second_derivatives(executor: str, name: str) -> None:
    x = lucid_gpu.tensor(random((3, 4), dt.float64, "positive"), requires_grad=True)

    def function(t: Any) -> Any:
        return t.norm(dim=0) if name == "norm" else reduced_by(name, t.sin(), 0)

    assert lucid_gpu.autograd.gradcheck(function, (x,))
    assert lucid_gpu.autograd.gradgradcheck(function, (x,))


@pytest.mark.parametrize("row", slow_but(TABLE, "sum"))
def test_it_compiles(row: str) -> None:
    """Rows, columns and both kernels of a long one, for every architecture."""
    from lucid_gpu.fusion.cuda_reduction import reduction
    from lucid_gpu.fusion.cuda_source import work_of
    from tests.fusion.plans import leaf, op

    kind = dt.bool if row in ("any", "all") else dt.float32
    for shape, axis in (((32, 64), 1), ((64, 32), 0), ((1, 70000), 1)):
        x = leaf(np.ones(shape, kind.numpy))
        value = x if kind is dt.bool else op("mul", x, 2.0)
        recipe = pending_reductions.recipe_of(value, row, (axis,), (shape[1 - axis],), 3.0)
        plan, _ = pending_reductions.plan_of([pending_reductions.Pending(value, recipe)], ())
        for architecture in architectures():
            assert compiled(reduction(work_of(plan)).source, architecture) == ""


def test_what_results_meet_may_lie_far_apart(executor: Any) -> None:
    far = np.zeros((1 << 31) + 1, np.uint8)[:: 1 << 30]  # memory that is not touched costs nothing
    far[...] = 1, 2, 3
    found = lucid_gpu.ones(3, 4).sum(1) + lucid_gpu.from_numpy(far)
    assert found.tolist() == [5, 6, 7]


class TestAValueThatIsReducedAndWantedItself:
    """A bias's gradient beside the gradient it sums: NumPy computes the value once."""

    def test_the_sum_reads_what_was_stored(self) -> None:
        x = lucid_gpu.randn(33, 31)
        with eager(False), profiler.record() as log:
            y = x.tanh() * 2
            total = y.sum(0)
            y.numpy()
            total.numpy()
        assert [k.name for k in log.kernels] == ["lucid_tanh_mul", "lucid_sum"]
        assert log.kernels[1].bytes_read == 4 * x.numel()
        np.testing.assert_allclose(total.numpy(), y.numpy().sum(0), rtol=1e-5)

    def test_writing_the_value_later_leaves_the_sum(self) -> None:
        x = lucid_gpu.randn(5, 7)
        y = x.exp()
        total = y.sum(1)
        wanted = y.numpy().sum(1)
        y.mul_(0)
        np.testing.assert_allclose(total.numpy(), wanted, rtol=1e-5)

    def test_gradients(self) -> None:
        x, bias = (lucid_gpu.randn(*s).requires_grad_() for s in ((6, 4), (4,)))
        (x + bias).tanh().backward(lucid_gpu.ones(6, 4))
        slope = 1 - np.tanh(x.detach().numpy() + bias.detach().numpy()) ** 2
        np.testing.assert_allclose(x.grad.numpy(), slope, rtol=1e-5)
        np.testing.assert_allclose(bias.grad.numpy(), slope.sum(0), rtol=1e-5)
