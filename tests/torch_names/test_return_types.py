"""`torch.return_types`: each op gives the class of its name, with torch's fields."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest

import lucid_gpu
from lucid_gpu import return_types
from tests.oracle import torch_module

SIGNS = {"slogdet"}  # the function of linalg
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
    assert type(ours) is getattr(return_types, name)
    assert type(pickle.loads(pickle.dumps(ours))) is type(ours)
    theirs = result(torch_module(), name)
    assert isinstance(theirs, getattr(torch_module().return_types, name))
    assert len(ours) == len(theirs)
    assert all(hasattr(theirs, field) for field in ours._fields)


@pytest.mark.parametrize("name", sorted({*return_types.__all__} - SIGNS))
def test_results_print_as_those_of_torch(name: str) -> None:
    pattern = r"-?\d+\.\d*(e[-+]\d+)?|\s"  # digits of a decomposition may differ
    ours, theirs = [re.sub(pattern, "", repr(result(m, name))) for m in (lucid_gpu, torch_module())]
    assert ours.replace("lucid_gpu.", "torch.") == theirs


@pytest.mark.parametrize("name", ["max", "min", "median", "nanmedian", "mode", "cummax", "cummin"])
def test_results_of_0d_tensors_are_of_the_same_class(name: str) -> None:
    assert type(getattr(lucid_gpu, name)(lucid_gpu.tensor(1.0), 0)) is getattr(return_types, name)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_a_dim_of_a_0d_tensor_is_refused_in_torchs_words(name: str) -> None:
    for m in (lucid_gpu, torch_module()):
        with pytest.raises(IndexError, match=rf"{name}\(\): Expected reduction dim -1 or 0"):
            getattr(m.tensor(1.0), name)(5)


def test_a_class_that_is_no_tensor_is_refused_in_torchs_words() -> None:
    for m in (lucid_gpu, torch_module()):
        with pytest.raises(TypeError, match="does not inherit from Tensor is not possible"):
            m.tensor(1.0).as_subclass(int)


def test_each_class_is_made_of_one_sequence() -> None:
    for m in (lucid_gpu, torch_module()):
        kinds = m.return_types
        parts = [m.tensor(1.0), m.tensor(2)]
        made = kinds.max(parts)
        assert type(made) is kinds.max
        assert made.values is parts[0] and made.indices is parts[1]
        for wrong in (parts[:1], parts * 2):
            with pytest.raises(TypeError, match="2-sequence"):
                kinds.max(wrong)
    again = lucid_gpu.return_types.max(values=parts[0], indices=parts[1])
    assert again._replace(values=parts[1]).values is parts[1]
