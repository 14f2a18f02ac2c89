"""`torch.return_types`: each op gives the class of its name, with torch's fields."""

from __future__ import annotations

from typing import Any

import pytest

import lucid_gpu
from lucid_gpu import return_types
from tests.oracle import torch_module

ALONG = ("cummax", "cummin", "max", "median", "min", "mode", "nanmedian")
WITH_TWO = ("histogram", "kthvalue", "topk")
REST = {
    "histogramdd": lambda m, a: m.histogramdd(a, [2, 2]),
    "lu_unpack": lambda m, a: m.lu_unpack(*m.linalg.lu_factor(a)),
    "triangular_solve": lambda m, a: m.triangular_solve(a, a),
    "linalg_lstsq": lambda m, a: m.linalg.lstsq(a, a),
    "linalg_solve_ex": lambda m, a: m.linalg.solve_ex(a, a),
}


def result(m: Any, name: str) -> Any:
    a = m.tensor([[2.0, 1.0], [1.0, 2.0]])
    if name in REST:
        return REST[name](m, a)
    if name.startswith("linalg_"):
        return getattr(m.linalg, name[7:])(a)
    rest = (0,) if name in ALONG else (2,) if name in WITH_TWO else ()
    return getattr(m, name)(a, *rest)


@pytest.mark.parametrize("name", return_types.__all__)
def test_ops_give_tuples_of_their_names(name: str) -> None:
    ours = result(lucid_gpu, name)
    assert isinstance(ours, getattr(return_types, name))
    theirs = result(torch_module(), name)
    assert isinstance(theirs, getattr(torch_module().return_types, name))
    assert len(ours) == len(theirs)
    assert all(hasattr(theirs, field) for field in ours._fields)
