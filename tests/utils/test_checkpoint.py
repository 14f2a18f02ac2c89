"""Checkpoints: computed again once a backward pass, held by nobody in between, freed afterwards."""

from __future__ import annotations

import contextlib
import gc
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.core.value import Cell
from lucid_gpu.fusion import eager
from lucid_gpu.utils.checkpoint import (
    CheckpointError,
    checkpoint,
    checkpoint_sequential,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)
from tests.autograd.test_saved_hooks import on_both
from tests.oracle import modules, plain, same_error, torch_module


def module_of(module: Any) -> Any:
    """The checkpoint module of either."""
    import importlib

    return importlib.import_module(f"{module.__name__}.utils.checkpoint")


def wrapped(module: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A call under a checkpoint that is not re-entrant."""
    return module_of(module).checkpoint(function, *args, use_reentrant=False, **kwargs)


class Job:
    """A small network, its input, and a log of what was called."""

    def __init__(self, module: Any) -> None:
        def leaf(*shape: int) -> Any:
            values = np.arange(float(np.prod(shape))).reshape(shape) / 10 - 0.4
            return module.tensor(values).requires_grad_()

        self.module = module
        self.x, self.w1, self.w2 = leaf(2, 3), leaf(3, 4), leaf(4, 2)
        self.log: list[Any] = []

    def network(self, x: Any, scale: float = 1.0, extra: Any = None) -> Any:
        self.log.append("network")
        h = (x @ self.w1).tanh() * scale
        if extra is not None:
            h = h + extra["bias"]
        return (h.exp() @ self.w2).sin()

    def note_gradients(self) -> None:
        for leaf in (self.x, self.w1, self.w2):
            self.log.append(None if leaf.grad is None else leaf.grad.tolist())
            leaf.grad = None


# --- gradients ------------------------------------------------------------------------------------


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradients_are_those_without_a_checkpoint(reentrant: bool) -> None:
    ours = Job(lucid_gpu)
    y = ours.network(ours.x)
    y.sum().backward()
    ours.note_gradients()
    other = Job(lucid_gpu)
    z = checkpoint(other.network, other.x, use_reentrant=reentrant)
    np.testing.assert_allclose(z.tolist(), y.tolist())
    z.sum().backward()
    other.note_gradients()
    assert other.log[:2] == ["network", "network"]
    for a, b in zip(other.log[2:], ours.log[1:], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_recomputed_once_per_backward() -> None:
    def scenario(module: Any) -> Any:
        job = Job(module)
        y = wrapped(module, job.network, job.x)
        y.sum().backward(retain_graph=True)
        job.note_gradients()
        y.sum().backward()
        job.note_gradients()
        try:
            y.sum().backward()
        except RuntimeError as error:
            job.log.append("second time" in str(error))
        return job.log

    on_both(scenario)


def test_keyword_arguments_and_dicts() -> None:
    def scenario(module: Any) -> Any:
        job = Job(module)
        bias = module.ones(4, dtype=module.float64).requires_grad_()
        wrapped(module, job.network, job.x, scale=2.0).sum().backward()
        job.note_gradients()
        wrapped(module, job.network, job.x, extra={"bias": bias}).sum().backward()
        job.note_gradients()
        job.log.append(bias.grad.tolist())

        def gives_dict(x: Any) -> Any:
            h = x.exp()
            return {"a": h.sin(), "b": [h * 2, 3]}

        found = wrapped(module, gives_dict, job.x)
        (found["a"] * found["b"][0]).sum().backward()
        job.note_gradients()
        return job.log

    on_both(scenario)


def test_autograd_grad_and_double_backward() -> None:
    def scenario(module: Any) -> Any:
        job = Job(module)
        y = wrapped(module, job.network, job.x)
        (g,) = module.autograd.grad(y.sum(), job.x, create_graph=True)
        job.log.append(g.tolist())
        (g * g).sum().backward()
        job.note_gradients()
        return job.log

    on_both(scenario)


def nested(module: Any, job: Job) -> Callable[[Any], Any]:
    def first(x: Any) -> Any:
        job.log.append("first")
        return (x.exp().sin() @ job.w1).tanh()

    def second(x: Any) -> Any:
        job.log.append("second")
        return wrapped(module, third, x.exp()).sin()

    def third(x: Any) -> Any:
        job.log.append("third")
        return x.cos().exp()

    def outer(x: Any) -> Any:
        job.log.append("outer")
        h = wrapped(module, first, x.cos())
        return wrapped(module, second, h.cos()).cos()

    return outer


@pytest.mark.parametrize("early_stop", [True, False])
def test_nesting(early_stop: bool) -> None:
    def scenario(module: Any) -> Any:
        job = Job(module)
        with module_of(module).set_checkpoint_early_stop(early_stop):
            y = wrapped(module, nested(module, job), job.x)
        y.sum().backward()
        job.note_gradients()
        with module_of(module).set_checkpoint_early_stop(early_stop):
            y = wrapped(module, nested(module, job), job.x)
        (g,) = module.autograd.grad(y.sum(), job.x, create_graph=True)
        (g * g).sum().backward()
        job.note_gradients()
        return job.log

    on_both(scenario)


@pytest.mark.parametrize("retain", [True, False])
def test_backward_inside_a_checkpoint(retain: bool) -> None:
    def scenario(module: Any) -> Any:
        job = Job(module)

        def function(x: Any) -> Any:
            job.log.append("called")
            y = x.sin()
            z = y.cos()
            (g,) = module.autograd.grad(z.sum(), x, retain_graph=retain)
            return (x.cos() * g, z) if retain else (x.cos() * g,)

        results = wrapped(module, function, job.x)
        sum(r.sum() for r in results).backward()
        job.note_gradients()
        return job.log

    on_both(scenario)


def test_functions_and_views_and_writes_inside() -> None:
    def scenario(module: Any) -> Any:
        class Cube(module.autograd.Function):  # type: ignore[name-defined,misc]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                y = x**3
                ctx.save_for_backward(x, y)
                return y

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                x, y = ctx.saved_tensors
                return g * y / x * 3

        job = Job(module)

        def function(x: Any) -> Any:
            h = Cube.apply(x) * 2
            h.add_(x)
            h[0].mul_(3)
            return h.view(-1).exp().sum(0) + h.t()[1].tanh().sum()

        wrapped(module, function, job.x + 2).backward()
        job.note_gradients()
        return job.log

    on_both(scenario)


def test_leaves_the_function_closes_over_and_hooks_inside() -> None:
    def scenario(module: Any) -> Any:
        job = Job(module)

        def function(x: Any) -> Any:
            h = x.exp() @ job.w1
            h.register_hook(lambda g: g * 2)
            return h.sin()

        job.x.requires_grad_(False)  # no argument wants a gradient
        wrapped(module, function, job.x).sum().backward()
        job.note_gradients()
        job.x.requires_grad_()
        wrapped(module, function, job.x).sum().backward()
        job.note_gradients()
        return job.log

    on_both(scenario)


def test_hooks_around_and_inside_a_checkpoint() -> None:
    def scenario(module: Any) -> Any:
        hooks = module.autograd.graph.saved_tensors_hooks
        job = Job(module)

        def pack(t: Any) -> Any:
            job.log.append(list(t.shape))
            return t

        def function(x: Any) -> Any:
            h = x.exp()
            with hooks(pack, lambda t: t):
                h = h.sin()
            return h.cos()

        with hooks(pack, lambda t: t):
            y = wrapped(module, function, job.x * 2)
        job.log.append("forward done")
        y.sum().backward()
        job.note_gradients()
        return job.log

    on_both(scenario)


def test_a_saved_value_can_be_looked_at() -> None:
    def scenario(module: Any) -> Any:
        job = Job(module)
        y = wrapped(module, lambda x: x.exp(), job.x)
        first, second = y.grad_fn._saved_result, y.grad_fn._saved_result
        return first.tolist(), second.tolist(), first.grad_fn is y.grad_fn

    on_both(scenario)


def test_without_grad_it_is_a_plain_call() -> None:
    job = Job(lucid_gpu)
    with lucid_gpu.no_grad():
        y = checkpoint(job.network, job.x, use_reentrant=False)
    assert not y.requires_grad and job.log == ["network"]


def test_backward_on_another_thread_recomputes_there() -> None:
    import threading

    ours, other = Job(lucid_gpu), Job(lucid_gpu)
    ours.network(ours.x).sum().backward()
    y = checkpoint(other.network, other.x, use_reentrant=False).sum()
    thread = threading.Thread(target=y.backward)
    thread.start()
    thread.join()
    np.testing.assert_allclose(other.x.grad.tolist(), ours.x.grad.tolist(), atol=1e-12)


# --- random numbers -------------------------------------------------------------------------------


@pytest.mark.parametrize("reentrant", [False, True])
def test_rng_state_is_kept(reentrant: bool, device: str) -> None:
    lucid_gpu.manual_seed(5)
    x = lucid_gpu.ones(1000, device=device, requires_grad=True)

    def drops(x: Any) -> Any:
        return lucid_gpu.nn.functional.dropout(x.exp(), 0.5).tanh()

    y = checkpoint(drops, x, use_reentrant=reentrant)
    after = lucid_gpu.rand(3).tolist()
    y.sum().backward()
    then = lucid_gpu.rand(3).tolist()
    kept = np.array(y.tolist()) != 0
    assert (np.array(x.grad.tolist()) != 0).tolist() == kept.tolist()
    lucid_gpu.manual_seed(5)
    drops(x)
    assert lucid_gpu.rand(3).tolist() == after
    assert lucid_gpu.rand(3).tolist() == then


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_was_cast_is_cast_again(reentrant: bool) -> None:
    def run(m: Any, where: str) -> Any:
        checkpointed = m.utils.checkpoint.checkpoint
        net = m.nn.Sequential(m.nn.Linear(2, 2), m.nn.Tanh(), m.nn.Linear(2, 2))
        with m.no_grad():
            for p in net.parameters():
                p.fill_(0.5)
        x = m.ones(3, 2, requires_grad=True)
        with m.autocast("cpu", dtype=m.bfloat16):
            y = checkpointed(net, x * 2, use_reentrant=reentrant)
        with m.autocast("cpu", dtype=m.float16):
            z = checkpointed(net, x * 2, use_reentrant=reentrant)
        (y.sum() + z.float().sum()).backward()
        return [str(t.dtype).rpartition(".")[2] for t in (y, z)], x.grad

    found = [plain(run(m, where)) for m, where in modules()]
    assert all(f == found[0] for f in found)
    assert found[0][0] == ["bfloat16", "float16"]


def test_rng_state_is_not_kept_where_it_need_not_be() -> None:
    drawn: list[Any] = []

    def draws(x: Any) -> Any:
        drawn.append(lucid_gpu.rand(2).tolist())
        return x.exp()

    x = lucid_gpu.ones(2, requires_grad=True)
    checkpoint(draws, x, use_reentrant=False, preserve_rng_state=False).sum().backward()
    checkpoint(draws, x, use_reentrant=False).sum().backward()
    assert drawn[0] != drawn[1] and drawn[2] == drawn[3]


# --- early stop -----------------------------------------------------------------------------------


@pytest.mark.parametrize("early_stop", [True, False])
def test_early_stop(early_stop: bool) -> None:
    def scenario(module: Any) -> Any:
        log: list[str] = []

        def function(x: Any) -> Any:
            log.append("start")
            y = x.exp()
            log.append("saved")
            z = y + 1
            log.append("end")
            return z

        job = Job(module)
        wrapped(module, function, job.x, early_stop=early_stop).sum().backward()
        with module_of(module).set_checkpoint_early_stop(not early_stop):
            y = wrapped(module, function, job.x, early_stop=early_stop)
        y.sum().backward()
        return log

    on_both(scenario)


def test_a_stop_passes_through_the_users_excepts_but_not_his_finallys() -> None:
    log: list[str] = []

    def careful(x: Any) -> Any:
        try:
            return x.exp() + 1
        except Exception:
            log.append("swallowed")
            return x
        finally:
            log.append("finally")

    x = lucid_gpu.ones(2, requires_grad=True)
    checkpoint(careful, x, use_reentrant=False).sum().backward()
    assert log == ["finally", "finally"]
    np.testing.assert_allclose(x.grad.tolist(), np.e)


# --- errors ---------------------------------------------------------------------------------------


def changing(module: Any, *answers: Any) -> Callable[[Any], Any]:
    """A function that does something else each time."""
    rest = list(answers)
    return lambda x: rest.pop(0)(x)


def test_a_different_number_of_saved_tensors_is_refused() -> None:
    def fewer(module: Any) -> None:
        f = changing(module, lambda x: x.exp().sin(), lambda x: x.exp())
        wrapped(module, f, module.ones(2, requires_grad=True)).sum().backward()

    def more(module: Any) -> None:
        f = changing(module, lambda x: x.exp(), lambda x: x.exp().sin())
        y = wrapped(module, f, module.ones(2, requires_grad=True), early_stop=False)
        y.sum().backward()

    def more_unseen(module: Any) -> Any:
        f = changing(module, lambda x: x.exp(), lambda x: x.exp().sin())
        x = module.ones(2, requires_grad=True)
        wrapped(module, f, x).sum().backward()
        return x.grad.tolist()

    same_error_name(fewer, "A different number of tensors was saved during the original forward")
    same_error_name(fewer, "saved during forward: 2", "saved during recomputation: 1")
    same_error_name(more, "trying to save more tensors during recomputation than during")
    on_both(more_unseen)


def same_error_name(function: Callable[[Any], Any], *words: str) -> None:
    """As `same_error`, for an error that both modules define."""
    for module in (torch_module(), lucid_gpu):
        with pytest.raises(module_of(module).CheckpointError) as error:
            function(module)
        assert all(word in str(error.value) for word in words), error.value


def test_other_shapes_are_refused_unless_nobody_checks() -> None:
    def other(module: Any, **settings: Any) -> None:
        f = changing(module, lambda x: x.exp(), lambda x: x[:1].exp())
        wrapped(module, f, module.ones(2, requires_grad=True), **settings).sum().backward()

    same_error_name(
        other,
        "Recomputed values for the following tensors have different metadata than during the",
        "tensor at position 0",
    )
    other(lucid_gpu, determinism_check="none")
    same_error(lambda m: other(m, determinism_check="some"), "determinism_check should be one of")


def test_debug_shows_the_lines_that_saved() -> None:
    f = changing(lucid_gpu, lambda x: x.exp().sin(), lambda x: x.exp())
    x = lucid_gpu.ones(2, requires_grad=True)
    with set_checkpoint_debug_enabled(True):
        y = checkpoint(f, x, use_reentrant=False)
    with pytest.raises(CheckpointError, match="Saved in the original forward") as error:
        y.sum().backward()
    assert str(error.value).count("test_checkpoint.py") >= 3
    assert "x.exp().sin()" in str(error.value)


def test_a_second_unpack_in_one_backward_is_refused() -> None:
    def twice(module: Any) -> None:
        class Careless(module.autograd.Function):  # type: ignore[name-defined,misc]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x * 2

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * ctx.saved_tensors[0] + ctx.saved_tensors[0]

        x = module.ones(2, requires_grad=True)
        wrapped(module, lambda x: Careless.apply(x.exp()), x).sum().backward()

    same_error_name(twice, "Unpack is being triggered for a tensor that was already unpacked once")


def test_an_argument_written_since_is_refused() -> None:
    def written(module: Any) -> None:
        x = module.ones(2, requires_grad=True)
        h = x * 1
        h.tolist()
        y = wrapped(module, lambda h: h.exp(), h)
        h.add_(1)
        y.sum().backward()

    same_error(written, "modified by an inplace operation")


class OwnError(Exception):
    pass


def test_the_functions_own_error_arrives_unchanged() -> None:
    def fails(x: Any) -> Any:
        raise OwnError("mine")

    x = lucid_gpu.ones(2, requires_grad=True)
    y = checkpoint(changing(lucid_gpu, lambda x: x.exp(), fails), x, use_reentrant=False)
    with pytest.raises(OwnError, match="^mine$"):
        y.sum().backward()
    with pytest.raises(OwnError):
        checkpoint(fails, x, use_reentrant=False)
    assert lucid_gpu.is_grad_enabled()
    x.exp().sum().backward()  # the engine goes on


def test_context_fn_gives_a_context_for_each_run() -> None:
    def scenario(module: Any) -> Any:
        job = Job(module)

        @contextlib.contextmanager
        def saying(what: str) -> Iterator[None]:
            job.log.append(f"enter {what}")
            try:
                yield
            finally:
                job.log.append(f"leave {what}")

        y = wrapped(
            module, job.network, job.x, context_fn=lambda: (saying("first"), saying("again"))
        )
        y.sum().backward()
        return job.log

    on_both(scenario)


# --- re-entrant -----------------------------------------------------------------------------------


def test_use_reentrant_none_warns_and_means_true() -> None:
    def scenario(module: Any) -> Any:
        job = Job(module)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            y = module_of(module).checkpoint(job.network, job.x)
            module_of(module).checkpoint_sequential([job.network], 1, job.x)
        text = [str(w.message) for w in seen]
        assert all("use_reentrant parameter should be passed explicitly" in t for t in text)
        return len(text), y.grad_fn.name()

    on_both(scenario)


def test_reentrant_refuses_what_pytorch_refuses() -> None:
    def through_grad(module: Any) -> None:
        job = Job(module)
        y = module_of(module).checkpoint(job.network, job.x, use_reentrant=True)
        module.autograd.grad(y.sum(), job.x)

    def through_inputs(module: Any) -> None:
        job = Job(module)
        y = module_of(module).checkpoint(job.network, job.x, use_reentrant=True)
        y.sum().backward(inputs=[job.x])

    def detached(module: Any) -> None:
        job = Job(module)
        y = module_of(module).checkpoint(lambda x: x.detach() * 2, job.x, use_reentrant=True)
        y.sum().backward()

    def with_keywords(module: Any) -> None:
        job = Job(module)
        module_of(module).checkpoint(job.network, job.x, use_reentrant=True, scale=2)

    def with_debug(module: Any) -> None:
        job = Job(module)
        module_of(module).checkpoint(job.network, job.x, use_reentrant=True, debug=True)

    for refused in (through_grad, through_inputs):
        same_error(refused, "is incompatible with .grad() or passing an `inputs` parameter")
    same_error(
        detached, "none of output has requires_grad=True, this checkpoint() is not necessary"
    )
    same_error(with_keywords, "Unexpected keyword arguments: scale")
    same_error(with_debug, "Passing `context_fn` or `debug` is only supported when")


def test_reentrant_warns_where_no_input_wants_a_gradient() -> None:
    x = lucid_gpu.ones(2)
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        checkpoint(lambda x: x.exp(), x, use_reentrant=True)


def test_reentrant_takes_several_results_and_other_arguments() -> None:
    def scenario(module: Any) -> Any:
        job = Job(module)

        def function(x: Any, n: int, nothing: Any, w: Any) -> Any:
            return x * n, (x @ w).exp(), 3

        a, b, c = module_of(module).checkpoint(function, job.x, 2, None, job.w1, use_reentrant=True)
        (a.sum() * b.sum()).backward()
        job.note_gradients()
        return c, job.log

    on_both(scenario)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_sequential(reentrant: bool) -> None:
    def scenario(module: Any) -> Any:
        job = Job(module)
        log = job.log

        def step(name: str, f: Callable[[Any], Any]) -> Callable[[Any], Any]:
            def run(x: Any) -> Any:
                log.append(name)
                return f(x)

            return run

        steps = [
            step("a", lambda x: x.exp()),
            step("b", lambda x: x @ job.w1),
            step("c", lambda x: x.tanh()),
            step("d", lambda x: x @ job.w2),
            step("e", lambda x: x.sin()),
        ]
        y = module_of(module).checkpoint_sequential(steps, 2, job.x, use_reentrant=reentrant)
        log.append("backward")
        y.sum().backward()
        job.note_gradients()
        return log

    on_both(scenario)


def test_checkpoint_sequential_takes_a_sequential() -> None:
    model = lucid_gpu.nn.Sequential(
        lucid_gpu.nn.Linear(3, 4), lucid_gpu.nn.Tanh(), lucid_gpu.nn.Linear(4, 2)
    )
    x = lucid_gpu.rand(5, 3, requires_grad=True)
    model(x).sum().backward()
    expected = [p.grad.tolist() for p in model.parameters()]
    model.zero_grad()
    checkpoint_sequential(model, 2, x, use_reentrant=False).sum().backward()
    for p, e in zip(model.parameters(), expected, strict=True):
        np.testing.assert_allclose(p.grad.tolist(), e, rtol=1e-5)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: depth"):
        checkpoint_sequential(model, 2, x, use_reentrant=False, depth=3)


# --- memory ---------------------------------------------------------------------------------------

ROWS, COLUMNS = 37, 16


def large_arrays() -> int:
    """How many arrays of the activations' size are alive."""
    found = {}
    for o in gc.get_objects():
        if type(o) is Cell and getattr(o.array, "size", 0) == ROWS * COLUMNS:
            base = o.array if o.array.base is None else o.array.base
            found[id(base)] = base
    return len(found)


def block(w: Any) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        h = (x @ w).relu()
        h = lucid_gpu.nn.functional.layer_norm(h, (COLUMNS,))
        h = (h.tanh() * h) @ w
        return lucid_gpu.nn.functional.dropout(h.sigmoid() * 2 + 1, 0.1)

    return run


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("early_stop", [True, False])
def test_between_forward_and_backward_only_the_arguments_are_held(
    reentrant: bool, early_stop: bool, device: str, without_gc: None
) -> None:
    w = lucid_gpu.rand(COLUMNS, COLUMNS, device=device, requires_grad=True)
    before = large_arrays()
    x = lucid_gpu.rand(ROWS, COLUMNS, device=device, requires_grad=True)
    y = x
    with set_checkpoint_early_stop(early_stop):
        for _ in range(4):
            y = checkpoint(block(w), y, use_reentrant=reentrant)
    z = y.sum()
    del y
    z.tolist()
    assert large_arrays() - before <= 4  # x and three results: each the next one's argument
    z.backward()
    x.grad.tolist()
    assert large_arrays() - before <= 2  # x and its gradient
    del x, z
    assert large_arrays() == before


def test_a_checkpoint_that_stops_early_does_not_leak(device: str, without_gc: None) -> None:
    alive: list[Any] = []

    def watched(t: Any) -> Any:
        alive.append(weakref.ref(t))
        alive.append(weakref.ref(t._cell()))
        return t

    def function(x: Any) -> Any:
        with contextlib.suppress(KeyError):
            h = watched((x @ w).exp())
            return watched(h.sin() @ w) + 1

    w = lucid_gpu.rand(COLUMNS, COLUMNS, device=device, requires_grad=True)
    x = lucid_gpu.rand(ROWS, COLUMNS, device=device, requires_grad=True)
    y = checkpoint(function, x, use_reentrant=False)
    y.sum().backward()
    x.grad.tolist()
    node = weakref.ref(y.grad_fn)
    del y
    assert len(alive) >= 6
    assert all(r() is None for r in alive)
    assert node() is None


@pytest.mark.parametrize("how", ["dropped", "backward", "retained", "second order", "failed"])
def test_nested_checkpoints_are_freed(how: str, device: str, own_heap: None) -> None:
    before = large_arrays()
    w = lucid_gpu.rand(COLUMNS, COLUMNS, device=device, requires_grad=True)
    x = lucid_gpu.rand(ROWS, COLUMNS, device=device, requires_grad=True)
    nodes = []

    def inner(x: Any) -> Any:
        h = (x @ w).tanh()
        nodes.append(weakref.ref(h.grad_fn))
        if how == "failed" and len(nodes) > 2:
            raise OwnError
        return h.exp()

    def outer(x: Any) -> Any:
        return checkpoint(inner, x.sin(), use_reentrant=False) * 2

    y = checkpoint(outer, x, use_reentrant=False)
    if how in ("backward", "retained"):
        y.sum().backward(retain_graph=how == "retained")
    elif how == "second order":
        (g,) = lucid_gpu.autograd.grad(y.sum(), x, create_graph=True)
        g.sum().backward()
        del g
    elif how == "failed":
        with contextlib.suppress(OwnError):
            y.sum().backward()
    if x.grad is not None:
        x.grad.tolist()
    del y
    gc.collect()
    assert all(n() is None for n in nodes)
    del x
    gc.collect()
    assert large_arrays() == before


def test_retained_graphs_hold_nothing_that_was_recomputed(device: str, without_gc: None) -> None:
    w = lucid_gpu.rand(COLUMNS, COLUMNS, device=device, requires_grad=True)
    x = lucid_gpu.rand(ROWS, COLUMNS, device=device, requires_grad=True)
    before = large_arrays()
    y = checkpoint(block(w), x, use_reentrant=False)
    for _ in range(2):
        y.sum().backward(retain_graph=True)
        x.grad.tolist()
        x.grad = None
        assert large_arrays() - before <= 1  # y
    lucid_gpu.autograd.grad(y.sum(), w, retain_graph=True)
    assert large_arrays() - before <= 1


def test_an_elementwise_checkpoint_fuses_forward_and_backward() -> None:
    x = lucid_gpu.rand(100, requires_grad=True)
    with eager(False), lucid_gpu.profiler.record() as log:
        y = checkpoint(lambda x: (x.exp() * 2 + x).tanh().sin(), x, use_reentrant=False).sum()
        y.array
        assert len(log.kernels) == 1
        y.backward()
        x.grad.tolist()
    assert len(log.kernels) == 2


def test_variables_are_detached_as_in_torch() -> None:
    def scenario(m: Any) -> Any:
        x = m.ones(2, requires_grad=True)
        made, constant, number = module_of(m).detach_variable((x * 2, m.ones(1), 3))
        assert number == 3 and not constant.requires_grad
        return made.requires_grad, made.is_leaf, made.tolist()

    assert scenario(lucid_gpu) == scenario(torch_module())
    same_error(lambda m: module_of(m).detach_variable([1]), "Only tuple of tensors is supported")
