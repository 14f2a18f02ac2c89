"""Small products run on one BLAS thread, and the number of threads comes back."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from lucid_gpu.devices import blas, loops, numpy_backend, threads


def test_small_products_have_one_thread():
    if blas._controls is None:
        pytest.skip("this NumPy brings no OpenBLAS")
    get, _ = blas._controls
    before = get()
    x = np.ones((2, 2))

    def product(a, b):
        return get(), a @ b

    few, result = blas.on_few_threads(8, product, x, x)
    many, _ = blas.on_few_threads(blas.SHARED_FROM, product, x, x)
    assert (few, many, get()) == (1, before, before)
    assert result.tolist() == [[2, 2], [2, 2]]


def test_the_number_of_threads_comes_back_after_an_error():
    threads = blas._controls[0] if blas._controls else lambda: 1
    before = threads()
    with pytest.raises(ZeroDivisionError):
        blas.on_few_threads(1, lambda: 1 / 0)
    assert threads() == before


def test_works_without_openblas(monkeypatch):
    monkeypatch.setattr(blas, "_controls", None)
    assert blas.on_few_threads(1, lambda x: x + 1, 2) == 3


def test_idle_threads_sleep_early():
    known = getattr(blas.library, "openblas_thread_timeout", None)
    if known is None:
        pytest.skip("this NumPy brings no OpenBLAS that tells")
    script = (
        "import lucid_gpu, os; from lucid_gpu.devices import blas;"
        "print(blas.library.openblas_thread_timeout(), 'OPENBLAS_THREAD_TIMEOUT' in os.environ)"
    )
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_THREAD_TIMEOUT"}
    for setting, expected in (
        ({}, f"{blas.SPIN} False"),
        ({"OPENBLAS_THREAD_TIMEOUT": "20"}, "20 True"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**environment, **setting},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == expected


def test_the_blas_of_a_program_with_threads_is_left_alone(monkeypatch):
    monkeypatch.setattr(blas.threading, "active_count", lambda: 2)
    assert not blas.rest_early(blas.library)


# --- another BLAS ---------------------------------------------------------------------------------

CBLAS = """
import ctypes, numpy as np
from lucid_gpu.devices import blas, loops

calls, limits = [], []


def gemm(kind):
    def function(order, a_as, b_as, m, p, n, one, a, lda, b, ldb, zero, out, ldo):
        assert (order, one, zero) == (101, 1, 0)

        def read(at, rows, columns, leading, turned):
            rows, columns = (columns, rows) if turned else (rows, columns)
            count = (rows - 1) * leading + columns
            whole = np.ctypeslib.as_array((kind * count).from_address(at))
            seen = np.lib.stride_tricks.as_strided(
                whole, (rows, columns), (leading * whole.itemsize, whole.itemsize)
            )
            return seen.T if turned else seen

        to = read(out, m, p, ldo, False)
        to[...] = read(a, m, n, lda, a_as == 112) @ read(b, n, p, ldb, b_as == 112)
        calls.append((a_as == 112, b_as == 112))

    c, at = ctypes.c_int, ctypes.c_void_p
    return ctypes.CFUNCTYPE(None, c, c, c, c, c, c, kind, at, c, at, c, kind, at, c)(function)


def limit(count):
    limits.append(count)
    return 7


limited = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(limit)
functions = gemm(ctypes.c_float), gemm(ctypes.c_double), limited
addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in functions]
matmul = loops.product_ufunc(np.matmul, *addresses)
rng = np.random.default_rng(0)


def check(a, b, wanted, out=None):
    calls.clear()
    got = matmul(a, b) if out is None else matmul(a, b, out)
    np.testing.assert_allclose(got, a @ b, rtol=1e-5)
    assert calls == wanted, (calls, wanted)


for kind in "fd":
    a, b = rng.random((60, 80)).astype(kind), rng.random((80, 50)).astype(kind)
    check(a, b, [(False, False)])
    check(a.T.copy().T, b, [(True, False)])
    check(a, b.T.copy().T, [(False, True)])
    check(a[10:, 20:], b[20:, 1:], [(False, False)])
    check(np.stack([a, -a]), b, [(False, False)] * 2)
    check(a, b, [(False, False)], np.empty((60, 90), kind)[:, :50])
    # NumPy's own: few multiplications, vectors, strides of which BLAS knows nothing
    check(a[:5], b[:, :5], [])
    check(rng.random((300, 300)).astype(kind), rng.random(300).astype(kind), [])
    check(np.empty((0, 80), kind), b, [])
    check(np.repeat(a, 2, 1)[:, ::2], b, [])
    check(a, np.broadcast_to(b[:1], b.shape), [])
check(np.ones((60, 80), int), np.ones((80, 50), int), [])
check(np.ones((60, 80), complex), np.ones((80, 50), complex), [])
assert limits == [1, 7] * (len(limits) // 2) and limits
"""


def test_products_by_another_blas_are_those_of_numpy():
    if not loops.compiled():
        pytest.skip("the C file was not compiled: there was no C compiler")
    environment = {**os.environ, "LUCID_MKL": "0"}
    subprocess.run([sys.executable, "-c", CBLAS], env=environment, check=True)


def test_a_large_product_is_shared_by_the_threads(monkeypatch):
    ended = []

    def matmul(a, b, out):
        ended.append(threading.get_ident())
        return np.matmul(a, b, out)

    monkeypatch.setattr(blas, "mkl", object())
    monkeypatch.setattr(numpy_backend, "matmul", matmul)
    for shape in ((300, 200), (200, 301)):
        ended.clear()
        a, b = np.ones((shape[0], 150)), np.ones((150, shape[1]))
        got = numpy_backend._on_all_threads(a, b, np.empty(shape))
        np.testing.assert_array_equal(got, a @ b)
        assert len(ended) == threads.team.count
