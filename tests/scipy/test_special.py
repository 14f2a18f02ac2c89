"""Special functions at the edges of their domains, and what is refused.

The numbers are mpmath's with 30 digits: ``mp.diff(lambda a: mp.gammainc(a, 0, x,
regularized=True), a)`` and the like; ``regularized=True`` of the other tail where it is small.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.scipy import special
from lucid_gpu.scipy.rows import ROWS

pytest.importorskip("scipy", reason="lucid_gpu.scipy computes by SciPy")

# function, operands, place of the one that is differentiated, derivative
SLOPES = [
    ("gammainc", (1e-4, 0.2), 0, -1.2226301259578),
    ("gammainc", (50.0, 9.0), 0, -4.38648577870242e-21),
    ("gammaincc", (50.0, 120.0), 0, 1.43937976055223e-13),
    ("gammainc", (300.0, 300.0), 0, -0.0230393429308686),
    ("gammainc", (2.0, 0.0), 0, 0.0),
    ("gammainc", (2.0, math.inf), 0, 0.0),
    ("gammainc", (math.nan, 1.0), 0, math.nan),
    ("betainc", (1e-3, 2.0, 0.3), 0, -0.50420816678413),
    ("betainc", (200.0, 3.0, 0.9), 1, 3.33911192197826e-7),
    ("betainc", (2.0, 3.0, 0.0), 0, 0.0),
    ("betainc", (2.0, 3.0, 1.0), 1, 0.0),
    ("stdtr", (2.5, -30.0), 0, -0.0003795362263024),
    ("stdtr", (2.5, 0.0), 0, 0.0),
    ("exprel", (1e-9,), 0, 0.500000000333333),
    ("boxcox", (2.0, 1e-9), 1, 0.240226507070109),
    ("boxcox", (2.0, 0.0), 1, 0.240226506959101),
    ("pseudo_huber", (1e5, 1.0), 0, 2.49999999975e-16),
    ("ellipkm1", (1e-12,), 0, -499999999996.575),
    ("ellipk", (0.0,), 0, 0.392699081698724),
    ("log_ndtr", (-40.0,), 0, 40.0249688472073),
    ("kve", (2.5, 500.0), 1, -5.70621735776608e-5),
    ("k1e", (1e3,), 0, -1.98389186069668e-5),
    ("j1", (0.0,), 0, 0.5),
    ("entr", (0.0,), 0, math.inf),
    ("kl_div", (1.0, 1.0), 0, 0.0),
]


@pytest.mark.parametrize(("name", "values", "place", "expected"), SLOPES)
def test_slopes_at_edges(name, values, place, expected):
    x = lucid_gpu.tensor(values[place], dtype=lucid_gpu.float64, requires_grad=True)
    getattr(special, name)(*values[:place], x, *values[place + 1 :]).backward()
    np.testing.assert_allclose(x.grad.item(), expected, rtol=1e-10)


def test_what_is_refused_says_so():
    order = lucid_gpu.tensor(2.0, requires_grad=True)
    for call in (lambda: special.jv(order, 0.5), lambda: special.zeta(order, 1.5)):
        with pytest.raises(RuntimeError, match=r"has no derivative by [vx]; give it [vx].detach"):
            call().backward()
    with pytest.raises(TypeError, match=r"scipy.special.gamma has no derivative for complex"):
        special.gamma(lucid_gpu.tensor(1j))


def test_sums_without_a_logarithm():
    a = lucid_gpu.tensor([0.0, -math.inf, 800.0], dtype=lucid_gpu.float64, requires_grad=True)
    result, sign = special.logsumexp(a, b=[1.0, 1.0, -1.0], return_sign=True)
    assert (result.item(), sign.item()) == (800.0, -1.0)
    assert math.isnan(special.logsumexp(a, b=[1.0, 1.0, -1.0]).item())
    result.backward()
    np.testing.assert_allclose(a.grad.numpy(), [0.0, 0.0, 1.0])


# What CuPy lacks, and SciPy computes on the host
HOST = """betaincc dawsn ellipe hyp1f1 hyp2f1 iv ive jn jv kn kv kve stdtr stdtrit yv"""


def operands_in_cupyx():
    """The parameters, or a letter each, of the functions in the installed source of CuPy.

    It is read, since cupyx itself needs a GPU.
    """
    cupyx = importlib.util.find_spec("cupyx")
    if cupyx is None:
        pytest.skip("CuPy, whose source is read, is not installed")
    found = {}
    for file in (Path(cupyx.submodule_search_locations[0]) / "scipy" / "special").glob("_*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef):
                found.setdefault(node.name, [a.arg for a in node.args.args])
            called = getattr(getattr(node, "value", None), "func", None)
            if isinstance(node, ast.Assign) and getattr(called, "attr", "") == "create_ufunc":
                first = ast.literal_eval(node.value.args[1])[0]
                types = first if isinstance(first, str) else first[0]
                found[node.targets[0].id] = types.partition("->")[0]
    return found


def test_cupy_has_the_others_with_as_many_operands():
    theirs, rows = operands_in_cupyx(), [r for r in ROWS.values() if r.runs == "library"]
    names = {r.name.removeprefix("special.") for r in rows if r.name.startswith("special.")}
    assert sorted(names - set(theirs)) == HOST.split()
    for name in names & set(theirs):
        assert len(theirs[name]) == len(inspect.signature(getattr(special, name)).parameters), name


@pytest.mark.parametrize("y", [np.array([1 + 2j, 1]), np.complex64(1 + 2j), 1j])
def test_complex_operands_are_refused(y: Any) -> None:
    with pytest.raises(TypeError, match="no derivative for complex numbers"):
        special.xlogy(lucid_gpu.ones(2), y)


def test_wrong_arguments_are_told_by_the_functions_name() -> None:
    with pytest.raises(TypeError, match=r"scipy.special.erf\(\): .* 'x'"):
        special.erf(y=lucid_gpu.ones(2))
