"""Section Anomaly mode of the specification: what it says, what it leaves alone."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import lucid_gpu
from lucid_gpu.core import engine
from lucid_gpu.fusion import Eager, eager
from tests.oracle import gives, modules, refuses

NAN = float("nan")


@pytest.fixture(autouse=True)
def off_afterwards() -> Iterator[None]:
    yield
    for m, _ in modules():
        m.autograd.set_detect_anomaly(False)
        assert not m.is_anomaly_enabled()


@contextmanager
def detecting(m: Any, check_nan: bool = True) -> Iterator[None]:
    """Anomaly mode without the warning that it is on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mode = m.autograd.detect_anomaly(check_nan)
    with mode:
        yield


def leaf(m: Any, device: str, *values: float) -> Any:
    return m.tensor(list(values), device=device, requires_grad=True)


def said(m: Any, function: Any) -> tuple[str, list[str]]:
    """The error of a function under anomaly mode, and what was warned of."""
    with warnings.catch_warnings(record=True) as noted, detecting(m):
        warnings.simplefilter("always")
        with pytest.raises(Exception) as caught:
            function()
    return str(caught.value), [str(w.message) for w in noted]


# --- what the error says --------------------------------------------------------------------------


def gives_nan(m: Any) -> Any:
    class GivesNaN(m.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any, n: int, y: Any) -> Any:
            return x * y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g, None, g * NAN

    return GivesNaN


SCENARIOS: dict[str, tuple[Any, str]] = {
    "sqrt of a negative number": (
        lambda m, d: (leaf(m, d, -1.0, 2.0).sqrt() * 3).sum().backward(),
        "Function 'SqrtBackward0' returned nan values in its 0th output.",
    ),
    "inside a long expression": (
        lambda m, d: ((leaf(m, d, -1.0, 2.0) * 2).sqrt() * 3 + 1).sum().backward(),
        "Function 'SqrtBackward0' returned nan values in its 0th output.",
    ),
    "0 * inf": (
        lambda m, d: (leaf(m, d, 0.0).sqrt() * 0).sum().backward(),
        "Function 'SqrtBackward0' returned nan values in its 0th output.",
    ),
    "the second operand": (
        lambda m, d: (m.tensor([NAN, 1.0], device=d) * leaf(m, d, 0.0, 2.0)).sum().backward(),
        "Function 'MulBackward0' returned nan values in its 1th output.",
    ),
    "a matmul": (
        lambda m, d: (m.tensor([[NAN]], device=d) @ leaf(m, d, 0.0).reshape(1, 1)).sum().backward(),
        "Function 'MmBackward0' returned nan values in its 1th output.",
    ),
    "a custom function, numbers not counted": (
        lambda m, d: gives_nan(m).apply(leaf(m, d, 1.0), 3, leaf(m, d, 2.0)).backward(),
        "Function 'GivesNaNBackward' returned nan values in its 1th output.",
    ),
    "a cotangent": (
        lambda m, d: leaf(m, d, 1.0).neg().backward(m.tensor([NAN], device=d)),
        "Function 'NegBackward0' returned nan values in its 0th output.",
    ),
    "by grad()": (
        lambda m, d: m.autograd.grad(leaf(m, d, -1.0).log().sqrt(), leaf(m, d, 1.0)),
        "appears to not have been used in the graph",
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_nan_error_names_the_backward_and_the_output_index(name: str, device: str) -> None:
    function, words = SCENARIOS[name]

    def scenario(m: Any, device: str) -> None:
        with warnings.catch_warnings(), detecting(m):
            warnings.simplefilter("ignore")
            function(m, device)

    refuses(RuntimeError, words, scenario, device)


def test_a_hook_that_makes_nan_is_blamed_on_its_node(device: str) -> None:
    def scenario(m: Any, device: str) -> None:
        with warnings.catch_warnings(), detecting(m):
            warnings.simplefilter("ignore")
            y = leaf(m, device, 1.0).neg()
            y.register_hook(lambda g: g * NAN)
            y.backward()

    refuses(RuntimeError, "Function 'NegBackward0' returned nan values", scenario, device)


def test_infinities_are_no_anomaly(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        with detecting(m):
            x = leaf(m, device, 0.0)
            x.sqrt().backward()
        return x.grad

    gives([float("inf")], scenario, device)


# --- the trace of the forward call ----------------------------------------------------------------


def the_culprit(x: Any) -> Any:
    return x.sqrt()  # this line


def test_it_prints_the_forward_trace(device: str) -> None:
    for m, where in modules(device):
        _, warned = said(
            m, lambda m=m, d=where: the_culprit(leaf(m, d, -1.0) * 2).mul(3).backward()
        )
        (text,) = [w for w in warned if w.startswith("Error detected in")]
        assert text.startswith(
            "Error detected in SqrtBackward0. Traceback of forward call that caused the error:"
        )
        assert "in the_culprit" in text and "# this line" in text
        if m is lucid_gpu:
            assert text.rstrip().endswith("# this line")  # nothing of the package's inside


def test_it_prints_the_trace_of_whatever_fails(device: str) -> None:
    for m, where in modules(device):

        class Fails(m.autograd.Function):  # type: ignore[misc,name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 2

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                raise KeyError("mine")

        def call(f: Any = Fails, m: Any = m, d: str = where) -> None:
            f.apply(leaf(m, d, 1.0)).backward()

        error, warned = said(m, call)
        assert error == "'mine'"
        assert "Error detected in FailsBackward." in warned[0]
        assert "f.apply(leaf(m, d, 1.0)).backward()" in warned[0]


def test_an_op_called_before_has_no_trace(device: str) -> None:
    for m, where in modules(device):
        for read in (False, True):
            y = leaf(m, where, -1.0).sqrt()
            if read:
                y.tolist()
            error, warned = said(m, y.backward)
            assert "SqrtBackward0" in error
            assert warned == [w for w in warned if "No forward pass information available." in w]
            assert len(warned) == 1


def test_it_prints_the_parent_chain(device: str) -> None:
    for m, where in modules(device):

        class Once(m.autograd.Function):  # type: ignore[misc,name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x * 2

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return Twice.apply(g, ctx.saved_tensors[0])

        class Twice(m.autograd.Function):  # type: ignore[misc,name-defined]
            @staticmethod
            def forward(ctx: Any, g: Any, x: Any) -> Any:
                return g * x

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g, g * NAN

        def call(f: Any = Once, m: Any = m, d: str = where) -> None:
            x = leaf(m, d, 1.0)
            (g,) = m.autograd.grad(f.apply(x), x, create_graph=True)
            g.backward()

        error, warned = said(m, call)
        assert "Function 'TwiceBackward' returned nan values in its 1th output." in error
        first, second = warned[-2:]
        assert "Error detected in TwiceBackward." in first
        assert "return Twice.apply(g, ctx.saved_tensors[0])" in first
        assert "Previous calculation was induced by OnceBackward. Traceback of" in second
        assert "f.apply(x)" in second


def test_nodes_note_their_trace_and_parent(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        with detecting(m):
            x = leaf(m, device, 1.0)
            y = x**3
            (g,) = m.autograd.grad(y, x, create_graph=True)
        trace = y.grad_fn.metadata["traceback_"]
        parent = g.grad_fn.metadata["parent_"]
        return (
            "y = x**3" in "".join(trace),
            "parent_" in y.grad_fn.metadata,
            parent is y.grad_fn,
            (x * 2).grad_fn.metadata,
        )

    gives([True, False, True, {}], scenario, device)


# --- check_nan and nesting ------------------------------------------------------------------------


def test_check_nan_false_lets_nan_pass_but_explains_errors(device: str) -> None:
    for m, where in modules(device):
        x = leaf(m, where, -1.0)
        with warnings.catch_warnings(record=True) as noted, detecting(m, check_nan=False):
            warnings.simplefilter("always")
            x.sqrt().backward()
            assert x.grad.isnan().all()
            y = x * 2
            y.register_hook(lambda g: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                y.backward()
        assert ["Error detected in MulBackward0" in str(w.message) for w in noted] == [True]


def test_nested_check_nan_is_respected(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        def state() -> list[Any]:
            return [m.is_anomaly_enabled(), m.is_anomaly_check_nan_enabled(), raises()]

        def raises() -> bool:
            try:
                leaf(m, device, -1.0).sqrt().backward()
            except RuntimeError:
                return True
            return False

        found = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with detecting(m, check_nan=True):
                found.append(state())
                with detecting(m, check_nan=False):
                    found.append(state())
                    with m.autograd.set_detect_anomaly(False):
                        found.append(state())
                    found.append(state())
                    with m.autograd.set_detect_anomaly(True, check_nan=True):
                        found.append(state())
                    found.append(state())
                found.append(state())
            found.append(state())
        return found

    checks, lets, off = [True, True, True], [True, False, False], [False, True, False]
    gives([checks, lets, off, lets, checks, lets, checks, off], scenario, device)


def test_set_detect_anomaly_switches_as_a_function_too(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        found = [m.is_anomaly_enabled()]
        m.autograd.set_detect_anomaly(True)
        found.append(m.is_anomaly_enabled())
        m.autograd.set_detect_anomaly(False)
        found.append(m.is_anomaly_enabled())
        return found

    gives([False, True, False], scenario, device)


def test_switching_it_on_warns() -> None:
    for m, _ in modules():
        with pytest.warns(UserWarning, match="Anomaly Detection has been enabled."):
            m.autograd.detect_anomaly()
        assert not m.is_anomaly_enabled()  # until it is entered


# --- what it leaves alone -------------------------------------------------------------------------


def training(m: Any, device: str) -> Any:
    w = m.tensor([[0.5, -0.25], [0.125, 1.0]], device=device, requires_grad=True)
    b = m.zeros(2, device=device, requires_grad=True)
    x = m.tensor([[1.0, 2.0], [-1.0, 0.5]], device=device)
    h = (x @ w + b).relu()
    h.register_hook(lambda g: g * 2)
    loss = ((h * h + h).sum(1) ** 2).mean()
    (gw,) = m.autograd.grad(loss, w, create_graph=True)
    (gw.square().sum() + loss).backward()
    b.mul(1)
    return loss.detach(), gw.detach(), w.grad, b.grad


def test_results_are_what_they_are_without(device: str) -> None:
    plainly = [t.tolist() for t in training(lucid_gpu, device)]

    def scenario(m: Any, device: str) -> Any:
        with detecting(m):
            return training(m, device)

    gives(plainly, scenario, device)


def test_every_thread_is_in_the_mode(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        found: list[Any] = []

        def work() -> None:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    (leaf(m, device, -1.0).sqrt() * 2).backward()
            except RuntimeError as error:
                found.append("SqrtBackward0" in str(error))

        with detecting(m):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        return found

    gives([True], scenario, device)


def test_nothing_is_left_of_it_when_off(device: str) -> None:
    """Making a node and running one is what it was; ops fuse again."""
    x = lucid_gpu.ones(3, device=device, requires_grad=True)
    with eager(False):
        with detecting(lucid_gpu):
            assert engine.watching.by is not None
            (x * 2 + 1).sum().backward()
        assert engine.watching.by is None and not Eager.on
        y = x * 2 + 1
        assert not y._expr.program.is_load  # pending
        assert "_metadata" not in vars((y * 3).grad_fn)


def test_it_gives_eager_mode_back_as_it_was() -> None:
    before = Eager.on
    for value in (True, False):
        with eager(value):
            with detecting(lucid_gpu):
                assert Eager.on
            assert Eager.on is value
    assert Eager.on is before


def test_an_error_inside_switches_it_off(device: str) -> None:
    with pytest.raises(KeyError), detecting(lucid_gpu):
        raise KeyError("mine")
    assert not lucid_gpu.is_anomaly_enabled()


def test_in_place_ops_and_views_keep_their_history_under_it(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        with detecting(m):
            x = leaf(m, device, 1.0, 2.0)
            y = x * 2
            y.mul_(x)
            y[0] = 3.0
            v = y[1:]
            v.add_(x[:1])
            y.sum().backward()
        return y, x.grad

    gives([[3.0, 9.0], [1.0, 8.0]], scenario, device)


def test_saved_tensor_hooks_work_under_it(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        packed: list[Any] = []

        def pack(t: Any) -> Any:
            packed.append(t.tolist())
            return t

        with detecting(m), m.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            x = leaf(m, device, 1.0, 2.0)
            (x * x).sum().backward()
        return packed, x.grad

    gives([[[1.0, 2.0], [1.0, 2.0]], [2.0, 4.0]], scenario, device)
