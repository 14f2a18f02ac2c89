"""Small products run on one BLAS thread, and the number of threads comes back."""

import os
import subprocess
import sys

import numpy as np
import pytest

from lucid_gpu.devices import blas


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
