"""`torch.quasirandom`: Sobol sequences, as SciPy computes them."""

from __future__ import annotations

import warnings
from typing import Any

from lucid_gpu import Tensor, from_numpy, get_default_dtype, randint

__all__ = ["SobolEngine"]


class SobolEngine:
    """Points of a Sobol sequence in the unit cube, from PyTorch's direction numbers; needs SciPy.

    Parameters
    ----------
    dimension : int
        From 1 to `MAXDIM`, else ValueError.
    scramble : bool
        Whether to scramble the points at random: by others of a ``seed`` than PyTorch's.
    seed : int, optional

    Examples
    --------
    >>> from lucid_gpu.quasirandom import SobolEngine
    >>> SobolEngine(2).draw(4).tolist()
    [[0.0, 0.0], [0.5, 0.5], [0.75, 0.25], [0.25, 0.75]]
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if dimension > self.MAXDIM or dimension < 1:
            raise ValueError(
                f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]"
            )
        try:
            from scipy.stats import qmc
        except ImportError as error:
            raise ImportError("SobolEngine is computed by SciPy: pip install scipy") from error
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        self.num_generated = 0
        if scramble and seed is None:  # drawn, so that `manual_seed` repeats it
            seed = int(randint(2**63 - 1, (), device="cpu"))
        self._points = qmc.Sobol(dimension, scramble=scramble, bits=self.MAXBIT, seed=seed)

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next ``n`` points, shape (n, dimension), in the default type if none is given."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The balance properties")  # PyTorch is silent here
            points = from_numpy(self._points.random(n))
        self.num_generated += n
        points = points.to(get_default_dtype() if dtype is None else dtype)
        return points if out is None else out.resize_(points.shape).copy_(points)

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next ``2 ** m`` points: ValueError if all together are no power of two."""
        n = 2**m
        total = self.num_generated + n
        if total & (total - 1):
            raise ValueError(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: "
                f"n={self.num_generated}+2**{m}={total}. If you still want to do this, please use "
                "'SobolEngine.draw()' instead."
            )
        return self.draw(n, out, dtype)

    def reset(self) -> SobolEngine:
        """Begin again."""
        self._points.reset()
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leave out the next ``n`` points."""
        self._points.fast_forward(n)
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        shown = [f"dimension={self.dimension}"]
        if self.scramble:
            shown.append("scramble=True")
        if self.seed is not None:
            shown.append(f"seed={self.seed}")
        return f"{type(self).__name__}({', '.join(shown)})"
