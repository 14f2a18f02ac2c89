"""Calls of `scipy.ndimage`."""

from __future__ import annotations

from tests.ops.samples import row, t

AT = t(2, 3, of=(0.2, 1.7))
IMAGE = t(3, 4)

ROWS = [
    row("ndimage.map_coordinates", IMAGE, AT),
    row("ndimage.map_coordinates", IMAGE, t(2, 3, of=(-1.9, 3.9)), order=2, mode="wrap"),
    row("ndimage.map_coordinates", IMAGE, AT, order=1, mode="nearest", cval=0.5),
    row("ndimage.affine_transform", IMAGE, t(2, 2, of=(0.6, 0.9)), t(2, of="unit"), order=5),
    row("ndimage.affine_transform", IMAGE, t(2, of="unit"), 0.2, (2, 3), mode="reflect"),
    row("ndimage.affine_transform", IMAGE, t(2, 3, of="unit"), mode="grid-constant", order=2),
    row("ndimage.shift", IMAGE, t(2, of="unit"), mode="mirror"),
    row("ndimage.shift", IMAGE, 0.3, mode="nearest"),
    row("ndimage.zoom", IMAGE, 1.6),
    row("ndimage.zoom", IMAGE, (2, 0.7), mode="grid-wrap", grid_mode=True, order=4),
    row("ndimage.rotate", t(2, 3, 2), 33.0, axes=(1, 2), reshape=False),
    row("ndimage.rotate", IMAGE, t(of=(20.0, 40.0)), reshape=False, mode="grid-mirror"),
    row("ndimage.rotate", IMAGE, 90.0),
    row("ndimage.spline_filter1d", t(4, 2), 3, 0),
    row("ndimage.spline_filter1d", t(2, 4), 5, mode="reflect"),
    row("ndimage.spline_filter1d", t(2, 4), 2, mode="grid-wrap"),
    row("ndimage.spline_filter", t(3, 4)),
    row("ndimage.correlate1d", IMAGE, t(3), mode="constant", cval=0.7, origin=1),
    row("ndimage.convolve1d", IMAGE, t(4), 0, mode="wrap"),
    row("ndimage.correlate", IMAGE, t(2, 3), mode="mirror", origin=(-1, 0)),
    row("ndimage.convolve", IMAGE, t(2, 3), mode="nearest"),
    row("ndimage.uniform_filter1d", IMAGE, 3),
    row("ndimage.uniform_filter", IMAGE, (2, 3), mode="constant", cval=0.3),
    row("ndimage.gaussian_filter1d", IMAGE, 0.6, 0, 1),
    row("ndimage.gaussian_filter", IMAGE, 0.7, (0, 1), mode=("mirror", "wrap"), truncate=2.0),
    row("ndimage.gaussian_filter", IMAGE, 0.7, radius=2, axes=(1,)),
    row("ndimage.sobel", IMAGE, 0),
    row("ndimage.prewitt", IMAGE, mode="constant", cval=0.4),
    row("ndimage.laplace", IMAGE),
    row("ndimage.gaussian_laplace", IMAGE, 0.6),
    row("ndimage.gaussian_gradient_magnitude", IMAGE, 0.6),
    row("ndimage.rank_filter", t(3, 4, of="distinct"), 1, 2),
    row("ndimage.percentile_filter", t(3, 4, of="distinct"), 30, (2, 3)),
    row("ndimage.maximum_filter", t(3, 4, of="distinct"), 2, mode="constant"),
    row("ndimage.minimum_filter", t(3, 4, of="distinct"), (3, 1), origin=(1, 0)),
    row("ndimage.median_filter", t(3, 4, of="distinct"), footprint=[[1, 0, 1], [0, 1, 1]]),
]
