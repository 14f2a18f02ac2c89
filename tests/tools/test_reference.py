"""tools/reference.py writes what a user finds: late names, true signatures, whole docstrings."""

from __future__ import annotations

import ast

import lucid_gpu
from tools import reference


def written(name: str, value: object) -> ast.stmt:
    (statement,) = ast.parse("\n".join(reference.source_of(name, value))).body
    return statement


def test_names_of_tables_and_lazy_files_are_public() -> None:
    names = reference.public(lucid_gpu)
    assert {"exp", "roll", "sum", "Tensor", "vmap", "float32", "explain"} <= set(names)
    assert not {"nn", "exp_", "math", "Any"} & set(
        names
    )  # modules, twins in place, what it imports


def test_a_function_has_its_signature() -> None:
    roll = written("roll", lucid_gpu.roll)
    assert isinstance(roll, ast.FunctionDef)
    assert ast.unparse(roll.args) == "input: Tensor, shifts: Any, dims: Any=None"
    assert ast.get_docstring(roll) is not None


def test_a_method_begins_with_self() -> None:
    tensor = written("Tensor", lucid_gpu.Tensor)
    assert isinstance(tensor, ast.ClassDef)
    methods = {m.name: m for m in tensor.body if isinstance(m, ast.FunctionDef)}
    assert [a.arg for a in methods["addmv"].args.args] == ["self", "mat", "vec"]
    assert "sin" in methods and "sin_" not in methods


def test_what_a_class_refuses_is_left_out() -> None:
    names = {*reference.members(lucid_gpu.sparse.SparseTensor)}
    assert "coalesce" in names and "exp" not in names


def test_what_a_module_calls_is_no_method_of_it() -> None:
    relu = written("ReLU", lucid_gpu.nn.ReLU)
    assert isinstance(relu, ast.ClassDef)
    assert "function" not in {m.name for m in relu.body if isinstance(m, ast.FunctionDef)}


def test_a_class_says_what_it_is_derived_from() -> None:
    error = written("OutOfMemoryError", lucid_gpu.OutOfMemoryError)
    assert isinstance(error, ast.ClassDef)
    assert [ast.unparse(base) for base in error.bases] == ["RuntimeError"]


def test_parameters_of_one_entry_get_one_each() -> None:
    def f(x, eps=1e-5, momentum=0.1):
        """Nothing.

        Parameters
        ----------
        x : Tensor, shape (n, c)
        eps, momentum : float
            Two numbers.

        Returns
        -------
        Tensor
        """

    assert reference.docstring(f).splitlines()[4:9] == [
        "x : Tensor of shape (n, c)",
        "eps : float",
        "    Two numbers.",
        "momentum : float",
        "    Two numbers.",
    ]


def test_defaults_that_are_no_source_are_dots() -> None:
    def f(x, kind=reference, how=len):
        pass

    assert reference.signature(f) == "(x, kind=..., how=len)"
