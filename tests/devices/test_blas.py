"""Small products run on one BLAS thread, and the number of threads comes back."""

import numpy as np
import pytest

from lucid_gpu.devices import blas


def test_small_products_have_one_thread():
    if blas._found is None:
        pytest.skip("this NumPy brings no OpenBLAS")
    get, _ = blas._found
    before = get()
    x = np.ones((2, 2))

    def product(a, b):
        return get(), a @ b

    few, result = blas.on_few_threads(8, product, x, x)
    many, _ = blas.on_few_threads(blas.SHARED_FROM, product, x, x)
    assert (few, many, get()) == (1, before, before)
    assert result.tolist() == [[2, 2], [2, 2]]


def test_the_number_of_threads_comes_back_after_an_error():
    threads = blas._found[0] if blas._found else lambda: 1
    before = threads()
    with pytest.raises(ZeroDivisionError):
        blas.on_few_threads(1, lambda: 1 / 0)
    assert threads() == before


def test_works_without_openblas(monkeypatch):
    monkeypatch.setattr(blas, "_found", None)
    assert blas.on_few_threads(1, lambda x: x + 1, 2) == 3
