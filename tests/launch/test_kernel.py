"""Hand-written kernels: arguments, instances, reports. They run on the host."""

from __future__ import annotations

import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from lucid_gpu import dtypes as dt
from lucid_gpu import profiler
from lucid_gpu.device import CPU, device
from lucid_gpu.launch import Kernel, runs_cuda_c
from tests.fusion.plans import needs_compiler

pytestmark = needs_compiler

SCALE = """#include "types.cuh"
template <typename T, int TIMES>
LUCID_FN void scale(const T* x, T* y, float factor, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = lucid_cast<T>(lucid_cast<float>(x[i]) * factor * TIMES);
}
"""
scale = Kernel(SCALE, "scale", "const T* x, T* y, float factor, int n", template="T, TIMES")


@pytest.mark.parametrize("d", [dt.float16, dt.bfloat16, dt.float32, dt.float64, dt.int8], ids=str)
@pytest.mark.parametrize("n", [0, 1, 255, 257, 1000])
def test_instances_of_types(d: dt.dtype, n: int) -> None:
    x = np.arange(n).astype(d.numpy)
    y = np.empty_like(x)
    scale(-(-n // 128), (x, y, 0.5, n), T=d, TIMES=2, threads=128)
    np.testing.assert_array_equal(y, x)


def test_an_instance_is_made_once_and_named_by_its_types() -> None:
    one = scale.instance(T=dt.float32, TIMES=3)
    assert scale.instance(T=dt.float32, TIMES=3) is one
    assert one.name == "lucid_scale_float32"
    assert "scale<float, 3>(x, y, factor, n);" in one.source
    assert "__launch_bounds__(256)\nlucid_scale_float32(const float* x, float* y" in one.source


def test_a_launch_is_reported_with_bytes() -> None:
    x, y = np.ones(10, np.float32), np.zeros(10, np.float32)
    with profiler.record() as log:
        scale(1, (x, y, 1.0, 10), T=dt.float32, TIMES=1)
        scale(1, (x, x, 1.0, 10), T=dt.float32, TIMES=1, reads=7, writes=9)
        scale(0, (x, y, 1.0, 0), T=dt.float32, TIMES=1)
    first, second = log.kernels
    assert (first.name, first.shape, first.device) == ("lucid_scale_float32", (10,), CPU)
    assert (first.bytes_read, first.bytes_written) == (40, 40)
    assert (second.bytes_read, second.bytes_written) == (7, 9)
    assert first.ops == () and first.inputs == ("float32[10]",) == first.outputs
    assert "scale<float, 1>" in first.source and "lucid_scale_float32" in str(log)
    assert str(first) == (
        "lucid_scale_float32 on cpu, shape [10]\n"
        "  reads 40 bytes:\n    float32[10]\n  writes 40 bytes:\n    float32[10]"
    )


# --- arguments --------------------------------------------------------------------------------

KINDS = {
    "bool": (True, False), "signed char": (-128, 127), "unsigned char": (0, 255),
    "short": (-(2**15), 2**15 - 1), "unsigned short": (0, 2**16 - 1),
    "int": (-(2**31), 2**31 - 1), "unsigned": (0, 2**32 - 1), "unsigned int": (7, 2**32 - 1),
    "long long": (-(2**63), 2**63 - 1), "unsigned long long": (0, 2**64 - 1),
    "size_t": (0, 2**64 - 1),
    "float": (0.1, float("inf"), 3), "double": (0.1, 1e300, 2**60),
}  # fmt: skip


def stored(kind: str, value: object, element: str, as_type: str = "") -> object:
    """What a kernel that stores a number of a declared type leaves in memory."""
    store = Kernel(
        '#include "types.cuh"\nLUCID_FN void store(OUT* y, VALUE v) { *y = v; }\n'.replace(
            "OUT", as_type or kind
        ).replace("VALUE", kind),
        "store",
        f"{as_type or kind}* y, {kind} v",
    )
    y = np.zeros(1, element)
    store(1, (y, value), threads=1)
    return y[0]


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_arrive_as_they_are_declared(kind: str) -> None:
    numpy = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "u4", "i8", "u8", "u8", "f4", "f8"]
    letters = dict(zip(KINDS, numpy, strict=True))
    for value in KINDS[kind]:
        assert stored(kind, value, letters[kind]) == np.dtype(letters[kind]).type(value)


def test_16_bit_floats_and_complex_numbers_arrive_rounded() -> None:
    for value in (0.1, 1e-8, -3.14159, float("inf"), 65000.0):
        half = stored("lucid_float16", value, "f2")
        assert half == np.float16(value)
        found = stored("lucid_bfloat16", value, ml_dtypes.bfloat16)  # type: ignore[arg-type]
        assert found == ml_dtypes.bfloat16(value)
    assert np.isnan(stored("lucid_bfloat16", float("nan"), ml_dtypes.bfloat16))  # type: ignore
    assert stored("lucid_complex<float>", 1 - 2j, "c8") == 1 - 2j


def test_structures_arrive_field_by_field() -> None:
    walk = Kernel(
        '#include "index.cuh"\n'
        "template <int N> LUCID_FN void walk(int* y, lucid_strides<int, N> s, char c)\n"
        "{ for (int i = 0; i < N; ++i) y[i] = s.at[i] + c; }\n",
        "walk",
        "int* y, lucid_strides<int, N> s, char c",
        "N",
        forms={"s": lambda N: f"{N}i"},
    )
    y = np.zeros(3, np.int32)
    walk(1, (y, (5, -6, 7), 100), threads=1, N=3)
    assert y.tolist() == [105, 94, 107]
    with pytest.raises(TypeError, match=r"s is declared 'lucid_strides<int, 3> s' and takes"):
        walk(1, (y, (5, -6), 100), threads=1, N=3)
    walk(1, (y, np.array([1, 2, 3], np.int32).tobytes(), 0), threads=1, N=3)
    assert y.tolist() == [1, 2, 3]
    with pytest.raises(TypeError, match="takes 12 bytes, or numbers"):
        walk(1, (y, b"1234", 100), threads=1, N=3)
    with pytest.raises(ValueError, match=r"s is declared 'lucid_strides<int, 2>', which is no num"):
        Kernel("a\n", "f", "int* y, lucid_strides<int, 2> s").instance()


def test_a_null_pointer() -> None:
    other = Kernel(
        '#include "types.cuh"\nLUCID_FN void null(const float* x, int* y) { *y = x == nullptr; }\n',
        "null",
        "const float* x, int* y",
    )
    y = np.zeros(1, np.int32)
    other(1, (None, y), threads=1)
    assert y[0] == 1


X, Y = np.zeros(4, np.float32), np.zeros(4, np.float32)


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ((X, Y, 1.0), TypeError, r"takes 4 arguments \(x, y, factor, n\); got 3"),
        ((X, X.astype("f8"), 1.0, 4), TypeError,
         r"y is declared 'float\* y' and takes an array of float32 on cpu, or None; got ndarray of "
         r"float64 and shape \[4\]"),
        ((X, X.astype(">f4"), 1.0, 4), TypeError, "y is declared"),
        ((X, 3, 1.0, 4), TypeError, r"got 3 \(int\)"),
        ((X, [1.0], 1.0, 4), TypeError, r"got \[1.0\] \(list\)"),
        ((X, Y, "1", 4), TypeError,
         r"factor is declared 'float factor' and takes a number; got '1'"),
        ((X, Y, 1j, 4), TypeError, "takes a number; got 1j"),
        ((X, Y, np.ones(1), 4), TypeError, r"got ndarray of float64 and shape \[1\]"),
        ((X, Y, None, 4), TypeError, r"got None"),
        ((X, Y, 1e39, 4), OverflowError, "'float factor', which does not hold 1e[+]39"),
        ((X, Y, 1.0, 4.0), TypeError, r"n is declared 'int n' and takes an integer; got 4.0"),
        ((X, Y, 1.0, 2**31), OverflowError, "'int n', which does not hold 2147483648"),
        (([1], Y, 1.0, 4), TypeError, "a kernel takes NumPy or CuPy arrays; got a list"),
        ((None, None, 1.0, 4), TypeError, "was given no array"),
    ],
)  # fmt: skip
def test_wrong_arguments_raise_before_the_launch(
    arguments: tuple[object, ...], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        scale(1, arguments, T=dt.float32, TIMES=1)
    assert not Y.any()


def test_a_bool_is_a_bool() -> None:
    with pytest.raises(TypeError, match=r"'bool v' and takes True or False; got 1"):
        stored("bool", 1, "?")
    assert stored("bool", np.bool_(True), "?")


def test_wrong_launches() -> None:
    with pytest.raises(TypeError, match=r"template arguments of scale are \(T, TIMES\); got \(T\)"):
        scale(1, (X, Y, 1.0, 4), T=dt.float32)
    with pytest.raises(ValueError, match="takes blocks of 1 to 256 threads"):
        scale(1, (X, Y, 1.0, 4), T=dt.float32, TIMES=1, threads=257)
    with pytest.raises(ValueError, match="takes blocks of 1 to 256 threads"):
        scale(1, (X, Y, 1.0, 4), T=dt.float32, TIMES=1, threads=0)
    with pytest.raises(ValueError, match="y and z at most 65535"):
        scale((1, 65536), (X, Y, 1.0, 4), T=dt.float32, TIMES=1)
    with pytest.raises(ValueError, match="not negative"):
        scale(-1, (X, Y, 1.0, 4), T=dt.float32, TIMES=1)
    with pytest.raises(RuntimeError, match="232449 bytes of dynamic shared memory"):
        scale(1, (X, Y, 1.0, 4), T=dt.float32, TIMES=1, shared=227 * 1024 + 1)


def test_who_runs_cuda_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", False)
    assert runs_cuda_c(device("cuda:1")) and not runs_cuda_c(CPU)
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    assert runs_cuda_c(CPU)


def test_an_executor_that_is_misspelt_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import lucid_gpu"],
        env={**os.environ, "LUCID_EXECUTOR": "hostcuda"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "LUCID_EXECUTOR='hostcuda' is not known and changes nothing" in done.stderr
