"""Plots, progress bars and scikit-learn take tensors as they take arrays."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import modules

M = Any
PLOTS: dict[str, Any] = {
    "plot": lambda p, m, y: p.plot(m.arange(3), y)[0].get_xydata(),
    "lines": lambda p, m, y: [line.get_ydata() for line in p.plot(m.stack([y, y * 2]))],
    "hist": lambda p, m, y: p.hist(y, bins=m.arange(5.0))[0],
    "hists": lambda p, m, y: p.hist(m.stack([y, y * 2, y, y]))[0],
    "bar": lambda p, m, y: [b.get_height() for b in p.bar(m.arange(3), y)],
    "scatter": lambda p, m, y: p.scatter(y, y * 2, c=y, s=y).get_offsets(),
    "imshow": lambda p, m, y: p.imshow(m.stack([y, y])).get_array(),
    "errorbar": lambda p, m, y: p.errorbar(m.arange(3), y, yerr=y)[0].get_ydata(),
    "contour": lambda p, m, y: p.contourf(m.stack([y, y * 2])).get_array(),
}


@pytest.fixture
def axes() -> Any:
    figures = pytest.importorskip("matplotlib.figure")
    return lambda: figures.Figure().subplots()


@pytest.mark.parametrize("name", PLOTS)
def test_plots(name: str, axes: Any) -> None:
    found = []
    for module, _ in modules():
        drawn = PLOTS[name](axes(), module, module.tensor([1.0, 3.0, 2.0]))
        found.append(np.asarray(drawn, float).tolist())
        with pytest.raises(RuntimeError, match=r"Can't call numpy\(\) on Tensor that requires"):
            PLOTS[name](axes(), module, module.tensor([1.0, 3.0, 2.0], requires_grad=True))
    assert all(f == found[0] for f in found)


def test_progress_bars(device: str) -> None:
    tqdm = pytest.importorskip("tqdm")
    x = lucid_gpu.arange(6, device=device).reshape(3, 2)
    bar = tqdm.tqdm(x, file=io.StringIO())
    assert bar.total == 3 and [row.tolist() for row in bar] == x.tolist()
    bar.set_postfix(loss=x.float().mean(), share=f"{x.float().mean():.1f}")
    assert "share=2.5" in bar.postfix


def test_scikit_learn() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    x = lucid_gpu.arange(6.0).reshape(3, 2)
    model = linear.LinearRegression().fit(x, x.sum(1))
    assert np.allclose(model.predict(lucid_gpu.ones(1, 2)), 2)
    with pytest.raises(RuntimeError, match=r"Can't call numpy\(\) on Tensor that requires grad"):
        model.predict(lucid_gpu.ones(1, 2, requires_grad=True))


def test_names_for_arrays(device: str) -> None:
    x = lucid_gpu.ones(2, device=device)
    x.to_numpy()[0] = 3  # from a GPU it is a copy
    assert x.tolist() == ([3, 1] if device == "cpu" else [1, 1])
    assert type(np.asarray(x)) is np.ndarray
