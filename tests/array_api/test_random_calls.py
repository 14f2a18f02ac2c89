"""Random calls of every function of the standard, beside array-api-strict.

What a function takes (kinds of types, shapes, options) stands in tables; hypothesis draws types
that may meet, shapes that broadcast, values and options. Types, shapes and values must agree,
and what array-api-strict refuses because of shapes, axes or options must be refused.
"""

import inspect
import math
import warnings

import numpy
import pytest

import lucid_gpu.array_api as xp
from tests.array_api.test_values import agree

strict = pytest.importorskip("array_api_strict", reason="`pip install array-api-strict`")
hypothesis = pytest.importorskip("hypothesis", reason="`pip install hypothesis`")
st = hypothesis.strategies

EXAMPLES = 8  # 39,000 calls were compared once, with 250
INTEGERS = ["int8", "int16", "int32", "int64", "uint8"]
KINDS = {
    "bool": ["bool"],
    "integer": INTEGERS,
    "real floating": ["float32", "float64"],
    "complex floating": ["complex64", "complex128"],
}
KINDS["signed"] = INTEGERS[:4]
KINDS["floating"] = KINDS["real floating"] + KINDS["complex floating"]
KINDS["real"] = INTEGERS + KINDS["real floating"]
KINDS["summed"] = KINDS["signed"] + KINDS["floating"]  # sums of uint8 are documented to differ
KINDS["numeric"] = INTEGERS + KINDS["floating"]
KINDS["whole"] = ["bool", *INTEGERS]
KINDS["all"] = ["bool", *KINDS["numeric"]]

ONE = {
    "acos acosh asin asinh atan atanh cos cosh exp expm1 log log10 log1p log2 reciprocal sin sinh "
    "sqrt tan tanh": "floating",
    "abs negative positive sign square real isfinite isinf isnan round": "numeric",
    "imag conj": "complex floating",
    "ceil floor trunc": "real",
    "signbit": "real floating",
    "bitwise_invert": "whole",
    "logical_not": "bool",
}
TWO = {
    "add subtract multiply pow": "numeric",
    "divide": "floating",
    "equal not_equal": "all",
    "atan2 copysign hypot logaddexp nextafter": "real floating",
    "bitwise_and bitwise_or bitwise_xor": "whole",
    "bitwise_left_shift bitwise_right_shift": "integer",
    "floor_divide greater greater_equal less less_equal maximum minimum remainder": "real",
    "logical_and logical_or logical_xor": "bool",
}
REDUCED = {
    "all any count_nonzero": "all",
    "max min": "real",
    "mean std var": "real floating",
    "prod sum": "summed",
}
ALONG = {
    "argmax argmin sort argsort": "real",
    "cumulative_sum cumulative_prod": "summed",
    "diff": "numeric",
}
SQUARE = "cholesky det eigh eigvalsh inv matrix_power matrix_rank pinv qr slogdet solve svd svdvals"
FFT = "fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft"


def by_name(table):
    return {name: kind for names, kind in table.items() for name in names.split()}


class Draw:
    """Draws the parts of one call."""

    def __init__(self, data):
        self.data = data

    def __call__(self, values):
        return self.data.draw(st.sampled_from(list(values)))

    def number(self, low, high):
        return self.data.draw(st.integers(low, high))

    def shape(self, low=0, high=3):
        return tuple(self.number(0 if k else 1, 3) for k in range(self.number(low, high)))

    def full(self, low=0, high=3):
        return tuple(self.number(1, 3) for _ in range(self.number(low, high)))

    def array(self, shape, dtype, low=-4):
        rng = numpy.random.default_rng(self.number(0, 1 << 20))
        if dtype == "bool":
            return rng.random(shape) < 0.5
        if dtype in INTEGERS:
            return rng.integers(max(low, 0) if dtype == "uint8" else low, 5, shape).astype(dtype)
        values = rng.normal(size=shape) * 2
        if dtype.startswith("complex"):
            values = values + 1j * rng.normal(size=shape)
        return numpy.asarray(values).astype(dtype)

    def of(self, kind, *shapes, low=-4):
        """Arrays of types of one kind, which may meet."""
        first = self(KINDS[kind])
        family = next(k for k in ("bool", "integer", "floating") if first in KINDS[k])
        both = [first, *[self([d for d in KINDS[family] if d in KINDS[kind]]) for _ in shapes[1:]]]
        return [self.array(s, d, low) for s, d in zip(shapes, both)]

    def broadcasting(self):
        whole = self.shape()
        cut = whole[self.number(0, len(whole)) :]
        return whole, tuple(1 if self.number(0, 3) == 0 else n for n in cut)

    def axis(self, ndim):
        """One that there is; now and then one that is out of bounds."""
        return self.number(-ndim, ndim - 1) if ndim and self.number(0, 9) else ndim

    def axes(self, ndim):
        if ndim == 0 or self.number(0, 1):
            return None
        return self([self.axis(ndim), tuple(range(self.number(0, ndim)))])

    def some(self, **options):
        """A part of the options."""
        return {name: value for name, value in options.items() if self.number(0, 1)}


# --- families: each draws the arrays and gives the call ------------------------------------------


def one(draw, name, kind):
    return draw.of(kind, draw.shape()), lambda m, x: getattr(m, name)(x)


def two(draw, name, kind):
    low = 0 if "shift" in name or name == "pow" else 1 if name in DIVIDES else -4
    given = draw.of(kind, *draw.broadcasting(), low=low)
    if kind == "real floating" or draw.number(0, 3):
        return given, lambda m, a, b: getattr(m, name)(a, b)
    number = draw({"b": [True], "i": [1, 2], "u": [1, 2], "f": [2, 0.5], "c": [2, 0.5, 1j]}[
        given[0].dtype.kind
    ])  # fmt: skip
    if draw.number(0, 1) and name != "pow":
        return given[:1], lambda m, a: getattr(m, name)(number, a)
    return given[:1], lambda m, a: getattr(m, name)(a, number)


DIVIDES = ("floor_divide", "remainder")


def reduced(draw, name, kind):
    (x,) = draw.of(kind, draw.full() if name in ("max", "min", *MOMENTS) else draw.shape())
    options = draw.some(keepdims=True) | {"axis": draw.axes(x.ndim)}
    if name in ("sum", "prod"):
        options |= draw.some(dtype=draw(family(x.dtype)))
    if name in ("std", "var"):
        options |= draw.some(correction=0.5)
    return [x], lambda m, x: getattr(m, name)(x, **typed(m, options))


MOMENTS = ("mean", "std", "var")


def family(dtype):
    kind = {"i": "signed", "u": "signed", "f": "real floating", "c": "complex floating"}
    return KINDS[kind[dtype.kind]]


def typed(m, options):
    return {k: getattr(m, v) if k == "dtype" else v for k, v in options.items()}


def along(draw, name, kind):
    (x,) = draw.of(kind, draw.full(1))
    options = {"axis": draw.axis(x.ndim)}
    if name.startswith("cumulative"):
        options |= draw.some(dtype=draw(family(x.dtype)), include_initial=True)
    elif name == "diff":
        options |= draw.some(n=draw.number(0, 2))
    elif "sort" in name:
        options |= draw.some(descending=True)
    else:
        options |= draw.some(keepdims=True)
    return [x], lambda m, x: getattr(m, name)(x, **typed(m, options))


def matrices(draw, name):
    n = draw.number(1, 3)
    outer = draw.full(0, 1)
    (x,) = draw.of("floating", (*outer, n, n))
    if name in ("cholesky", "eigh", "eigvalsh"):
        x = (x @ x.conj().swapaxes(-1, -2) + numpy.eye(n)).astype(x.dtype)
    x = (x + 3 * numpy.eye(n)).astype(x.dtype)
    if name == "solve":
        return [x, x[..., :1]], lambda m, a, b: m.linalg.solve(a, b)
    options = {
        "cholesky": draw.some(upper=True),
        "pinv": draw.some(rtol=0.01),
        "matrix_rank": draw.some(rtol=0.01),
        "qr": draw.some(mode="complete"),
        "svd": draw.some(full_matrices=False),
    }.get(name, {})
    power = (draw.number(-2, 3),) if name == "matrix_power" else ()

    def call(m, x):
        found = getattr(m.linalg, name)(x, *power, **options)
        if name in ("qr", "svd"):  # signs and directions are left open
            return [abs(part) if name == "qr" else part.shape for part in found]
        return found[0] if name == "eigh" else found

    return [x], call


def transformed(draw, name):
    real = name in ("rfft", "rfftn", "ihfft")
    (x,) = draw.of("real floating" if real else "complex floating", (*draw.full(0, 1), 3, 4))
    options = draw.some(norm=draw(["ortho", "forward", "backward"]))
    if name.endswith("n"):
        options |= draw.some(axes=(draw.number(-2, 1),))
    else:
        options |= draw.some(n=draw.number(2, 6), axis=draw.number(-2, 1))
    return [x], lambda m, x: getattr(m.fft, name)(x, **options)


def of_shape(draw, name):
    shape, dtype = draw.shape(), draw(KINDS["all"])
    options = draw.some(dtype=dtype)
    if name == "full":
        value = draw([True, 3, 0.5, 1j])
        return [], lambda m: m.full(shape, value, **typed(m, plain_default(value)))
    return [], lambda m: getattr(m, name)(shape, **typed(m, options or {"dtype": "float64"}))


def plain_default(value):
    kinds = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}
    return {"dtype": kinds[type(value)]}


def like(draw, name):
    (x,) = draw.of("all", draw.shape())
    options = draw.some(dtype=draw(KINDS["numeric"]))
    value = (2,) if name == "full_like" else ()
    return [x], lambda m, x: getattr(m, name)(x, *value, **typed(m, options))


def moved(draw, name):
    """Shapes, joins and orders."""
    (x,) = draw.of("all", draw.full(1))
    n, axis, number = x.ndim, draw.axis(x.ndim), draw.number(0, 3)
    axes, order, how = draw.axes(n), draw.data.draw(st.permutations(range(n))), draw(["xy", "ij"])
    dtype = draw(KINDS["complex floating" if x.dtype.kind == "c" else "numeric"])
    if name in ("concat", "stack", "meshgrid"):
        given = draw.of("numeric", *[x.shape, x.shape] if name != "meshgrid" else [(2,), (3,)])
        calls = {
            "concat": lambda m, a, b: m.concat([a, b], axis=[axis, None][number // 3]),
            "stack": lambda m, a, b: m.stack([a, b], axis=axis),
            "meshgrid": lambda m, a, b: m.meshgrid(a, m.astype(b, a.dtype), indexing=how),
        }
        return given, calls[name]
    calls = {
        "astype": lambda m, x: m.astype(x, getattr(m, dtype)),
        "broadcast_arrays": lambda m, x: m.broadcast_arrays(
            x, m.zeros((2, *x.shape), dtype=m.int8)
        ),
        "broadcast_to": lambda m, x: m.broadcast_to(x, (2, *x.shape)),
        "expand_dims": lambda m, x: m.expand_dims(x, axis=axis),
        "flip": lambda m, x: m.flip(x, axis=axes),
        "matrix_transpose": lambda m, x: m.matrix_transpose(x),
        "moveaxis": lambda m, x: m.moveaxis(x, axis, -1),
        "nonzero": lambda m, x: m.nonzero(x),
        "permute_dims": lambda m, x: m.permute_dims(x, tuple(order)),
        "repeat": lambda m, x: m.repeat(x, number, axis=axis),
        "reshape": lambda m, x: m.reshape(x, (-1,)),
        "roll": lambda m, x: m.roll(x, number - 5, axis=axes),
        "squeeze": lambda m, x: m.squeeze(x, axis),
        "tile": lambda m, x: m.tile(x, (2, number)),
        "tril": lambda m, x: m.tril(x, k=number - 2),
        "triu": lambda m, x: m.triu(x, k=number - 2),
        "unstack": lambda m, x: m.unstack(x, axis=axis),
    }
    return [x], calls[name]


def chosen(draw, name):
    (x,) = draw.of("real", draw.full(1))
    axis = draw.axis(x.ndim)
    n = x.shape[axis] if axis < x.ndim else 1
    places = numpy.asarray([draw.number(-n, n - 1) for _ in range(draw.number(0, 3))], "int64")
    if name == "take":
        return [x, places], lambda m, x, p: m.take(x, p, axis=axis)
    if name == "take_along_axis":
        rows = numpy.argsort(x, axis if axis < x.ndim else -1)
        return [x, rows], lambda m, x, p: m.take_along_axis(x, p, axis=axis)
    if name == "where":
        a, b = draw.of("numeric", *draw.broadcasting())
        return [a > 0 if a.dtype.kind != "c" else a != 0, a, b], lambda m, c, a, b: m.where(c, a, b)
    if name == "searchsorted":
        a, b = draw.of("real floating", (5,), draw.shape())
        side = draw(["left", "right"])
        return [numpy.sort(a), b], lambda m, a, b: m.searchsorted(a, b, side=side)
    if name == "clip":
        a, b = draw.of("real", *draw.broadcasting())
        b, both = abs(b).astype(a.dtype), draw.number(0, 1)
        return [a, b], lambda m, a, b: m.clip(a, b, b + m.ones_like(b) if both else None)
    return [x], lambda m, x: getattr(m, name)(x)


def products(draw, name):
    b, m, k, n = draw.number(1, 2), draw.number(1, 3), draw.number(0, 3), draw.number(1, 3)
    shapes = {
        "matmul": draw([((b, m, k), (k, n)), ((k,), (k, n)), ((m, k), (k,)), ((m, 2), (3, n))]),
        "vecdot": draw([((m, k), (k,)), ((m, k), (m, k)), ((2,), (3,))]),
        "tensordot": ((b, m, k), (m, k, n)),
        "outer": ((m,), (n,)),
        "cross": ((m, 3), draw([(3,), (m, 3), (m + 1, 1, 3)])),
        "matrix_norm": ((b, m, n),),
        "vector_norm": ((b, m),),
        "diagonal": ((b, m, n),),
        "trace": ((b, m, n),),
    }[name]
    kinds = {"matrix_norm": "floating", "vector_norm": "floating", "trace": "summed"}
    given = draw.of(kinds.get(name, "numeric"), *shapes)
    options = {
        "tensordot": {"axes": draw([2, ((1, 2), (0, 1))])},
        "matrix_norm": draw.some(keepdims=True, ord=draw(["fro", "nuc", 1, -1, math.inf, 2])),
        "vector_norm": draw.some(keepdims=True, ord=draw([0, 1, 3, math.inf]), axis=draw([0, 1])),
        "diagonal": draw.some(offset=draw.number(-2, 2)),
        "trace": draw.some(offset=draw.number(-2, 2)),
    }.get(name, {})
    return given, lambda m, *a: getattr(m.linalg, name)(*a, **options)


def ranges(draw, name):
    if name == "arange":
        numbers = draw.number(-3, 3), draw.number(-3, 5), draw([1, 2, -1, 0.5])
        dtype = draw(["int64", "float64"]) if isinstance(numbers[2], int) else "float64"
        return [], lambda m: m.arange(*numbers, dtype=getattr(m, dtype))
    if name == "linspace":
        stop = draw([2.0, -1.5, 1 + 2j])
        d = "complex128" if isinstance(stop, complex) else "float64"
        options = {"dtype": d} | draw.some(endpoint=False)
        n = draw.number(1, 4)
        return [], lambda m: m.linspace(0.5, stop, n, **typed(m, options))
    if name == "eye":
        n, k = draw.number(0, 3), draw.number(-2, 2)
        more = draw.some(n_cols=draw.number(0, 4)).values()
        dtype = draw(KINDS["numeric"])
        return [], lambda m: m.eye(n, *more, k=k, dtype=getattr(m, dtype))
    n = draw.number(1, 6)
    return [], lambda m: getattr(m.fft, name)(n, d=0.5, dtype=m.float64)


def shifted(draw, name):
    (x,) = draw.of("floating", draw.full(1))
    axes = draw.axes(x.ndim)
    return [x], lambda m, x: getattr(m.fft, name)(x, axes=axes)


CASES = {name: (one, kind) for name, kind in by_name(ONE).items()}
CASES |= {name: (two, kind) for name, kind in by_name(TWO).items()}
CASES |= {name: (reduced, kind) for name, kind in by_name(REDUCED).items()}
CASES |= {name: (along, kind) for name, kind in by_name(ALONG).items()}
for names, draws in {
    SQUARE: matrices,
    FFT: transformed,
    "zeros ones full": of_shape,
    "zeros_like ones_like full_like": like,
    "concat stack broadcast_arrays broadcast_to expand_dims flip moveaxis permute_dims repeat "
    "reshape roll squeeze tile unstack nonzero astype tril triu meshgrid matrix_transpose": moved,
    "take take_along_axis where searchsorted clip unique_all unique_counts unique_inverse "
    "unique_values": chosen,
    "matmul vecdot tensordot outer cross matrix_norm vector_norm diagonal trace": products,
    "arange linspace eye fftfreq rfftfreq": ranges,
    "fftshift ifftshift": shifted,
}.items():
    CASES |= dict.fromkeys(names.split(), (draws,))

# of types and of memory, which other tests compare; contents of `empty` are nobody's
ELSEWHERE = "asarray from_dlpack empty empty_like can_cast finfo iinfo isdtype result_type "
ELSEWHERE += "__array_namespace_info__ broadcast_shapes isin eig eigvals"  # these of 2025.12


def test_every_function_of_the_standard_is_called():
    spaces = (strict, strict.linalg, strict.fft)
    functions = {n for m in spaces for n in m.__all__ if inspect.isroutine(getattr(m, n))}
    functions = {n for n in functions if not n.endswith("_flags")}
    assert functions == {*CASES, *ELSEWHERE.split()} & functions
    assert {*CASES} <= functions


@pytest.mark.parametrize("name", CASES)
def test_random_calls(name):
    draws, *kind = CASES[name]

    @hypothesis.settings(max_examples=EXAMPLES, derandomize=True)
    @hypothesis.given(st.data())
    def run(data):
        arrays, call = draws(Draw(data), name, *kind)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                wanted = call(strict, *map(strict.asarray, arrays))
            except Exception:
                with pytest.raises((ValueError, IndexError, TypeError, RuntimeError)):
                    call(xp, *map(xp.asarray, arrays))
                return
            agree(call(xp, *map(xp.asarray, arrays)), wanted)

    run()
