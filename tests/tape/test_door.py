"""The door of ops: who sees a call, in which order, and that nothing stays behind."""

from __future__ import annotations

import inspect
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

import lucid_gpu
from lucid_gpu.ops import reductions, shape
from lucid_gpu.tape import door
from lucid_gpu.tensor import Tensor


@door.op
def doubled(x: Any, *, times: int = 1) -> Any:
    """Twice x."""
    return x * 2 * times


def noting(name: str, seen: list[Any]) -> door.Interpreter:
    def interpreter(
        op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], go_on: Callable[..., Any]
    ) -> Any:
        seen.append((name, op, args, kwargs))
        return go_on(*args, **kwargs)

    return interpreter


def test_an_op_is_its_function() -> None:
    assert doubled(3, times=2) == 12
    assert (doubled.__name__, doubled.__doc__) == ("doubled", "Twice x.")
    assert list(inspect.signature(doubled).parameters) == ["x", "times"]
    assert pickle.loads(pickle.dumps(shape.reshape)) is shape.reshape


def test_interpreters_see_a_call_in_the_order_of_their_ranks() -> None:
    seen: list[Any] = []
    last = door.Watch(door.DEVICE, lambda: noting("device", seen))
    first = door.Watch(door.AUTOCAST, lambda: noting("autocast", seen))
    with last, first:
        assert doubled(3, times=2) == 12
    assert seen == [(name, doubled, (3,), {"times": 2}) for name in ("autocast", "device")]
    assert doubled(1) == 2
    assert len(seen) == 2


def test_an_interpreter_may_change_arguments_and_answer_itself() -> None:
    changing = door.Watch(
        door.AUTOCAST, lambda: lambda op, args, kwargs, go_on: go_on(args[0] + 1, **kwargs)
    )
    answering = door.Watch(door.VMAP, lambda: lambda op, args, kwargs, go_on: ("seen", *args))
    with changing:
        assert doubled(3) == 8
        with answering:
            assert doubled(3) == ("seen", 4)
        assert doubled(3) == 8


def test_an_error_leaves_nobody_behind_the_door() -> None:
    before = list(door.interpreters)
    with pytest.raises(ZeroDivisionError), door.Watch(door.VMAP, lambda: noting("vmap", [])):
        doubled(1 / 0)
    assert door.interpreters == before


def test_several_threads_share_one_interpreter() -> None:
    before, wrong = list(door.interpreters), []
    watch = door.Watch(door.VMAP, lambda: noting("vmap", []))
    meeting = threading.Barrier(4)

    def work() -> None:
        meeting.wait()
        for _ in range(300):
            with watch:
                if len(door.interpreters) != len(before) + 1 or doubled(2) != 4:
                    wrong.append(list(door.interpreters))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert door.interpreters == before


def test_the_op_of_a_public_function() -> None:
    assert door.op_of(lucid_gpu.sum) is door.op_of(Tensor.sum) is reductions.sum
    assert door.op_of(lucid_gpu.softmax) is door.op_of(Tensor.softmax)
    assert door.op_of(len) is None


@pytest.mark.parametrize(
    ("autocast", "expected"),
    [
        (None, {}),
        ("lower", {"cpu": "lower", "cuda": "lower"}),
        ({"cuda": "promote"}, {"cuda": "promote"}),
    ],
)
def test_an_op_says_how_autocast_treats_it(autocast: Any, expected: dict[str, str]) -> None:
    @door.op(autocast=autocast)
    def tripled(x: Any) -> Any:
        return x * 3

    assert (tripled(2), tripled.autocast) == (6, expected)
    assert doubled.autocast == {}


def test_another_word_is_refused() -> None:
    with pytest.raises(ValueError, match="autocast of tripled is 'half'; it is one of lower, "):

        @door.op(autocast={"cpu": "half"})
        def tripled(x: Any) -> Any:
            return x * 3
