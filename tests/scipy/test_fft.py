"""`lucid_gpu.scipy.fft` at the edges: types of numbers, words that are refused."""

from __future__ import annotations

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck
from lucid_gpu.scipy import fft

scipy = pytest.importorskip("scipy.fft", reason="lucid_gpu.scipy computes by SciPy")


@pytest.mark.parametrize("name", ["fft", "dct", "idst"])
def test_complex_numbers(name: str) -> None:
    z = lucid_gpu.randn(4, dtype=lucid_gpu.complex128, requires_grad=True)
    got = getattr(fft, name)(z)
    np.testing.assert_allclose(got.detach(), getattr(scipy, name)(z.detach().numpy()), atol=1e-12)
    assert gradcheck(getattr(fft, name), (z,), check_forward_ad=True)


def test_types_are_scipys() -> None:
    for given, wanted in (("half", "float32"), ("float", "float32"), ("int", "float64")):
        assert fft.dct(getattr(lucid_gpu.arange(4), given)()).dtype.name == wanted


@pytest.mark.parametrize("setting", [{"type": 5}, {"norm": "orthogonal"}])
def test_other_words_are_refused(setting: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"type is one of \[1, 2, 3, 4\], norm of"):
        fft.dct(lucid_gpu.ones(3), **setting)


def test_what_takes_no_arrays_is_scipys() -> None:
    assert fft.next_fast_len(97) == scipy.next_fast_len(97)
    np.testing.assert_array_equal(fft.rfftfreq(5, 0.5), scipy.rfftfreq(5, 0.5))
