"""`torch.signal.windows` beside SciPy's formulas as PyTorch has them: values, types, refusals."""

from __future__ import annotations

from typing import Any

import pytest

import lucid_gpu
from tests.oracle import same_error, torch_module

CASES: list[tuple[str, dict[str, Any]]] = [
    ("bartlett", {}), ("blackman", {}), ("cosine", {}), ("exponential", {"tau": 3.0}),
    ("gaussian", {"std": 2.5}), ("general_cosine", {"a": [0.1, 0.2, 0.3, 0.4]}),
    ("general_hamming", {"alpha": 0.3}), ("hamming", {}), ("hann", {}), ("kaiser", {}),
    ("kaiser", {"beta": 0.0}), ("nuttall", {}),
]  # fmt: skip
REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "negative": ("hann", {"M": -1}),
    "no width": ("gaussian", {"M": 3, "std": 0.0}),
    "a center and symmetric": ("exponential", {"M": 3, "center": 1.0}),
    "no weights": ("general_cosine", {"M": 3, "a": []}),
    "a number for weights": ("general_cosine", {"M": 3, "a": 0.5}),
    "beta below 0": ("kaiser", {"M": 3, "beta": -1.0}),
}


@pytest.mark.parametrize("sym", [True, False])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_windows(name: str, options: dict[str, Any], sym: bool, device: str) -> None:
    for M in (0, 1, 2, 5, 8):
        for d in ("float32", "float64"):
            got, expected = [
                getattr(m.signal.windows, name)(
                    M, sym=sym, dtype=getattr(m, d), device=where, **options
                )
                for m, where in ((lucid_gpu, device), (torch_module(), "cpu"))
            ]
            assert str(got.dtype).endswith(d)
            assert got.tolist() == pytest.approx(expected.tolist(), rel=1e-5, abs=1e-7)


def test_a_center_of_a_periodic_window() -> None:
    window = lucid_gpu.signal.windows.exponential(3, center=1, sym=False, dtype=lucid_gpu.float64)
    assert window.tolist() == pytest.approx([0.36787944117, 1.0, 0.36787944117])


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    name, options = REFUSED[case]
    same_error(lambda m: getattr(m.signal.windows, name)(**options))


def test_of_floats_alone() -> None:
    same_error(lambda m: m.signal.windows.hann(3, dtype=m.float16))
