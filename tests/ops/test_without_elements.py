"""Shapes of results on the device meta, beside PyTorch's."""

import pytest

from tests.oracle import modules

CALLS = {
    "lu_factor": lambda m, x: m.linalg.lu_factor(x),
    "matrix_exp": lambda m, x: m.matrix_exp(x),
    "igamma": lambda m, x: m.igamma(x, x),
    "gammaincc": lambda m, x: m.special.gammaincc(x, x),
    "histc": lambda m, x: m.histc(x, 5),
    "masked_scatter": lambda m, x: x.masked_scatter(x > 0, x),
    "masked_scatter_": lambda m, x: x.masked_scatter_(x > 0, x),
    "nonzero_static": lambda m, x: m.nonzero_static(x, size=4),
}


@pytest.mark.parametrize("name", CALLS)
def test_shapes_and_types_are_torchs(name):
    found = []
    for m, _ in modules():
        results = CALLS[name](m, m.ones(2, 3, 3, device="meta"))
        of = results if isinstance(results, tuple) else (results,)
        found.append([(r.device.type, tuple(r.shape), str(r.dtype).split(".")[1]) for r in of])
    assert all(f == found[0] for f in found)
