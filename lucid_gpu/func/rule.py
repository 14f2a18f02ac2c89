"""Batching rules: how ops that are not elementwise act on batched tensors.

A rule is called as ``rule(level, function, *arguments)``. Most call the function again on the
values, with every dimension one further, and wrap the result. What has no rule is tried as it is
written, and otherwise runs one example at a time (`entries`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu.tape.door import op_of

Rule = Callable[..., Any]
RULES: dict[Any, Rule] = {}


def rule(*functions: Any) -> Callable[[Rule], Rule]:
    """Register a rule for these ops; TypeError for a function that is none."""

    def register(one: Rule) -> Rule:
        for function in functions:
            if op_of(function) is not function:
                raise TypeError(f"rule(): {function.__name__} is no op; mark it with @op first")
            RULES[function] = one
        return one

    return register
