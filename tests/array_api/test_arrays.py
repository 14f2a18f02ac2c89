"""Operators, indexing and attributes of tensors are the standard's; array-api-compat knows them."""

import operator

import numpy
import pytest

import lucid_gpu
import lucid_gpu.array_api as xp
from tests.array_api.test_values import agree

strict = pytest.importorskip("array_api_strict", reason="`pip install array-api-strict`")

F = numpy.asarray([[0.5, -2.5, 3.0], [1.0, 7.0, -0.5]])
BYTES, SMALL = numpy.asarray([[5, -7, 100], [1, 0, -128]], "i1"), numpy.asarray([3, 1, 2], "i1")
B, C = numpy.asarray([[True, False, True]]), F + 1j

ARITHMETIC = ["add", "sub", "mul", "truediv", "eq", "ne"]
REAL = ["floordiv", "mod", "pow", "lt", "le", "gt", "ge"]
WHOLE = ["and_", "or_", "xor", "lshift", "rshift", "floordiv", "mod", "lt", "add", "mul", "eq"]
OPERATORS = [
    *[(name, F, F[0] + 1) for name in ARITHMETIC + REAL],
    *[(name, C, F[1]) for name in ARITHMETIC if name != "truediv"],
    *[(name, BYTES, SMALL) for name in WHOLE],
    *[(name, B, B[:, ::-1]) for name in ("and_", "or_", "xor", "eq", "ne")],
    ("matmul", F, F.T.copy()),
    ("matmul", BYTES, SMALL),
]


@pytest.mark.filterwarnings("ignore:invalid value")  # NumPy's, of a negative number's root
@pytest.mark.parametrize(("name", "left", "right"), OPERATORS)
def test_operators(name, left, right, device):
    op = getattr(operator, name)
    if left.dtype.kind != right.dtype.kind:
        right = right.astype(left.dtype)
    right = right.copy()
    a, b = (xp.asarray(v, device=device) for v in (left, right))
    wanted = op(strict.asarray(left), strict.asarray(right))
    agree(op(a, b), wanted)
    in_place = getattr(operator, f"i{name.rstrip('_')}", None)
    if in_place is None or wanted.shape != left.shape or wanted.dtype != strict.asarray(left).dtype:
        return
    written = xp.asarray(left, device=device, copy=True)
    assert in_place(written, b) is written
    agree(written, wanted)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt"])
def test_python_numbers_are_weak(name, device):
    op, values = getattr(operator, name), abs(F).astype("f4") + 1
    a, w = xp.asarray(values, device=device), strict.asarray(values)
    for number in (2, 1.5):
        agree(op(a, number), op(w, number))
        agree(op(number, a), op(number, w))


M = numpy.arange(24.0).reshape(2, 3, 4)
INDICES = [
    1,
    (0, -1),
    (slice(None), 1, slice(None, None, 2)),
    (..., slice(3, None, -2)),
    (slice(1, 1), None, ...),
    (None, slice(None, None, -1), 0),
    (1, 2, 3),
    (slice(0, 0),),
    M > 7,
    (numpy.asarray([1, 0, -1]), 2, numpy.asarray([0, 3, 1])),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indexing_is_numpys(index, device):
    parts = index if isinstance(index, tuple) else (index,)
    made = [xp.asarray(p, device=device) if hasattr(p, "dtype") else p for p in parts]
    a, wanted = xp.asarray(M, device=device, copy=True), M.copy()
    found = a[tuple(made) if isinstance(index, tuple) else made[0]]
    assert found.tolist() == wanted[index].tolist()
    a[tuple(made)] = -1.0
    wanted[index] = -1.0
    assert a.tolist() == wanted.tolist()


def test_numbers_of_arrays(device):
    assert int(xp.asarray(3, device=device)) == 3
    assert float(xp.asarray(0.5, device=device)) == 0.5
    assert complex(xp.asarray(1j, device=device)) == 1j
    assert not bool(xp.asarray(False, device=device))
    assert [10, 20, 30][xp.asarray(1, device=device)] == 20
    with pytest.raises(TypeError, match="integer"):
        operator.index(xp.asarray(1.0, device=device))


def test_array_api_compat_knows_tensors(device):
    compat = pytest.importorskip("array_api_compat", reason="`pip install array-api-compat`")
    x = lucid_gpu.ones(2, 3, device=device)
    assert compat.is_array_api_obj(x)
    assert compat.array_namespace(x, x + 1) is xp
    assert compat.size(x) == 6
    assert compat.device(x) == x.device
    assert compat.to_device(x, "cpu").device == lucid_gpu.device("cpu")
    assert compat.is_writeable_array(x)
    assert not compat.is_lazy_array(x)
    assert not compat.is_torch_array(x)
