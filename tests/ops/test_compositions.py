"""Results of ops that view something made on the way are no views for the user, as in PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

import lucid_gpu
from tests.oracle import modules, torch_module

RESULTS: dict[str, Any] = {
    "repeat": lambda m, x: x.repeat(2, 1),
    "repeat once": lambda m, x: x.repeat(1, 1),
    "tile": lambda m, x: x.tile(2),
    "kron": lambda m, x: m.kron(x, x),
    "dot": lambda m, x: x[0].dot(x[1]),
    "vdot": lambda m, x: m.vdot(x[0], x[1]),
    "mv": lambda m, x: x.mv(x[0]),
    "vector times matrix": lambda m, x: x[0] @ x,
    "vector times vector": lambda m, x: x[0] @ x[1],
    "batch times vector": lambda m, x: x.expand(2, 3, 3) @ x[0],
    "einsum of two": lambda m, x: m.einsum("i,j->ij", x[0], x[1]),
    "einsum of one": lambda m, x: m.einsum("ij->i", x),
    "einsum, a view": lambda m, x: m.einsum("ij->ji", x),
    "rot90": lambda m, x: x.rot90(),
    "diag": lambda m, x: x[0].diag(),
    "diag_embed": lambda m, x: x.diag_embed(),
    "diagonal_scatter": lambda m, x: x.diagonal_scatter(x[0]),
    "quantile": lambda m, x: x.quantile(0.5),
    "quantiles of rows": lambda m, x: x.quantile(0.5, 0),
    "nanquantile": lambda m, x: x.nanquantile(0.5),
    "solve": lambda m, x: m.linalg.solve(x, x[0]),
    "lu": lambda m, x: m.linalg.lu(x)[2],
    "group_norm": lambda m, x: m.nn.functional.group_norm(x[None], 3),
    "conv1d": lambda m, x: m.nn.functional.conv1d(x[None], x[None]),
    "max_pool2d": lambda m, x: m.nn.functional.max_pool2d(x[None], 2),
    "avg_pool2d": lambda m, x: m.nn.functional.avg_pool2d(x[None], 2),
    "pixel_shuffle": lambda m, x: m.nn.functional.pixel_shuffle(x.expand(4, 3, 3), 2),
    "pixel_unshuffle": lambda m, x: m.nn.functional.pixel_unshuffle(x.repeat(2, 2)[None], 2),
    "channel_shuffle": lambda m, x: m.nn.functional.channel_shuffle(x.expand(4, 3, 3)[None], 2),
    "grid_sample": lambda m, x: m.nn.functional.grid_sample(
        x[None, None], x[None, :, None, :2], align_corners=False
    ),
    "affine_grid": lambda m, x: m.nn.functional.affine_grid(
        x[None, :2], (1, 1, 2, 2), align_corners=False
    ),
    "stft": lambda m, x: m.stft(
        x.flatten(), 4, return_complex=True, window=m.ones(4, dtype=m.float64)
    ),
    "put": lambda m, x: x.put(m.tensor([0]), x[0, :1]),
    "sum_to_size": lambda m, x: x.sum_to_size(3, 3),
    "tril": lambda m, x: x.tril(),
    "transpose": lambda m, x: x.t(),
    "reshape": lambda m, x: x.reshape(9),
}


def _found(module: Any, name: str) -> tuple[Any, ...]:
    values = [[0.2, 0.9, 0.4], [0.7, 0.3, 0.8], [0.5, 0.6, 0.1]]
    x = module.tensor(values, dtype=module.float64, requires_grad=True) * 1
    result = RESULTS[name](module, x)
    view, of_x = result._is_view(), result._base is x
    try:
        cut = result.detach_() is result and not result.requires_grad
    except RuntimeError:
        cut = False
    return view, of_x, cut


@pytest.mark.parametrize("name", RESULTS)
def test_what_is_a_view_is_one_in_pytorch(name: str) -> None:
    assert _found(lucid_gpu, name) == _found(torch_module(), name)


def test_written_results_have_their_gradients() -> None:
    for module, which in modules():
        x = module.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        y = x.mv(x[0])
        y[0] = 7.0
        y.mul_(2)
        y.sum().backward()
        assert x.grad.tolist() == [[6, 8], [2, 4]], which
