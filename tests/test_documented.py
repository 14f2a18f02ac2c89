"""Whatever a user can call says what it does: `help` is never empty."""

import inspect

import pytest

import lucid_gpu
from lucid_gpu import nn
from lucid_gpu.nn import functional


@pytest.mark.parametrize("home", [lucid_gpu, lucid_gpu.Tensor, functional, lucid_gpu.linalg])
def test_public_functions_have_a_docstring(home):
    public = {name: getattr(home, name) for name in dir(home) if name[0] != "_"}
    silent = [n for n, f in public.items() if inspect.isroutine(f) and not f.__doc__]
    assert not silent


@pytest.mark.parametrize(
    "value, line",
    [
        (nn.GELU, "Notes"),
        (nn.InstanceNorm2d, "Inputs are"),
        (functional.threshold, "With ``inplace``"),
        (functional.cross_entropy, "size_average, reduce :"),
    ],
)
def test_docstrings_put_together_have_one_margin(value, line):
    """From Python 3.13 on the compiler takes a docstring's margin away, and no other string's."""
    assert f"\n{line}" in inspect.getdoc(value)
