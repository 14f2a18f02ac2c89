"""PyTorch as the judge: one function runs on both modules, and everything must agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import lucid_gpu

NEEDED = "PyTorch is the oracle here and is not installed: make test ORACLE=1"


def torch_module() -> Any:
    """PyTorch, or a skip that says how to get it."""
    return pytest.importorskip("torch", reason=NEEDED)


def tensor_of(module: Any, array: Any, device: str = "cpu") -> Any:
    """A tensor of either module with an array's elements and strides, on memory of its own.

    Nobody else holds that memory, so that what is computed of it stays pending and fuses whole.
    """
    if not isinstance(array, np.ndarray):
        return array
    if array.flags.c_contiguous or min(array.strides, default=0) < 0:
        made = module.tensor(array, device=device)
    else:
        span = sum((n - 1) * s for n, s in zip(array.shape, array.strides)) // array.itemsize + 1
        memory = np.lib.stride_tricks.as_strided(array, (span,), (array.itemsize,))
        strides = [s // array.itemsize for s in array.strides]
        made = module.tensor(memory, device=device).as_strided(array.shape, strides)
    return made.requires_grad_() if array.dtype.kind == "f" else made


def array_of(value: Any) -> Any:
    """A tensor of either module as an array."""
    return np.asarray(value.detach().numpy(force=True)).copy()


def _outcome(
    module: Any, function: Callable[..., Any], arrays: Sequence[Any], order: int, device: str
) -> Any:
    """Results, gradients for a fixed random cotangent, second gradients: all computed, then read.

    What reads a result before its gradient cuts the region in two.
    """
    inputs = [tensor_of(module, a, device) for a in arrays]
    leaves = [t for t in inputs if hasattr(t, "requires_grad") and t.requires_grad]
    out = function(module, *inputs)
    outs = list(out) if isinstance(out, (tuple, list)) else [out]
    found = [("result", o, str(o.dtype).rpartition(".")[2]) for o in outs]
    targets = [o for o in outs if o.requires_grad]
    rng = np.random.default_rng(7)
    for level in range(1, order + 1):
        total = None
        for o in targets:
            weights = np.asarray(rng.standard_normal(tuple(o.shape)))
            part = (o * module.tensor(weights, device=device).to(o.dtype)).sum()
            total = part if total is None else total + part
        if total is None or not leaves:
            break
        gradients = module.autograd.grad(
            total, leaves, create_graph=level < order, allow_unused=True
        )
        found += [(f"gradient {level} of input {i}", g, "") for i, g in enumerate(gradients)]
        targets = [g for g in gradients if g is not None and g.requires_grad]
    return [(what, None if t is None else array_of(t), kind) for what, t, kind in found]


def agree(
    function: Callable[..., Any],
    *arrays: Any,
    device: str,
    order: int = 2,
    rtol: float = 1e-6,
    atol: float = 1e-6,
) -> None:
    """Check that ``function(module, *tensors)`` gives the same with both modules.

    Ours runs on ``device``, PyTorch on the CPU. Values, dtypes, shapes, gradients and, with
    ``order=2``, second gradients are compared, for random cotangents. Arrays of floats require
    grad.
    """
    expected = _outcome(torch_module(), function, arrays, order, "cpu")
    _compare(_outcome(lucid_gpu, function, arrays, order, device), expected, rtol, atol)


def _compare(got: Any, expected: Any, rtol: float, atol: float) -> None:
    for rest in (got[len(expected) :], expected[len(got) :]):  # gradients that are zero everywhere
        assert all(value is None or not np.any(value) for _, value, _ in rest)
    for (what, mine, my_type), (also, theirs, their_type) in zip(got, expected):
        assert (what, my_type) == (also, their_type)
        if mine is None or theirs is None:  # unused, or zero everywhere
            assert all(v is None or not np.any(v) for v in (mine, theirs)), what
            continue
        assert mine.shape == theirs.shape, what
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=atol, err_msg=what)


def same_error(function: Callable[[Any], Any], *words: str) -> None:
    """Check that both modules raise the same type of error, and that ours says ``words``."""
    with pytest.raises(Exception) as expected:
        function(torch_module())
    with pytest.raises(expected.type) as got:
        function(lucid_gpu)
    for word in words:
        assert word in " ".join(map(str, got.value.args))


# --- scenarios: one function of a module and a device, and what it must give ---------------------


def modules(device: str = "cpu") -> list[tuple[Any, str]]:
    """lucid_gpu on a device, and PyTorch on the CPU where it is installed."""
    try:
        import torch
    except ImportError:
        return [(lucid_gpu, device)]
    return [(lucid_gpu, device), (torch, "cpu")]


def plain(value: Any) -> Any:
    """Tensors as lists, inside lists, tuples and dictionaries too."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def gives(expected: Any, scenario: Callable[[Any, str], Any], device: str = "cpu") -> None:
    """Check that ``scenario(module, device)`` gives ``expected`` here, and with PyTorch too."""
    for module, where in modules(device):
        found = plain(scenario(module, where))
        assert found == plain(expected), f"{module.__name__}: {found}"


def refuses(
    kind: type[BaseException], words: str, scenario: Callable[[Any, str], Any], device: str = "cpu"
) -> None:
    """Check that ``scenario(module, device)`` raises ``kind`` with these words, with both."""
    for module, where in modules(device):
        with pytest.raises(kind) as caught:
            scenario(module, where)
        assert words in str(caught.value), f"{module.__name__}: {caught.value}"
