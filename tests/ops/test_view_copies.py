"""Views as copies, beside PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest

import lucid_gpu
from tests.oracle import modules

CASES: dict[str, Any] = {
    "alias_copy": lambda m, t: m.alias_copy(t),
    "as_strided_copy": lambda m, t: m.as_strided_copy(t, (2, 2), (3, 1)),
    "detach_copy": lambda m, t: m.detach_copy(t.detach()),
    "diagonal_copy": lambda m, t: m.diagonal_copy(t, 0, 1, 2),
    "expand_copy": lambda m, t: m.expand_copy(t[:, :1], (2, 3, 4)),
    "permute_copy": lambda m, t: m.permute_copy(t, (2, 0, 1)),
    "select_copy": lambda m, t: m.select_copy(t, 1, -1),
    "slice_copy": lambda m, t: m.slice_copy(t, 2, 1, None, 2),
    "split_copy": lambda m, t: m.split_copy(t, 2, 1),
    "split_with_sizes_copy": lambda m, t: m.split_with_sizes_copy(t, [1, 3], 2),
    "squeeze_copy": lambda m, t: m.squeeze_copy(t[:1]),
    "squeeze_copy of a dimension": lambda m, t: m.squeeze_copy(t[:1], 0),
    "t_copy": lambda m, t: m.t_copy(t[0]),
    "transpose_copy": lambda m, t: m.transpose_copy(t, 0, 2),
    "unbind_copy": lambda m, t: m.unbind_copy(t),
    "unfold_copy": lambda m, t: m.unfold_copy(t, 2, 2, 1),
    "unsqueeze_copy": lambda m, t: m.unsqueeze_copy(t, 0),
    "view_copy": lambda m, t: m.view_copy(t, (6, 4)),
    "view_as_real_copy": lambda m, t: m.view_as_real_copy(m.complex(t, t).detach()),
    "view_as_complex_copy": lambda m, t: m.view_as_complex_copy(t.detach()[..., :2].contiguous()),
}


@pytest.mark.parametrize("name", CASES)
def test_copies_are_those_of_pytorch(name: str) -> None:
    def run(m: Any, where: str) -> Any:
        t = m.arange(24.0).reshape(2, 3, 4).requires_grad_()
        made = CASES[name](m, t)
        parts = made if isinstance(made, (tuple, list)) else [made]
        if parts[0].requires_grad:
            sum([(part * (i + 1)).sum() for i, part in enumerate(parts)]).backward()
        gradient = None if t.grad is None else t.grad.tolist()
        return [(p.tolist(), p.stride(), p._is_view()) for p in parts], gradient

    found = [run(m, where) for m, where in modules()]
    assert all(f == found[0] for f in found)


def test_copies_go_where_out_says(device: str) -> None:
    x = lucid_gpu.arange(4.0, device=device).reshape(2, 2)
    out = x.new_empty(2)
    assert lucid_gpu.diagonal_copy(x, out=out) is out and out.tolist() == [0, 3]
    outs = [x.new_zeros(2), x.new_zeros(2)]
    lucid_gpu.unbind_copy(x, out=outs)
    assert [o.tolist() for o in outs] == x.tolist()
    assert lucid_gpu.vmap(lambda t: lucid_gpu.unsqueeze_copy(t, 1))(x).shape == (2, 2, 1)
