"""Register two images: find the rotation, shift and smooth warp that carry one onto the other.

Written with the functions of NumPy and SciPy. A photograph is turned, moved and bent by a known
map and gets noise. `ndimage.map_coordinates` samples the fixed image at the mapped coordinates;
L-BFGS fits the map with the gradient by those coordinates, first to blurred images, then to sharp
ones. The peer is the same with differences for a gradient, which take an image a parameter.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import training  # first: from here on Ctrl-C ends in one sentence

# isort: split
from scipy.optimize import minimize

import lucid_gpu.numpy as np
from lucid_gpu.scipy import ndimage

SIZE = 96  # pixels along each side
BLURS = (6.0, 2.0, 0.0)  # standard deviations in pixels, a third of the steps each
KNOTS = 4  # along each side, of the splines that bend the image
TRUTH = (12.0, 5.0, -4.0)  # degrees, and pixels down and right
CALLS = 3000  # images that the peer may make, a third for each blur


def coordinates(p: Any, grid: Any) -> Any:
    """Where pixels come from: ``p`` holds radians, two shifts / 10 and the knots' moves / 10."""
    middle = (SIZE - 1) / 2
    down, right = grid[0] - middle, grid[1] - middle
    c, s = np.cos(p[0]), np.sin(p[0])
    turned = np.stack([c * down + s * right, c * right - s * down]) + middle
    knots = p[3:].reshape(2, KNOTS, KNOTS)
    places = grid * ((KNOTS - 1) / (SIZE - 1))
    bent = [ndimage.map_coordinates(k, places, order=3, mode="nearest") for k in knots]
    return turned + 10 * (p[1:3].reshape(2, 1, 1) + np.stack(bent))


def misfit(p: Any, fixed: Any, moving: Any, grid: Any) -> Any:
    """The mean square of the difference, and a little of the bending."""
    seen = ndimage.map_coordinates(fixed, coordinates(p, grid), order=1, mode="nearest")
    return np.mean((seen - moving) ** 2) + 1e-4 * np.mean(p[3:] ** 2)


def photograph() -> Any:
    """A temple in gray, 0 to 1."""
    from sklearn.datasets import load_sample_image

    gray = load_sample_image("china.jpg")[:420, 120:540].mean(axis=2) / 255
    return np.asarray(ndimage.zoom(gray, SIZE / 420, order=1))


class Registration(training.Run):
    in_torch = False  # torch's functions take no arrays of NumPy

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(args, args.steps, ("misfit", "error"))
        self.xp = training.array_library(self.device)
        rng = np.random.default_rng(args.seed)
        size = 3 + 2 * KNOTS**2
        self.truth = np.concatenate([TRUTH, rng.normal(0, args.bend, size - 3)]) / 10
        self.truth[0] = np.deg2rad(TRUTH[0])
        grid = np.mgrid[:SIZE, :SIZE].astype(float)
        fixed = photograph()
        moving = ndimage.map_coordinates(
            fixed, coordinates(self.truth, grid), order=3, mode="nearest"
        )
        moving = moving + args.noise * rng.standard_normal(moving.shape)
        self.images = [self.xp.asarray(a) for a in (fixed, moving, grid)]
        self.slope = np.value_and_grad(misfit)
        self.state = training.Arrays(p=np.zeros(size))
        self.parts = {"state": self.state}

    def about(self) -> str:
        return f"{self.truth.size} parameters, images of {SIZE} x {SIZE}, on {self.device}"

    def blurred(self, sigma: float) -> tuple[Any, Any, Any]:
        fixed, moving, grid = self.images
        return (*(ndimage.gaussian_filter(a, sigma) for a in (fixed, moving)), grid)

    def value_and_slope(self, p: Any, *images: Any) -> tuple[float, Any]:
        value, slope = self.slope(self.xp.asarray(p), *images)
        return float(value), training.on_host(slope)

    def advance(self, bar: Any) -> dict[str, float]:
        steps = min(max(self.total // 3, 1), self.total - self.done)
        images = self.blurred(BLURS[min(3 * self.done // self.total, 2)])
        found = training.lbfgs(
            lambda p: self.value_and_slope(p, *images), self.state["p"], steps, bar
        )
        self.state["p"] = found.x
        self.done += steps
        return {"misfit": float(found.fun), "error": self.error(found.x)}

    def error(self, p: Any) -> float:
        """The mean distance in pixels from where they truly come from."""
        grid = training.on_host(self.images[2])
        apart = coordinates(np.asarray(p), grid) - coordinates(self.truth, grid)
        return float(np.sqrt((np.asarray(apart) ** 2).sum(0)).mean())

    def by_differences(self) -> str:
        """What the peer finds with its images, and how long one of its gradients takes in ours."""
        p, images_made, began = np.zeros(self.truth.size), 0, time.perf_counter()
        for images in map(self.blurred, BLURS):
            found = minimize(
                lambda p: float(misfit(self.xp.asarray(p), *images)),  # noqa: B023
                p, method="L-BFGS-B", options={"maxfun": CALLS // 3},
            )  # fmt: skip
            p, images_made = found.x, images_made + found.nfev
        theirs, began = time.perf_counter() - began, time.perf_counter()
        for _ in range(5):
            self.value_and_slope(p, *images)
        ratio = theirs / images_made * (p.size + 1) / ((time.perf_counter() - began) / 5)
        return (
            f"by differences in {images_made} images {self.error(p):.3g}, {ratio:.3g} times slower"
        )

    def reached(self) -> tuple[str, float]:
        start = self.error(np.zeros(self.truth.size))
        print(f"pixels apart, {self.by_differences()}")
        return f"pixels apart before {start:.3g}, after", self.error(self.state["p"])

    def draw(self) -> None:
        fixed, moving, grid = (training.on_host(a) for a in self.images)
        found = np.asarray(coordinates(self.state["p"], grid))
        carried = ndimage.map_coordinates(fixed, found, order=1, mode="nearest")
        figure = training.new_figure(13, 3.2)
        *places, right = figure.subplots(1, 5)
        pictures = [("fixed", fixed), ("moving", moving)]
        pictures += [("difference before", fixed - moving), ("after", carried - moving)]
        for axes, (title, picture) in zip(places, pictures):
            low = 0 if title in ("fixed", "moving") else -1
            axes.imshow(picture, cmap="RdBu" if low else "gray", vmin=low, vmax=1)
            axes.set_title(title, fontsize=9)
            axes.axis("off")
        training.plot_curves(right, self, "pixels apart", {"error": ("ours", training.TEST)})
        right.set_yscale("log")
        training.write_picture(figure, self.args.out / "images.png")


flags = training.parser("Find the map between two images.", "runs/registration", steps=300)
flags.add_argument("--noise", type=float, default=0.02, help="of gray values (%(default)s)")
flags.add_argument("--bend", type=float, default=1.5, help="pixels, of the knots (%(default)s)")

if __name__ == "__main__":
    training.main(flags, Registration)
