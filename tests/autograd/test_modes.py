"""no_grad and its kin: as blocks, decorators, on generators, one state a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import lucid_gpu
from lucid_gpu import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from tests.oracle import same_error, torch_module


@pytest.fixture
def x(device: str) -> lucid_gpu.Tensor:
    return lucid_gpu.ones(2, device=device, requires_grad=True)


def test_nothing_is_recorded_inside(x: Any) -> None:
    with no_grad():
        y = x * 2
        assert not is_grad_enabled()
    assert is_grad_enabled()
    assert not y.requires_grad and y.grad_fn is None
    assert (x * 2).requires_grad


def test_blocks_nest_and_end_with_errors(x: Any) -> None:
    with no_grad():
        with enable_grad():
            assert (x * 2).requires_grad
        assert not is_grad_enabled()
        with pytest.raises(KeyError):
            with enable_grad():
                raise KeyError
        assert not is_grad_enabled()
    assert is_grad_enabled()


def test_one_object_may_be_entered_twice() -> None:
    mode = no_grad()
    with mode:
        with mode:
            pass
        assert not is_grad_enabled()
    assert is_grad_enabled()


def test_as_a_decorator_with_and_without_parentheses(x: Any) -> None:
    @no_grad()
    def first(t: Any) -> Any:
        """Its words."""
        return t * 2

    @no_grad
    def second(t: Any) -> Any:
        return t * 2

    assert not first(x).requires_grad and not second(x).requires_grad
    assert first.__name__ == "first" and first.__doc__ == "Its words."
    assert is_grad_enabled()

    @no_grad()
    def recursive(n: int) -> bool:
        return recursive(n - 1) if n else is_grad_enabled()

    assert recursive(5) is False and is_grad_enabled()


def test_set_grad_enabled_acts_at_once_and_as_a_block() -> None:
    set_grad_enabled(False)
    assert not is_grad_enabled()
    set_grad_enabled(True)
    assert is_grad_enabled()
    with set_grad_enabled(False):
        assert not is_grad_enabled()
    assert is_grad_enabled()

    @set_grad_enabled(False)
    def inside() -> bool:
        return is_grad_enabled()

    assert is_grad_enabled()
    assert inside() is False and is_grad_enabled()


def test_generators_run_under_the_mode_and_their_callers_do_not() -> None:
    log: list[Any] = []

    @no_grad()
    def numbers() -> Iterator[Any]:
        try:
            log.append(is_grad_enabled())
            got = yield 1
            log.append((got, is_grad_enabled()))
            try:
                yield 2
            except KeyError:
                log.append(("thrown", is_grad_enabled()))
            yield 3
        finally:
            log.append(("closed", is_grad_enabled()))

    generator: Any = numbers()
    assert next(generator) == 1 and is_grad_enabled()
    assert generator.send("word") == 2 and is_grad_enabled()
    assert generator.throw(KeyError()) == 3 and is_grad_enabled()
    generator.close()
    assert is_grad_enabled()
    assert log == [False, ("word", False), ("thrown", False), ("closed", False)]


def test_a_generators_return_value_arrives() -> None:
    @no_grad()
    def numbers() -> Any:
        yield 1
        return "end"

    def outer() -> Any:
        return (yield from numbers())

    generator = outer()
    next(generator)
    with pytest.raises(StopIteration) as end:
        next(generator)
    assert end.value.value == "end"


def test_each_thread_has_its_own_mode() -> None:
    found: list[bool] = []
    with no_grad():
        thread = threading.Thread(target=lambda: found.append(is_grad_enabled()))
        thread.start()
        thread.join()
    assert found == [True]


def test_a_value_pending_from_before_keeps_its_history(x: Any) -> None:
    y = x * 2
    with no_grad():
        assert y.tolist() == [2.0, 2.0]
        z = y * 3
        w = y.detach().requires_grad_()
    assert y.requires_grad and not z.requires_grad and w.is_leaf
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_views_and_writes_under_no_grad_keep_history(x: Any) -> None:
    y = x * 2
    with no_grad():
        y.mul_(3)
    assert y.tolist() == [6.0, 6.0]
    assert y.requires_grad
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]  # as PyTorch: the write is not part of the history


def test_backward_records_only_under_create_graph(x: Any) -> None:
    modes: list[bool] = []

    class Watch(lucid_gpu.autograd.Function):
        @staticmethod
        def forward(ctx: Any, t: Any) -> Any:
            modes.append(is_grad_enabled())
            return t * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            modes.append(is_grad_enabled())
            return g * 2

    y = Watch.apply(x).sum()
    with no_grad():
        y.backward(retain_graph=True)
    y.backward(create_graph=True)
    assert modes == [False, False, True]


@pytest.mark.parametrize("decorate", [no_grad, no_grad(), set_grad_enabled])
def test_decorating_a_class_warns_and_makes_a_function(decorate: Any) -> None:
    if decorate is set_grad_enabled:
        decorate = set_grad_enabled(False)

    class Watch:
        def __init__(self) -> None:
            self.mode = is_grad_enabled()

        def later(self) -> bool:
            return is_grad_enabled()

    with pytest.warns(FutureWarning, match="Decorating classes is deprecated"):
        make = decorate(Watch)
    assert make().mode is False and make().later() is True
    assert make.__name__ == "Watch" and not isinstance(make, type)


def modes_of_generators(module: Any) -> list[Any]:
    """What a generator and its caller see, whichever way it is resumed or ended."""
    log: list[Any] = []

    def note(what: str) -> None:
        log.append((what, module.is_grad_enabled()))

    @module.no_grad()
    def numbers() -> Any:
        note("start")
        try:
            word = yield 1
            note(f"sent {word}")
            with module.enable_grad():
                yield 2
                note("inner")
        except ValueError:
            note("thrown")
            yield 3
        finally:
            note("end")
        return 4

    def outer(steps: Any) -> Any:
        generator = numbers()
        try:
            for step in steps:
                log.append(step(generator))
                note("caller")
            generator.close()
        except (KeyError, StopIteration) as error:
            note(type(error).__name__)

    outer([next, lambda g: g.send("a"), next])
    outer([next, lambda g: g.throw(ValueError()), next])
    outer([next, lambda g: g.throw(KeyError())])
    outer([next])
    with module.no_grad():
        outer([next, lambda g: g.send("b")])
    return log


def test_generators_see_the_modes_pytorch_shows_them() -> None:
    assert modes_of_generators(lucid_gpu) == modes_of_generators(torch_module())


def test_a_classmethod_object_cannot_be_decorated() -> None:
    def decorated(module: Any) -> Any:
        class Holder:
            @module.no_grad()
            @classmethod
            def method(cls) -> bool:
                return True

        return Holder.method()

    same_error(decorated)


def test_multithreading_is_a_setting_that_is_asked_for() -> None:
    for module in (lucid_gpu, torch_module()):
        asked = module.autograd.is_multithreading_enabled
        assert asked()
        with module.autograd.set_multithreading_enabled(False):
            assert not asked()
        assert asked()
        module.autograd.set_multithreading_enabled(False)
        assert not asked()
        module.autograd.set_multithreading_enabled(True)


def test_the_number_of_the_open_level_of_forward_mode() -> None:
    for module in (lucid_gpu, torch_module()):
        forward_ad = module.autograd.forward_ad
        assert forward_ad._current_level == -1
        with forward_ad.dual_level():
            assert forward_ad._current_level == 0


def test_requires_grad_cannot_be_deleted() -> None:
    def delete(module: Any) -> None:
        del module.ones(2, requires_grad=True).requires_grad

    same_error(delete)
