"""Anomaly mode: which op's gradient failed or became NaN, and where that op was called.

While it is on, on all threads, every op is computed on its own line and has a node of its own, and
every node notes who made it. While it is off, making a node and running one ask whether it is on.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from typing import Any

from lucid_gpu.core.node import Node, run_node, watching
from lucid_gpu.core.planning import call_stack, steps
from lucid_gpu.core.program import Program
from lucid_gpu.fusion import set_eager
from lucid_gpu.fusion.gradient import gradient_leaves
from lucid_gpu.fusion.region import RegionNode
from lucid_gpu.fusion.scheduler import begin_pass
from lucid_gpu.tape.modes import state

__all__ = [
    "detect_anomaly",
    "is_anomaly_check_nan_enabled",
    "is_anomaly_enabled",
    "set_detect_anomaly",
]


class _Watcher:
    """What the engine asks about each node while the mode is on."""

    check_nan = True

    def note(self, node: Node) -> None:
        """Note where a node is made, and by which other."""
        stack, own = call_stack()
        node.metadata["traceback_"] = traceback.format_list(stack[: own - 1 : -1])
        if state.node is not None:
            node.metadata["parent_"] = state.node

    def run(self, node: Node, cotangents: list[Any]) -> Any:
        """Run a node; what is made meanwhile notes it as its parent."""
        outer, state.node = state.node, node
        try:
            results = run_node(node, cotangents)
            for result in results:
                if result is not None and not result._is_sparse:
                    result._realize()
            return results
        finally:
            state.node = outer

    def check(self, node: Node, results: Any) -> None:
        if not self.check_nan:
            return
        for i, result in enumerate(results):
            if result is not None and _has_nan(result):
                raise RuntimeError(
                    f"Function '{node.name()}' returned nan values in its {_operand(node, i)}th "
                    "output."
                )

    def explain(self, node: Node | None) -> None:
        """Warn where a node that failed, and the nodes whose gradient it belongs to, were made."""
        if node is None:
            return
        head, verb = f"Error detected in {node.name()}. ", "caused the error"
        while node is not None:
            stack = node.metadata.get("traceback_")
            if stack is None:
                text = (
                    "No forward pass information available. Enable detect anomaly during forward "
                    "pass for more information."
                )
            else:
                text = f"Traceback of forward call that {verb}:\n{''.join(stack)}"
            try:
                warnings.warn(head + text, stacklevel=3)
            except Warning as raised:  # the error that is explained must not be lost
                print(raised, file=sys.stderr)
            node = node.metadata.get("parent_")
            if node is not None:
                head = f"\n\nPrevious calculation was induced by {node.name()}. "
                verb = "induced the previous calculation"


_watcher = _Watcher()


def _has_nan(gradient: Any) -> bool:
    array = (gradient.detach()._values() if gradient._is_sparse else gradient).array
    return bool((array != array).any())


def _operand(node: Node, i: int) -> int:
    """Which operand an edge belongs to: a region has edges only for those that need a gradient."""
    if not isinstance(node, RegionNode):
        return i
    program = node.program
    leaf = gradient_leaves(program)[i]
    for position, argument in enumerate(program.root.args):
        if leaf in _leaves_under(program, argument):
            return position
    return i


def _leaves_under(program: Program, number: int) -> set[int]:
    instruction = program.instructions[number]
    if instruction.op == "load":
        return {instruction.value[0]}
    if instruction.op == "boundary":
        return {instruction.value}
    return set().union(*[_leaves_under(program, a) for a in instruction.args])


# --- the switch -----------------------------------------------------------------------------------


def is_anomaly_enabled() -> bool:
    """Whether anomaly mode is on."""
    return watching.by is not None


def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly mode, where it is on, looks for NaN in gradients."""
    return _Watcher.check_nan


class _Setting:
    """Whether the mode is on, what it checks, and whether the user had ops realized at once."""

    eager = False


def _switch(on: bool, check_nan: bool) -> None:
    _Watcher.check_nan = bool(check_nan)
    if bool(on) == is_anomaly_enabled():
        return
    if on:
        begin_pass()  # what is pending now is older than the mode
    watching.tell(_watcher if on else None, steps.count)
    _Setting.eager = set_eager(True if on else _Setting.eager)


class set_detect_anomaly:
    """Switch anomaly mode on or off, at once, and back at the end of a ``with`` block.

    Parameters
    ----------
    mode : bool
    check_nan : bool
        Raise where a backward function gives NaN.
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = is_anomaly_enabled(), is_anomaly_check_nan_enabled()
        _switch(mode, check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        _switch(*self._before)


class detect_anomaly:
    """Say, inside a ``with`` block, which op's gradient failed or is NaN, and where it was called.

    Ops called inside note their caller, so the forward pass belongs into the block too. It is slow:
    every op is computed on its own line.

    Parameters
    ----------
    check_nan : bool
        Raise where a backward function gives NaN.

    Examples
    --------
    >>> import lucid_gpu
    >>> x = lucid_gpu.tensor(-1.0, requires_grad=True)
    >>> with lucid_gpu.autograd.detect_anomaly():  # doctest: +SKIP
    ...     x.sqrt().backward()
    RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output.
    """

    def __init__(self, check_nan: bool = True) -> None:
        self._before = is_anomaly_enabled(), is_anomaly_check_nan_enabled()
        self._check_nan = check_nan
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should "
            "only be enabled for debugging.",
            stacklevel=2,
        )

    def __enter__(self) -> None:
        _switch(True, self._check_nan)

    def __exit__(self, *_: object) -> None:
        _switch(*self._before)
