"""No argument is ignored: each changes the result as NumPy's does, or is refused by its name.

Functions and the names of their arguments are NumPy's. The tables say which arrays, and which value
of an argument, show that it matters.
"""

import inspect

import numpy
import pytest

import lucid_gpu
import lucid_gpu.numpy as np
from lucid_gpu.numpy import dispatch, ufuncs
from tests.numpy.agreement import as_tensor, numbers, plain, since_2_1

pytestmark = pytest.mark.filterwarnings("ignore")  # NumPy's, of unusual arguments

X, V, S = numbers(3, 4), numbers(4), numbers(3, 3)
Y, M = numbers(3, 4, seed=1), numbers(3, 2, 3)
MASK = numpy.arange(12).reshape(3, 4) % 3 > 0
PLACES, SPD, HOLES = numpy.array([2, 0, 1]), S @ S.T + numpy.eye(3), numpy.where(MASK, X, numpy.nan)
CUBE = numbers(3, 3, 3)
NEAR = numpy.diag([1.0, 0.3, 1e-3])

# what functions are called with that take others than one matrix
CALLED_WITH = {
    "append": (X, X), "array_split": (X, 2), "astype": (X, "f4"), "broadcast_to": (X, (2, 3, 4)),
    "can_cast": (X, "f4"), "choose": (numpy.array([0, 1, 5]), [S, S + 1]),
    "compress": (numpy.array([True, False, True]), S), "concatenate": ([X, Y.astype("f4")],),
    "convolve": (V, V[:3]), "copyto": (X, Y.astype("f4")), "correlate": (V, V[:2]),
    "cross": (S, S + Y[:, :3]), "linalg.cross": (S, S + Y[:, :3]), "delete": (X, 1),
    "dot": (X, Y.T), "einsum": ("ij,kj", X, Y), "einsum_path": ("ij,jk,kl", X, X.T, X),
    "fill_diagonal": (numbers(5, 2), 7.0), "full_like": (X, 2.5),
    "geomspace": (V + 3, V + 5), "insert": (S, 1, V[:3]), "interp": (X * 3, V, V * 2),
    "linspace": (V, V + 5), "linalg.lstsq": (numpy.vstack([NEAR, NEAR]), numbers(6)),
    "logspace": (V, V + 1), "linalg.multi_dot": ([X, X.T, X],), "nanpercentile": (X, 30),
    "nanquantile": (X, 0.3), "outer": (V, V), "pad": (X, 2), "partition": (X, 1),
    "percentile": (X, 30), "polyfit": (V + 10, V**3, 1), "put": (X, [1, 25], V),
    "quantile": (X, 0.3),
    "repeat": (S, 2), "reshape": (X, (4, 3)), "roll": (X, 1), "rollaxis": (M, 2),
    "select": ([MASK, ~MASK & (X > 0)], [X, Y]), "split": (numbers(4, 4), 2),
    "stack": ([X, Y.astype("f4")],), "take": (S, PLACES + 7),
    "take_along_axis": (S, numpy.argsort(S, 1)),
    "tensordot": (CUBE, CUBE), "trim_zeros": (numpy.pad(X, 2),),
    "linalg.tensordot": (CUBE, CUBE), "vstack": ([X, Y.astype("f4")],),
    "linalg.tensorsolve": (numpy.eye(6).reshape(2, 6, 3) + 0.1 * numbers(2, 6, 3), numbers(6)),
    "linalg.vecdot": (S, S + 1), "where": (MASK,), "hstack": ([X, Y.astype("f4")],),
    "real_if_close": (X + 1e-12j,), "linalg.matrix_rank": (NEAR,), "linalg.pinv": (NEAR,),
    "broadcast_arrays": (X, V), "meshgrid": (V, V[:3]), "diff": (X,), "squeeze": (X[None, None],),
    "nan_to_num": (numpy.array([numpy.nan, numpy.inf, -numpy.inf]),), "linalg.cond": (S,),
    "linalg.tensorinv": (numpy.eye(24).reshape(24, 8, 3) + 0.01,),
    "lib.stride_tricks.sliding_window_view": (S, (2, 2)),
    "angle": (S + 1j,), "linalg.norm": (S,), "corrcoef": (X,), "diag": (V,), "gradient": (X,),
    "ediff1d": (X,), "all": (MASK,), "any": (X > 0.5,), "around": (X,), "polyint": (V,),
    "polyder": (V,), "vander": (V,), "fix": (X,), "unstack": (X,),
    "cumulative_sum": (V,), "cumulative_prod": (V,), "unwrap": (X * 9,),
}  # fmt: skip
CALLED_WITH |= dict.fromkeys(
    ["linalg.cholesky", "linalg.trace", "trace", "diagonal", "linalg.diagonal"], (SPD,)
)
CALLED_WITH |= dict.fromkeys(["linalg.eigh", "linalg.eigvalsh"], (S,))

# values of arguments; by function, where most functions' does not do
CHANGED = {
    "a_max": 0.1, "a_min": -0.1, "append": 2.0, "aweights": numpy.arange(1.0, 5), "axes": (0, 1),
    "axis": 0, "axis1": 1, "axis2": 0, "axisa": 0, "axisb": 0, "axisc": 0, "base": 2.0,
    "bias": True, "casting": "no", "compute_uv": False, "correction": 1, "ddof": 1, "decimals": 1,
    "default": 7.0, "deg": True, "discont": 0.1, "dtype": "f4", "dx": 0.5, "edge_order": 2,
    "einsum_call": True, "endpoint": False, "full": True, "full_matrices": False,
    "fweights": numpy.arange(1, 5), "include_initial": True, "increasing": True, "ind": 1,
    "indexing": "ij", "initial": 5.0, "k": 1, "keepdims": True, "left": 9.0, "m": 2, "max": 0.1,
    "mean": 0.2, "method": "lower", "min": -0.1, "mode": "valid", "N": 2, "n": 2, "nan": 4.0,
    "neginf": -4.0, "norm": "ortho", "num": 7, "offset": 1, "ord": 1, "order": "F", "p": 1,
    "period": 1.0, "posinf": 4.0, "prepend": 2.0, "rcond": 0.5, "returned": True, "retstep": True,
    "right": 9.0, "rowvar": False, "rtol": 0.5, "s": (2, 3), "shape": (2, 2), "sparse": True,
    "start": 1, "to_begin": 9.0, "to_end": 9.0, "tol": 0.5, "trim": "f", "UPLO": "U",
    "upper": True, "w": numpy.arange(1.0, 5), "weights": X + 2, "where": MASK, "wrap": True,
    "x": V**3, "y": Y, "cov": True, "descending": True,
}  # fmt: skip
OF_FUNCTION = {
    "append.axis": 1, "concatenate.axis": 1, "stack.axis": 1, "linspace.axis": 1,
    "array_split.axis": 1, "split.axis": 1, "unstack.axis": 1, "cross.axis": 0,
    "geomspace.axis": 1, "logspace.axis": 1, "linalg.qr.mode": "r", "linalg.tensordot.axes": 1,
    "tensordot.axes": 1, "pad.mode": "edge", "correlate.mode": "full", "real_if_close.tol": 1e5,
    "trapezoid.x": numpy.array([0, 1, 3, 4.0]), "corrcoef.rowvar": False, "where.x": X,
    "choose.mode": "wrap", "take.mode": "wrap", "take.axis": {"axis": 1, "mode": "wrap"},
    "put.mode": "wrap", "any.where": X < 0.5, "cov.ddof": 3, "unwrap.discont": 9.0,
    "clip.a_min": {"a_min": -0.1, "a_max": 0.2}, "clip.a_max": {"a_min": None, "a_max": 0.2},
    "lib.stride_tricks.sliding_window_view.axis": (1, 0),
    "all.where": MASK & MASK[0], "linalg.tensorsolve.axes": (0, 2), "linalg.norm.axis": 1,
    "linalg.cond.p": "fro", "linalg.matrix_norm.ord": "nuc", "transpose.axes": (0, 1),
    "rot90.axes": (1, 0), "rot90.k": 2, "min.initial": -5.0, "amin.initial": -5.0,
    "nanmin.initial": -5.0,
    "mean.mean": None, "can_cast.casting": "same_kind", "size.axis": 0, "clip.min": -0.1,
    "polyint.k": 3.0, "expand_dims.axis": 1, "fft.fftshift.axes": 0, "fft.ifftshift.axes": 0,
    "trim_zeros.axis": 0, "linalg.vector_norm.ord": 1, "fft.hfft.axis": 0, "diff.n": 2,
    "einsum_path.optimize": False, "squeeze.axis": 0, "fft.fft2.axes": (0,), "fft.ifft2.axes": (0,),
    "fft.rfft2.axes": (0,), "fft.irfft2.axes": (0,), "fft.fftn.axes": (0,), "fft.ifftn.axes": (0,),
    "fft.rfftn.axes": (0,), "fft.irfftn.axes": (0,), "cumulative_sum.axis": 5,
    "cumulative_prod.axis": 5,
}  # fmt: skip

# what changes no value: permissions, and choices of an algorithm; memory has a test of its own
NO_VALUE = [
    "subok",
    "writeable",
    "overwrite_input",
    "kind",
    "stable",
    "copy",
    "device",
    "hermitian",
]
NO_VALUE += ["einsum.optimize", "copy.order", "zeros_like.order", "ones_like.order"]
NO_VALUE += ["empty_like.shape", "empty_like.dtype", "full_like.order", "empty_like.order"]
# of older NumPys, which warn of them
if numpy.lib.NumpyVersion(numpy.__version__) < "2.2.0":  # trims vectors only
    NO_VALUE += ["trim_zeros.trim"]
NO_VALUE += ["corrcoef.bias", "corrcoef.ddof", "reshape.newshape", "interpolation"]
REFUSED = [
    "einsum_path.einsum_call",
    "polyfit.full",
    "polyfit.cov",
    "sort.order",
    "sort.descending",
]
REFUSED += ["partition.order", "where.x", "where.y", "quantile.weights", "nanquantile.weights"]
REFUSED += ["percentile.weights", "nanpercentile.weights"]


def title(function):
    return f"{function.__module__}.{function.__name__}".removeprefix("numpy.")


def arguments():
    """All optional arguments of NumPy's functions that are ours."""
    for function, ours in dispatch._table().items():
        if getattr(ours, "func", None) is dispatch._on_values:
            continue
        try:
            signature = inspect.signature(function)
        except ValueError:  # older NumPy's own have none
            signature = inspect.signature(ours)
        for name, parameter in signature.parameters.items():
            if parameter.default is not parameter.empty:
                yield function, name


VALUED = {f"{title(f)}.{name}": (f, name) for f, name in arguments() if name != "out"}
VALUED = {k: v for k, v in VALUED.items() if k not in NO_VALUE and v[1] not in NO_VALUE}


def called(function, given, options, device=None):
    """What a function gives, or the array that it writes, or the error it raises."""
    given, options = (
        [own(g, device) for g in given],
        {k: own(o, device) for k, o in options.items()},
    )
    try:
        result = function(*given, **options)
    except (TypeError, ValueError, IndexError) as error:
        return error
    return given[0] if result is None else result


def own(value, device):
    """A copy of an array, on a device as a tensor; of the arrays in a list too."""
    if isinstance(value, list):
        return [own(v, device) for v in value]
    if not isinstance(value, numpy.ndarray):
        return value
    return value.copy() if device is None else as_tensor(value, device)


def same(found, wanted):
    if isinstance(wanted, Exception):
        kinds = (TypeError, IndexError, ValueError)
        kind = next(k for k in kinds if isinstance(wanted, k))
        return isinstance(found, kind)
    if isinstance(found, Exception):
        return False
    if isinstance(wanted, (tuple, list)):
        return (
            isinstance(found, (tuple, list))
            and len(found) == len(wanted)
            and all(map(same, found, wanted))
        )
    if isinstance(found, (tuple, list)):
        return False
    found = plain(found)
    if hasattr(found, "dtype"):
        if numpy.shape(found) != wanted.shape or found.dtype != wanted.dtype:
            return False
        tolerance = 1e-5 if wanted.dtype.itemsize <= 4 else 1e-9
        return numpy.allclose(found, wanted, tolerance, tolerance, equal_nan=True)
    return bool(found == wanted)


@pytest.mark.parametrize("case", VALUED)
def test_an_argument_matters(case):
    function, name = VALUED[case]
    given = CALLED_WITH.get(title(function), (X,))
    options = OF_FUNCTION.get(case, CHANGED.get(name))
    options = options if isinstance(options, dict) else {name: options}
    wanted = called(function, given, options)
    found = called(function, given, options, "cpu")
    if case in REFUSED:
        assert isinstance(found, (TypeError, ValueError)), found
        assert name in str(found)
        return
    assert not same(called(function, given, {}), wanted), "the table's value shows nothing"
    assert same(found, wanted)


# --- where the result goes, and how it lies -------------------------------------------------------

OUT = {
    "choose": (numpy.array([0, 1, 1]), [S, S + 1]), "clip": (X, -0.3, 0.3), "take": (S, PLACES),
    "stack": ([X, Y],), "concatenate": ([X, Y],), "linalg.multi_dot": ([X, X.T, X],),
}  # fmt: skip


def with_out():
    for function in dispatch._table():
        try:
            if "out" in inspect.signature(function).parameters:
                yield title(function), function
        except ValueError:  # older NumPy's own have no signature
            continue


WITH_OUT = dict(with_out())


@pytest.mark.parametrize("name", WITH_OUT)
def test_out_is_written(name):
    function, given = WITH_OUT[name], OUT.get(name) or CALLED_WITH.get(name, (X,))
    wanted = numpy.asarray(function(*own(list(given), None)))
    out_is_written(function, own(list(given), "cpu"), wanted, "cpu")


@pytest.mark.parametrize("name", ["einsum", "choose", "argmax", "sum"])
def test_out_is_written_elsewhere(name, device):
    function, given = WITH_OUT[name], OUT.get(name) or CALLED_WITH.get(name, (X,))
    wanted = numpy.asarray(function(*own(list(given), None)))
    out_is_written(function, own(list(given), device), wanted, device)


def out_is_written(function, given, wanted, device):
    out = as_tensor(numpy.zeros_like(wanted), device)
    waiting = out + 1  # computed late, but not of what is written
    assert function(*given, out=out) is out
    assert same(out, wanted)
    assert not plain(waiting - 1).any()
    if device == "cpu":
        array = numpy.zeros_like(wanted)
        assert function(*given, out=array) is array
        assert same(array, wanted)
    with pytest.raises(ValueError, match="out"):
        function(*given, out=as_tensor(numpy.zeros((5, *wanted.shape), wanted.dtype), device))
    if wanted.dtype.kind not in "fc":
        return
    with pytest.raises(TypeError, match="out"):
        function(*given, out=as_tensor(wanted.real.astype("i8"), device))
    for tensor in given[-1] if isinstance(given[-1], list) else given:
        if isinstance(tensor, lucid_gpu.Tensor) and tensor.is_floating_point():
            tensor.requires_grad_()
    with pytest.raises(RuntimeError, match="out=... arguments"):
        function(*given, out=out)


T = X.T  # the first axis fastest


@pytest.mark.parametrize(
    "call",
    [
        lambda x, order: numpy.copy(x, order=order),
        lambda x, order: numpy.zeros_like(x, order=order),
        lambda x, order: numpy.ones_like(x, order=order),
        lambda x, order: numpy.empty_like(x, order=order),
        lambda x, order: numpy.full_like(x, 2.0, order=order),
        lambda x, order: numpy.exp(x, order=order),
        lambda x, order: np.array(x, order=order),
        lambda x, order: x.copy(order=order),
    ],
)
def test_order_in_memory(call, device):
    for values in (X, T):
        for order in "CF":
            t = as_tensor(values, device) if values is X else as_tensor(X, device).T
            steps = [n // 8 for n in call(values, order).strides]
            assert list(call(t, order).stride()) == steps, order
    with pytest.raises(ValueError, match="order must be"):
        call(as_tensor(X, device), "Q")


@pytest.mark.parametrize("order", ["C", "F", "A", "K"])
def test_order_in_which_elements_are_taken(order, device):
    t, m = as_tensor(X, device).T, as_tensor(M, device).permute(1, 0, 2)
    assert same(numpy.ravel(t, order), numpy.ravel(T, order))
    assert same(numpy.ravel(m, order), numpy.ravel(M.transpose(1, 0, 2), order))
    if order != "K":
        assert same(numpy.reshape(t, (2, 6), order), numpy.reshape(T, (2, 6), order))


@since_2_1
def test_copy(device):
    t = as_tensor(X, device)
    assert numpy.reshape(t, 12, copy=False).data_ptr() == t.data_ptr()
    for order in "CF":
        assert numpy.reshape(t, (3, 4), order, copy=True).data_ptr() != t.data_ptr()
    with pytest.raises(ValueError, match="copy=False"):
        numpy.reshape(t.T, 12, copy=False)
    assert numpy.astype(t, "f8", copy=False) is t
    assert numpy.astype(t, "f8") is not t
    holes = as_tensor(HOLES, device)
    assert numpy.nan_to_num(holes, copy=False) is holes
    assert not numpy.isnan(plain(holes)).any()
    assert np.array(t, copy=False) is np.array(t, copy=None) is t
    assert np.array(t) is not t
    for needs in ([t, t], t):
        with pytest.raises(ValueError, match="copy=False"):
            np.array(needs, "f4", copy=False)


@since_2_1
def test_device(device):
    t = as_tensor(X, device)
    for call in (
        lambda: numpy.zeros_like(t, device="cpu"),
        lambda: numpy.full_like(t, 2.0, device="cpu"),
        lambda: numpy.astype(t, "f4", device="cpu"),
        lambda: numpy.linspace(t, t + 1, device="cpu"),
    ):
        assert call().device.type == "cpu"


# --- ufuncs --------------------------------------------------------------------------------------

LOOPS = [
    n
    for n in (*ufuncs.OPERATORS, *ufuncs.LOOPS)
    if isinstance(getattr(numpy, n, None), numpy.ufunc)
]
WHOLE_ONLY = [
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "invert",
    "left_shift",
    "right_shift",
    "ldexp",
]


@pytest.mark.parametrize("name", LOOPS)
def test_arguments_of_ufuncs(name):
    function = getattr(numpy, name)
    kind = "i4" if name in WHOLE_ONLY else "f8"
    given = [numpy.arange(1, 10).reshape(3, 3).astype(kind) for _ in range(function.nin)]
    if function.signature is not None and function.nin == 2:
        given = [numpy.ones((3, 3)), numpy.ones((3, 3))]
    small = "i2" if kind == "i4" else "f4"
    for options in (
        {"dtype": small},
        {"casting": "no", "dtype": small},
        {"casting": "no"},
        {"subok": False},
        {"where": given[0] > 3},
        {"signature": "d->d"},
        {"axis": 0},
        {"keepdims": True},
        {"bogus": 1},
    ):
        with numpy.errstate(all="ignore"):
            wanted = called(function, given, options)
        found = called(function, given, options, "cpu")
        if isinstance(found, TypeError) and not isinstance(wanted, TypeError):
            assert next(iter(options)) in str(found), (options, found)
            continue
        assert same(found, wanted), (options, found, wanted)
