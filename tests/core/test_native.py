"""The core in C beside the Python whose short cut it is: the same values, to the last bit."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import itertools
import math
import os
import pickle
import random
import shutil
import subprocess
import sys
import sysconfig
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import Tensor
from lucid_gpu.core.planning import steps
from lucid_gpu.core.program import INFERENCE, forget
from lucid_gpu.core.value import Variable
from lucid_gpu.devices import loops
from lucid_gpu.fusion import eager, pending_reductions, scheduler
from lucid_gpu.fusion.realize import execute
from lucid_gpu.fusion.reduction_table import TABLE as REDUCTIONS
from lucid_gpu.fusion.scheduler import begin_step, waiting
from lucid_gpu.profiler import planning
from lucid_gpu.tape.native import core

needs_core = pytest.mark.skipif(
    core is None, reason="the C file was not compiled, or LUCID_NATIVE_CORE=0"
)
SOURCES = sorted((Path(lucid_gpu.__file__).parent / "core" / "native").glob("*.c"))


def test_it_is_compiled_where_it_can_be() -> None:
    """Else all tests below would be skipped, and nobody would hear of it."""
    headers = Path(sysconfig.get_paths()["include"]) / "Python.h"
    asked_not_to = os.environ.get("LUCID_NATIVE_CORE") == "0"
    has_gil = not sysconfig.get_config_var("Py_GIL_DISABLED")
    if shutil.which("gcc") and headers.exists() and has_gil and not asked_not_to:
        assert core is not None


@contextmanager
def in_python() -> Iterator[None]:
    """Do without the short cuts inside a ``with`` block."""
    core.close(True)
    try:
        yield
    finally:
        core.close(False)


# --- the same bits --------------------------------------------------------------------------------

_ONE = ("tanh", "exp", "relu", "sigmoid", "abs", "neg", "sin", "square", "floor", "sqrt", "isnan")
_TWO = ("__add__", "__sub__", "__mul__", "__truediv__", "maximum", "minimum", "__lt__", "__pow__")
_NUMBERS = (2, -1, 0, 1, 0.5, -0.0, 0.0, 3.0, -1.5, math.nan, math.inf, 1e300, 7, 1 << 40, True)
_REDUCTIONS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda x: x.sum(),
    lambda x: x.sum(-1, keepdim=True),
    lambda x: x / (x * x).sum(-1, keepdim=True),
    lambda x: x.mean(0) * 2,
    lambda x: (x > 0).sum(),
    lambda x: x.amax(-1),
    lambda x: x.norm(),
)
_SHAPES = ((4, 5), (1, 5), (4, 1), (5,), (), (4, 5), (4, 5))


class Scaled(lucid_gpu.autograd.Function):
    """x * y * 2, which saves both; y may be a number."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y if isinstance(y, Tensor) else None)
        ctx.number = y
        return x * y * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_tensors
        by_y = None if y is None or not ctx.needs_input_grad[1] else (g * x * 2)
        return g * (ctx.number if y is None else y) * 2, by_y


class Kept(lucid_gpu.autograd.Function):
    """tanh, which saves its result, or under another name is a leaf's copy."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = x.tanh()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (y,) = ctx.saved_tensors
        return g * (1 - y * y)


class Steps:
    """A random program of ops, writes, views and reads; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        rng = np.random.default_rng(seed)
        kind = self.draw.choice([np.float32, np.float32, np.float64, np.int64])
        self.tensors: list[Tensor] = []
        for shape in _SHAPES:
            array = (rng.standard_normal(shape) * 3).astype(kind)
            tensor = lucid_gpu.tensor(array)
            if kind is not np.int64 and self.draw.random() < 0.4:
                tensor.requires_grad_()
            self.tensors.append(tensor)
        self.leaves = [t for t in self.tensors if t.requires_grad]
        self.seen: list[Any] = []

    def run(self, count: int = 25) -> list[Any]:
        """What the steps gave: arrays, or what an error said."""
        for _ in range(count):
            try:
                self.step()
            except (RuntimeError, TypeError, IndexError, OverflowError) as error:
                self.seen.append(f"{type(error).__name__}: {error}")
        for leaf in self.leaves:
            grad = leaf.grad
            self.seen.append(None if grad is None else grad.detach().numpy().copy())
        return [x.tobytes() if isinstance(x, np.ndarray) else x for x in self.seen]

    def step(self) -> None:
        """Take one step."""
        pick, tensors = self.draw, self.tensors
        x, what = pick.choice(tensors), pick.random()
        made: Tensor | None = None
        if what < 0.2:
            made = getattr(x, pick.choice(_ONE))()
        elif what < 0.45:
            made = getattr(x, pick.choice(_TWO))(pick.choice(tensors))
        elif what < 0.65:
            number, name = pick.choice(_NUMBERS), pick.choice(_TWO)
            by: Any = x if name == "__pow__" and abs(number) > 8 else number
            reflected = name[:2] == "__" and name != "__lt__" and pick.random() < 0.4
            made = getattr(x, f"__r{name[2:]}" if reflected else name)(by if not reflected else 2)
        elif what < 0.72:
            made = pick.choice(_REDUCTIONS)(x)
        elif what < 0.77:
            made = pick.choice([x.detach, x.t, x.clone])()
        elif what < 0.85:
            other = pick.choice(tensors)
            with lucid_gpu.no_grad():
                pick.choice([x.add_, x.mul_, x.copy_])(other)
        elif what < 0.93:
            self.seen.append(np.array(x.detach().numpy()))
        elif x.requires_grad and x.dtype.category == 2:
            x.sum().backward(retain_graph=True)
        if made is not None:
            tensors[pick.randrange(len(tensors))] = made


class Graphs(Steps):
    """The same of recorded ops, custom Functions, hooks, and passes of every kind."""

    def step(self) -> None:
        """Take one step."""
        pick, tensors = self.draw, self.tensors
        x, what = pick.choice(tensors), pick.random()
        made: Tensor | None = None
        if what < 0.1:
            made = x @ pick.choice(tensors).t()
        elif what < 0.2:
            made = Scaled.apply(x, pick.choice([pick.choice(tensors), 3.0, x]))
        elif what < 0.26:
            made = Kept.apply(x)
        elif what < 0.36:
            made = pick.choice([x.relu, x.tanh, x.exp, x.clone, x.sigmoid])() + pick.choice(tensors)
        elif what < 0.44:
            name = pick.choice(["mean", "softmax", "cumsum", "amax", "logsumexp"])
            made = getattr(x, name)(-1)
        elif what < 0.5:
            made = lucid_gpu.cat([x, x * 2], -1)[..., : x.shape[-1]] if x.ndim else x
        elif what < 0.55:
            made = x[pick.randrange(2) :] if x.ndim else x.reshape(1)
        elif what < 0.6:
            pick.choice([x.add_, x.mul_])(pick.choice([1.5, pick.choice(tensors)]))
        elif what < 0.65 and x.requires_grad:
            seen = self.seen
            x.register_hook(
                pick.choice([lambda g: g * 2, lambda g: seen.append(g.detach().numpy().copy())])
            )
        elif what < 0.68 and x.requires_grad:
            x.retain_grad()
        elif what < 0.72 and x.grad_fn is not None:
            self.seen.append(type(x.grad_fn).__name__)
        elif what < 0.86 and x.requires_grad:
            wanted = pick.sample(self.leaves, pick.randint(1, len(self.leaves)))
            options = {"retain_graph": pick.random() < 0.6, "create_graph": pick.random() < 0.3}
            kind = pick.random()
            if kind < 0.4:
                x.sum().backward(**options)
            elif kind < 0.6:
                x.sum().backward(inputs=wanted, **options)
            else:
                for g in lucid_gpu.autograd.grad(x.sum(), wanted, allow_unused=True, **options):
                    self.seen.append(None if g is None else g.detach().numpy().copy())
                    if g is not None and g.requires_grad:
                        tensors[pick.randrange(len(tensors))] = g
        elif what < 0.95:
            super().step()
        else:
            x.grad = None
        if made is not None:
            tensors[pick.randrange(len(tensors))] = made


@needs_core
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [Steps, Graphs])
@pytest.mark.parametrize("start", range(0, 200, 100))
def test_random_programs_have_the_same_bits_in_python(start: int, kind: type[Steps]) -> None:
    for seed in range(start, start + 100):
        for _ in range(2):  # what the first time remembers, the second finds
            found = kind(seed).run()
            with in_python():
                assert kind(seed).run() == found, seed


@needs_core
def test_programs_have_the_same_values_eagerly() -> None:
    for seed in range(1000, 1060):
        found = Steps(seed).run()
        with eager():
            wanted = Steps(seed).run()
        assert [type(x) for x in found] == [type(x) for x in wanted], seed


@needs_core
def test_threads_share_the_table() -> None:
    wanted = [Steps(seed).run() for seed in range(40)]
    forget()
    wrong: list[int] = []

    def work() -> None:
        for seed, expected in enumerate(wanted):
            if Steps(seed).run() != expected:
                wrong.append(seed)

    team = [threading.Thread(target=work) for _ in range(4)]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join()
    assert not wrong


@needs_core
def test_a_value_may_be_saved_while_another_thread_gives_it_a_variable() -> None:
    assert lucid_gpu.ones(3).requires_grad_().exp().grad_fn is not None  # made in Python
    y = lucid_gpu.ones(3).requires_grad_().exp()
    y._expr.variable = Variable()  # and has no version yet
    node: Any = y.grad_fn
    assert node.result.version == 0


@needs_core
def test_a_thread_may_detach_what_another_one_computes() -> None:
    source = lucid_gpu.rand(1 << 14)
    source.array
    begun, detached = threading.Semaphore(0), threading.Semaphore(0)
    pending: list[Tensor] = []

    def compute() -> Tensor:
        x = source
        for _ in range(6):  # so many calls that other threads run meanwhile
            x = (x * 1.5 + 0.5).sin()
        return x

    def detach() -> None:
        for _ in range(200):
            begun.acquire()
            pending.append(pending.pop().detach())
            detached.release()

    for _ in range(20):
        compute().array
    thread = threading.Thread(target=detach)
    thread.start()
    apart = 0
    for _ in range(200):
        x = compute()
        pending[:] = [x]
        begun.release()
        x.array
        detached.acquire()
        x[0] = 100.0
        apart += pending[0][0].item() != 100.0
    thread.join()
    assert apart == 0


# --- structure ------------------------------------------------------------------------------------


def python_calls(step: Callable[[], Any]) -> int:
    """Count the Python functions that a warm step calls, with itself if it is one."""
    for _ in range(6):
        step()
    count = [0]

    def seen(_frame: Any, event: str, _argument: Any) -> None:
        count[0] += event == "call"

    sys.setprofile(seen)
    try:
        step()
    finally:
        sys.setprofile(None)
    return count[0]


@needs_core
def test_a_pending_op_calls_no_python() -> None:
    x, y, w = lucid_gpu.rand(4, 5), lucid_gpu.rand(5), lucid_gpu.rand(4, 5).requires_grad_()
    parameter = lucid_gpu.nn.Parameter(lucid_gpu.rand(5))
    operands: dict[str, list[tuple[Any, ...]]] = {
        "__add__": [(x, y), (w, x), (x, parameter), (parameter, x)],
        "__mul__": [(x, 2.5), (x, x), (x, 3)],
        "__rsub__": [(x, 1)],
        "__neg__": [(x,)],
        "tanh": [(w,)],
        "__lt__": [(x, y)],
    }
    for name, calls in operands.items():
        method = vars(Tensor)[name]
        method = getattr(method, "function", method)  # where a subclass asks first
        for given in calls:
            assert python_calls(functools.partial(method, *given)) == 0, name


@needs_core
@pytest.mark.skipif(not loops.available(), reason="kernels run in C on NumPy's loops")
def test_a_small_kernel_is_found_and_run_in_one_call() -> None:
    x, y = lucid_gpu.rand(4, 5), lucid_gpu.rand(5)
    pending = iter([(x * 2 + y).tanh() for _ in range(7)])
    assert python_calls(lambda: next(pending).array) <= 3
    a = (x + y).array
    assert a.tobytes() == (x.numpy() + y.numpy()).tobytes() and a.flags.c_contiguous


# Extents that a loop of NumPy's takes in one way or another, the axes, and whether C does it.
_REDUCED: tuple[tuple[tuple[int, ...], tuple[int, ...], bool], ...] = (
    *[((n,), (0,), True) for n in (1, 2, 7, 8, 9, 127, 128, 129, 1000, 4097, 8193, 16384)],
    *[((n, 16), (1,), True) for n in (1, 3, 8)],
    *[((3, n), (1,), True) for n in (1, 2, 9, 17, 130, 1031)],
    *[((n, 5), (0,), True) for n in (1, 2, 9, 130)],
    ((4, 33), (0, 1), True),
    ((4, 1, 33), (2,), True),
    ((1, 6, 1), (1, 2), True),
    ((3, 5, 7), (1,), True),
    ((3, 5, 7), (0, 1), True),
    ((3, 5, 7), (1, 2), True),
    ((3, 1, 7), (1,), True),
    ((3, 5, 7), (0, 2), False),
    ((65, 64), (1,), False),
    ((64, 300), (0, 1), False),
)
_UNUSUAL = (math.nan, -math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-45, 3e38)


def _numbers(shape: tuple[int, ...], kind: str, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    array: Any = rng.standard_normal(shape) * 100
    if kind in "fd" and seed % 3:
        unusual = rng.random(shape) < (0.02, 0.4)[seed % 2]
        array[unusual] = rng.choice(_UNUSUAL[:: 1 if seed % 2 else 4], unusual.sum())
    if seed % 5 == 4:
        array = array * 0.0  # zeros of both signs
    return (array > 0) if kind == "?" else array.astype(kind)


_OF_FLOATS = ("sum", "mean", "prod", "amax", "amin")
_OF_KIND = {"f": _OF_FLOATS, "d": _OF_FLOATS, "l": ("sum", "prod", "amax"), "?": ("any", "all")}


@needs_core
@pytest.mark.skipif(not loops.available(), reason="kernels run in C on NumPy's loops")
@pytest.mark.parametrize(("shape", "axes", "taken"), _REDUCED)
def test_reductions_have_the_bits_of_numpys(
    shape: tuple[int, ...], axes: tuple[int, ...], taken: bool
) -> None:
    kept = tuple([n for i, n in enumerate(shape) if i not in axes])
    count = math.prod([shape[i] for i in axes])
    for seed, kind in enumerate("fdfdfdfdfdl?"):
        x = lucid_gpu.tensor(_numbers(shape, kind, seed))
        values = [x._expr] if kind in "l?" else [x._expr, (x * 2 + 1)._expr]
        for value, row in itertools.product(values, _OF_KIND[kind]):
            divisor = count if row == "mean" else None
            recipe = pending_reductions.recipe_of(value, row, axes, kept, divisor)
            plan, leaves = pending_reductions.plan_of([pending_reductions.Pending(value, recipe)])
            in_numpy, _, _, in_c = [execute(plan, leaves)[0] for _ in range(4)]
            if kind in "fl?" or row != "sum":  # which may have been added up by BLAS
                assert taken == isinstance(plan.ready, core.Reduced) or not taken, row
            assert in_c.tobytes() == in_numpy.tobytes(), (kind, row)
            assert in_c.shape == in_numpy.shape and in_c.dtype == in_numpy.dtype
            if row not in ("mean", "prod") and value is x._expr:
                ufunc: Any = getattr(np, str(REDUCTIONS[row].ufunc))
                with np.errstate(all="ignore"):
                    wanted = ufunc.reduce(x.array, axes, x.array.dtype)
                assert plan.ready is None or in_c.tobytes() == wanted.tobytes(), (kind, row)


@needs_core
@pytest.mark.skipif(not loops.available(), reason="kernels run in C on NumPy's loops")
def test_what_goes_on_with_a_reduction_runs_in_the_same_call() -> None:
    def found(x: Tensor, y: Tensor) -> list[bytes]:
        total = (x * y).sum(1)
        both = x.sum(0), (x * y).amax(0)
        results = [(total * 2 + 1).sqrt(), both[0] / both[1], x.norm(), (x > 0).sum(), total]
        return [t.array.tobytes() for t in results]

    for seed in range(6):
        x, y = [lucid_gpu.tensor(_numbers((6, 9), "f", seed + n)) for n in (0, 1)]
        with in_python():
            wanted = found(x, y)
        for _ in range(4):
            assert found(x, y) == wanted


@needs_core
@pytest.mark.skipif(not loops.available(), reason="kernels run in C on NumPy's loops")
def test_a_reduction_is_started_read_and_gone_on_with_in_few_calls() -> None:
    x = lucid_gpu.rand(4, 5)
    assert python_calls(lambda: (x.sum(1) * 2 + 1).array) <= 7
    assert python_calls(lambda: x.mean(0).array) <= 7
    assert python_calls(lambda: (x / x.sum(1, keepdim=True)).array) <= 10
    kept = x.sum(1), x.mean(1)
    assert len(waiting) == 2  # which one kernel computes, by Python
    np.testing.assert_allclose(kept[1].numpy() * 5, kept[0].numpy(), 1e-6)
    assert not waiting


@needs_core
def test_a_reduction_of_another_thread_is_left_alone() -> None:
    x = lucid_gpu.rand(4, 5)
    for _ in range(4):
        (x.sum(1) * 2).array
    totals: list[Tensor] = []
    thread = threading.Thread(target=lambda: totals.append(x.sum(1)))
    thread.start()
    thread.join()
    (x * 2).array
    assert [r() is not None for r in waiting] == [True]
    twice = (totals[0] * 2).numpy()
    np.testing.assert_array_equal(twice, totals[0].numpy() * 2)
    np.testing.assert_allclose(totals[0].numpy(), x.numpy().sum(1), 1e-6)


@needs_core
def test_small_values_may_be_made_of_whole_numbers() -> None:
    number = 1 / (np.arange(12, dtype=np.float32).reshape(3, 4) + 1)
    for kind in (np.int64, np.uint8, np.float16):
        whole: Any = np.arange(4).astype(kind)
        x, n = lucid_gpu.tensor(number), lucid_gpu.tensor(whole)
        for _ in range(3):  # the second run would be one in C
            np.testing.assert_array_equal((x * (n < 2)).numpy(), number * (whole < 2))


@needs_core
def test_what_is_remembered_is_forgotten() -> None:
    x = lucid_gpu.rand(3)
    (x * 2).array
    with planning() as log:
        (x * 2).array
    assert log.programs == 0
    forget()
    with planning() as log:
        (x * 2).array
    assert log.programs > 0


@needs_core
def test_nothing_stays_alive() -> None:
    x = lucid_gpu.rand(16, 16).requires_grad_()
    for _ in range(5):
        (x * 2 + 1).tanh().array
    gc.collect()
    before = len(gc.get_objects())
    died = []
    for _ in range(50):
        y = (x * 2 + 1).tanh()
        y.array
        died += [weakref.ref(y), weakref.ref(y.array)]
    del y
    assert not [1 for r in died if r() is not None]
    del died
    gc.collect()
    assert len(gc.get_objects()) - before < 20


@needs_core
def test_methods_are_as_functions_are() -> None:
    add: Any = Tensor.__add__
    assert add.__name__ == "__add__" and add.__qualname__ == "Tensor.__add__"
    assert list(inspect.signature(add).parameters) == ["self", "other"]
    assert pickle.loads(pickle.dumps(add)) == add
    x = lucid_gpu.rand(3)
    assert x.__add__.__self__ is x and x.__add__.__func__ is add  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"^Tensor\.__add__\(\) missing 2 required"):
        add()
    with pytest.raises(TypeError, match=r"^__pow__\(\) missing 2 required"):
        vars(Tensor)["__pow__"]()
    with pytest.raises(TypeError, match=r"^Tensor\.tanh\(\) takes 1 positional"):
        vars(Tensor)["tanh"](1, 2)
    own = getattr(add, "function", add)  # where a subclass asks first
    assert inspect.getfullargspec(own).args == ["self", "other"]
    with pytest.raises((TypeError, RuntimeError)):
        add(x, object(), 3)
    assert x.__add__("text") is NotImplemented
    np.testing.assert_array_equal(add(x, other=2.0).numpy(), x.numpy() + np.float32(2))


@needs_core
def test_subclasses_are_asked() -> None:
    class Sub(Tensor):
        """A subclass that overrides nothing."""

    class Logged(Tensor):
        """A subclass that sees each op."""

        seen: list[str] = []

        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            cls.seen.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs)

    x = lucid_gpu.rand(3)
    s, logged = x.as_subclass(Sub), x.as_subclass(Logged)
    for a, b in ((s, x), (x, s), (s, s), (s, 2.0)):
        assert type(a + b) is Sub  # type: ignore[operator]
    Logged.seen.clear()
    assert type(x + logged) is Logged and type(logged * 2) is Logged
    assert Logged.seen == ["add", "mul"]
    y = lucid_gpu.rand(3)
    y.__class__ = Sub
    assert type(y + 1) is Sub and weakref.ref(y)() is y


@needs_core
def test_subclasses_of_several_bases() -> None:
    class Named:
        """Another base."""

        title = "named"

    class Both(lucid_gpu.nn.Parameter, Named):
        """Of both."""

    both = Both(lucid_gpu.rand(3))
    y = both * 2
    y.sum().backward()
    assert both.title == "named" and both.grad is not None
    np.testing.assert_array_equal(both.grad.numpy(), [2, 2, 2])


@needs_core
def test_methods_may_be_set_on_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    x = lucid_gpu.rand(3)
    monkeypatch.setattr(Tensor, "__add__", lambda self, other: "ours")
    assert x + x == "ours"  # type: ignore[comparison-overlap]
    monkeypatch.undo()
    assert isinstance(x + x, Tensor)


@needs_core
def test_errors_and_warnings_are_at_the_users_line() -> None:
    x = lucid_gpu.rand(3)
    with pytest.raises(RuntimeError, match="size") as caught:
        x + lucid_gpu.rand(4)
    with in_python(), pytest.raises(RuntimeError) as wanted:
        x + lucid_gpu.rand(4)
    assert str(caught.value) == str(wanted.value)
    assert caught.traceback[0].path == Path(__file__)
    with pytest.raises(TypeError) as refused:
        lucid_gpu.matmul(x, 3)  # type: ignore[arg-type]
    assert refused.traceback[0].path == Path(__file__) and "matmul()" in str(refused.value)
    with pytest.warns(UserWarning) as warned:
        lucid_gpu.tensor(lucid_gpu.rand(2))
    assert warned[0].filename == __file__


@needs_core
def test_functions_behind_the_door_are_as_functions_are() -> None:
    matmul = lucid_gpu.matmul
    assert pickle.loads(pickle.dumps(matmul)) is matmul and copy.deepcopy(matmul) is matmul
    assert "other" in inspect.signature(matmul).parameters and inspect.isroutine(matmul)
    assert matmul.__doc__ and matmul.__doc__.startswith("Matrix product")
    assert "matmul" in repr(matmul) and weakref.ref(matmul)() is matmul
    a, b = lucid_gpu.rand(2, 3), lucid_gpu.rand(3, 2)
    assert matmul(a, other=b).shape == functools.partial(matmul, other=b)(a).shape == (2, 2)
    with pytest.raises(TypeError, match="matmul"):
        matmul(a, b, c=3)  # type: ignore[call-arg]
    try:
        raise KeyError("first")
    except KeyError as first:
        with pytest.raises(TypeError) as caught:
            matmul(a, "b")  # type: ignore[arg-type]
        context = caught.value.__context__
        assert context is first or (context is not None and context.__context__ is first)


@needs_core
def test_powers_do_not_depend_on_what_other_shapes_met() -> None:
    def found() -> list[bytes]:
        forget()
        few, many = lucid_gpu.tensor(_positive(5)), lucid_gpu.tensor(_positive(1000))
        for e in range(10):  # more exponents than stay numbers of the program
            (few ** (2.1 + e / 16)).array
        several = [3.0, -2.0, 4.0, 2.7, 1.0, 0.0, 0.5]
        return [(x**e).array.tobytes() for x in (many, few) for e in several]

    with in_python():
        wanted = found()
    assert found() == wanted


def _positive(count: int) -> Any:
    return (np.random.default_rng(count).random(count) + 0.5).astype(np.float32)


@needs_core
def test_nodes_have_one_name_whatever_becomes_of_numbers() -> None:
    x = lucid_gpu.rand(4).half().requires_grad_()
    names = set()
    for n in range(12):  # a number that changes from step to step becomes an argument
        y = x.fmod(0.3 + n / 8)
        names.add(y.grad_fn.name())
        y.detach().numpy()
    assert names == {"FmodBackward0"}


@needs_core
def test_a_step_may_begin_while_a_value_is_made() -> None:
    kept: list[int] = []
    held: list[Any] = []
    values: list[Any] = []

    def collecting(phase: str, _: Any) -> None:
        begin_step()
        kept.append(steps.count << 20)  # where the number of an earlier step was

    x, y = lucid_gpu.rand(3), lucid_gpu.rand(3)
    before, first = gc.get_threshold(), steps.count
    gc.callbacks.append(collecting)
    gc.set_threshold(1, 1 << 20, 1 << 20)
    try:
        for n in range(400):  # the collections come at other places each time
            held += [{n} for _ in range(n % 3)]
            values += [(x + y)._expr, (x * 2.5)._expr, (-x)._expr]
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(collecting)
    assert all(first <= value.since <= steps.count for value in values)


@needs_core
def test_operands_may_take_other_values_while_they_are_asked_for() -> None:
    x, y = lucid_gpu.zeros(20), lucid_gpu.zeros(4, 5)
    x.array, y.array
    view = y.view(20)

    class Restless(Tensor):
        """A tensor that takes another value when it is asked for an attribute."""

        def __getattribute__(self, name: str) -> Any:
            if name == "_siblings":
                Tensor.data.__set__(self, lucid_gpu.ones(20).clone())  # type: ignore[attr-defined]
            return super().__getattribute__(name)

    def collecting(phase: str, _: Any) -> None:
        x.data = lucid_gpu.ones(20)

    before = gc.get_threshold()
    for _ in range(30):
        restless = (x * 1.5 + 1).as_subclass(Restless)
        assert set(restless.numpy().tolist()) <= {1.0, 2.5}
        x.data = lucid_gpu.zeros(20)
        (x + 0.0).array
        y.fill_(0.0)
        gc.callbacks.append(collecting)
        gc.set_threshold(1, 1 << 20, 1 << 20)
        try:
            total = x + view
        finally:
            gc.set_threshold(*before)
            gc.callbacks.remove(collecting)
        assert total.tolist() in ([0.0] * 20, [1.0] * 20)


def at_each_collection(begin: Callable[[], tuple[Callable[[], Any], Callable[[], Any]]]) -> Any:
    """Begin anew for each collection that there is in a step, and do something else in that one.

    Parameters
    ----------
    begin : callable
        Gives the step, and what is done meanwhile.

    Yields
    ------
    What the step gave.
    """
    before, left = gc.get_threshold(), 0

    def collecting(phase: str, _: Any) -> None:
        nonlocal left
        left -= phase == "start"
        if phase == "start" and left == 0:
            meanwhile()

    for at in itertools.count(1):
        step, meanwhile = begin()
        left = at
        gc.callbacks.append(collecting)
        gc.set_threshold(1, 1 << 20, 1 << 20)
        try:
            given = step()
        finally:
            gc.set_threshold(*before)
            gc.callbacks.remove(collecting)
        if left > 0:
            return
        yield given


@needs_core
@pytest.mark.parametrize("op", [lambda x, w: lucid_gpu.cat([x, w]), Scaled.apply, Tensor.matmul])
def test_operands_may_be_written_while_an_op_is_recorded(op: Callable[..., Tensor]) -> None:
    w = lucid_gpu.ones(3, 3).requires_grad_()
    op(w, w).sum().backward()

    def begin() -> tuple[Callable[[], Any], Callable[[], Any]]:
        x = lucid_gpu.ones(3, 3)
        same = x.detach()
        return lambda: op(x, w), lambda: same.fill_(2.0)

    for result in at_each_collection(begin):
        result.detach().numpy()
        del result


# --- what is refused ------------------------------------------------------------------------------


@needs_core
def test_what_no_kernel_is_is_refused() -> None:
    loop = loops.loop_of(np.add, "ff->f")
    assert loop is not None
    call = (*loop, (0, 1, 2), (0, 0, 0), (4, 4, 4))
    inputs = (("f", 16, 4),) * 3
    walk = core.Walk(inputs, (), (), (call,), 4)
    ready = core.Ready(walk, (0, 1), (), (8,), (np.dtype("f"),), (None, None))
    below = core.Ready(walk, (-2, 1), (), (8,), (np.dtype("f"),), (None, None))
    fold = (2, *loop, 1, 8, 1, None, None, (), np.dtype("f"))
    assert core.Reduced(ready, (fold,), None)
    refused: list[tuple[Callable[..., Any], tuple[Any, ...], type[Exception]]] = [
        (core.Walk, (inputs, (), (), ((*loop, (0, 1, 3), (0, 0, 0), (4, 4, 4)),), 4), ValueError),
        (core.Walk, (inputs, (), (), ((*loop, (0, 1), (0, 0, 0), (4, 4, 4)),), 4), ValueError),
        (core.Walk, (inputs, (), (), ((*loop, (0,) * 9, (0,) * 9, (4,) * 9),), 4), ValueError),
        (core.Walk, ((("q", 16, 4),) * 3, (), (), (call,), 4), ValueError),
        (core.Walk, ((("f", -16, 4),) * 3, (), (), (call,), 4), ValueError),
        (core.Walk, (inputs * 30, (), (), (call,), 4), ValueError),
        (core.Walk, (inputs, ((-1, 0),), (), (call,), 4), ValueError),
        (core.Walk, (inputs, (8,), (), (call,), 4), ValueError),
        (core.Walk, (inputs, (), (), (call,), 0), ValueError),
        (core.Walk, (inputs, (), (), (1,), 4), (SystemError, TypeError)),  # type: ignore[list-item]
        (core.Walk, ([], (), (), (), 4), TypeError),
        (core.Ready, (walk, (0,), (), (8,), (np.dtype("f"),), (None,)), ValueError),
        (core.Ready, (walk, (0, 1), (), (8,), (np.dtype("d"),), (None, None)), ValueError),
        (core.Ready, (walk, (0, 1), (), (0,), (np.dtype("f"),), (None, None)), ValueError),
        (core.Ready, (walk, (0, 1), (), ("8",), (np.dtype("f"),), (None, None)), TypeError),
        (core.Ready, (walk, (0, 1), (), (8,), ("f",), (None, None)), ValueError),
        (core.Ready, (walk, (0, 1), (), (8,), (np.dtype("f"),), (None,)), ValueError),
        (core.Ready, (walk, (0, 1), (), (8,), (np.dtype("f"),), (None, ((8,), ()))), ValueError),
        (core.Method, (None, None, 1, False, False), ValueError),
        (core.Method, (len, None, 3, False, False), ValueError),
        (core.run, (walk, ()), TypeError),
        (core.Reduced, (walk, (), None), TypeError),
        (core.Reduced, (ready, (), None), ValueError),
        (core.Reduced, (ready, (1,), None), TypeError),
        (core.Reduced, (ready, (fold,) * 9, None), ValueError),
        (core.Reduced, (ready, ((3, *fold[1:]),), None), ValueError),
        (core.Reduced, (ready, ((-1, *fold[1:]),), None), ValueError),
        (core.Reduced, (ready, ((*fold[:4], 5, *fold[5:]),), None), ValueError),
        (core.Reduced, (ready, ((*fold[:3], 0, *fold[4:]),), None), ValueError),
        (core.Reduced, (ready, ((*fold[:-1], np.dtype("d")),), None), ValueError),
        (core.Reduced, (ready, ((*fold[:6], np.zeros(2, "f"), *fold[7:]),), None), ValueError),
        (core.Reduced, (ready, ((*fold[:7], "2", *fold[8:]),), None), TypeError),
        (core.Reduced, (ready, (fold,), below), ValueError),
        (core.Reduced, (ready, ((0, *fold[1:]),), None), ValueError),
    ]
    for function, arguments, error in refused:
        with pytest.raises(error):
            function(*arguments)
    with pytest.raises(TypeError, match="tensor is told already"):
        core.bind(tensor=int)
    with pytest.raises(TypeError, match="nobody asks for numbers"):
        core.bind(numbers=int)
    for name in ("STORED_FROM", "MOST_REDUCTIONS", "LARGE"):
        assert getattr(core, name) == getattr(scheduler, name)
    assert core.INFERENCE == INFERENCE


@needs_core
def test_leaves_that_are_not_those_of_a_plan_are_declined() -> None:
    from lucid_gpu.core.value import Cell

    loop = loops.loop_of(np.add, "ff->f")
    assert loop is not None
    walk = core.Walk((("f", 16, 4),) * 3, (), (), ((*loop, (0, 1, 2), (0,) * 3, (4,) * 3),), 4)
    ready = core.Ready(walk, (0, 1), (), (6,), (np.dtype("f"),), (None, None))
    x = np.arange(6, dtype=np.float32)
    (total,) = core.run(ready, (Cell(x), Cell(x)))
    np.testing.assert_array_equal(total, x + x)
    unaligned = np.frombuffer(b"\0" * 25, np.float32, 6, 1)
    others = [x[:5], x.astype(np.float64), np.arange(12, dtype=np.float32)[::2], unaligned, 1.0]
    others += [x.astype(">f4"), None, np.ma.array(x)]
    for other in others:
        assert core.run(ready, (Cell(x), Cell(other))) is None
    assert core.run(ready, (Cell(x),)) is None
    assert core.run(ready, (Cell(x), x)) is None
    rows = core.Walk(
        (("f", 12, 4), ("f", 8, 4), ("f", 8, 4)),
        (),
        (),
        ((*loop, (0, 1, 2), (0,) * 3, (4,) * 3),),
        2,
    )
    layouts = ((3, 2), (12, 4)), None
    ready = core.Ready(rows, (0, 1), (), (3, 2), (np.dtype("f"),), layouts)
    wide, flat = np.arange(9, dtype=np.float32).reshape(3, 3), x.reshape(3, 2)
    (total,) = core.run(ready, (Cell(wide[:, 1:]), Cell(flat)))
    np.testing.assert_array_equal(total, wide[:, 1:] + flat)
    for other in (wide[:2, 1:], flat, wide.astype(">f4")[:, 1:], wide.T[1:].T.T, 1.0):
        assert core.run(ready, (Cell(other), Cell(flat))) is None


# --- without it, and with sanitizers --------------------------------------------------------------

PROGRAM = """
import sys
sys.path[:0] = sys.argv[1:]
from lucid_gpu.tape.native import core
from tests.core.test_native import Graphs, Steps
from tests.core.test_native_memory import History
import hashlib
import warnings
warnings.simplefilter("ignore")
digest = hashlib.sha256()
for seed in [*range(60), *range(60)]:
    digest.update(repr(Steps(seed).run()).encode())
    digest.update(repr(Graphs(seed).run()).encode())
    digest.update(repr(History(seed).run()).encode())
print(core is not None, digest.hexdigest())
"""
COLLECTING = """
import lucid_gpu
from tests.core import test_native, test_native_memory
test_native.test_a_step_may_begin_while_a_value_is_made()
test_native.test_operands_may_take_other_values_while_they_are_asked_for()
for op in (lambda x, w: lucid_gpu.cat([x, w]), test_native.Scaled.apply):
    test_native.test_operands_may_be_written_while_an_op_is_recorded(op)
for view in test_native_memory.WRITTEN_MEANWHILE:
    test_native_memory.test_memory_may_be_written_while_it_is_viewed(view)
"""
ROOT = Path(__file__).parents[2]


def printed(**environment: str) -> str:
    """What the program prints in a process of its own."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(ROOT)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    return run.stdout.strip()


@needs_core
@pytest.mark.slow
def test_without_it_programs_give_the_same_bits() -> None:
    with_it = printed()
    assert with_it.startswith("True ")
    assert printed(LUCID_NATIVE_CORE="0") == with_it.replace("True", "False")


@needs_core
@pytest.mark.slow
def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    """Address and undefined behavior, with the table and the kernels in use."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("the sanitizers are gcc's")
    library = subprocess.run(
        [compiler, "-print-file-name=libasan.so"], capture_output=True, text=True
    ).stdout.strip()
    if not os.path.isabs(library):
        pytest.skip("gcc has no libasan here")
    built = tmp_path / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"
    includes = [f"-I{p}" for p in (np.get_include(), sysconfig.get_paths()["include"])]
    flags = "-g -O1 -std=c11 -shared -fPIC -Wall -Wextra -Werror -fsanitize=address,undefined"
    subprocess.run(
        [compiler, *flags.split(), "-fno-sanitize-recover=undefined", *includes]
        + [*map(str, SOURCES), "-o", str(built)],
        check=True,
    )
    loader = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("lucid_gpu._core", {str(built)!r})
module = importlib.util.module_from_spec(spec)
sys.modules["lucid_gpu._core"] = module
spec.loader.exec_module(module)
"""
    run = subprocess.run(
        [sys.executable, "-c", loader + PROGRAM + COLLECTING, str(ROOT)],
        env={
            **os.environ,
            "LD_PRELOAD": library,
            "ASAN_OPTIONS": "detect_leaks=0",
            "PYTHONMALLOC": "malloc",
        },
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert run.returncode == 0, run.stderr[-6000:]
    assert run.stdout.strip() == printed()
