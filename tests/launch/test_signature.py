"""Parameter lists as C writes them."""

from __future__ import annotations

import pytest

from lucid_gpu.launch.signature import Parameter, parameters, substituted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("const T* x", ("x", "T", True, True)),
        ("T *y", ("y", "T", True, False)),
        ("T const* __restrict__ x", ("x", "T", True, True)),
        ("float* const y", ("y", "float", True, False)),
        ("const int n", ("n", "int", False, True)),
        ("unsigned   long long n", ("n", "unsigned long long", False, False)),
        ("lucid_rows<2, 3> rows", ("rows", "lucid_rows<2, 3>", False, False)),
        ("const lucid_complex<float>* z", ("z", "lucid_complex<float>", True, True)),
    ],
)
def test_a_parameter(text: str, wanted: tuple[object, ...]) -> None:
    assert parameters(text) == [Parameter(*wanted)]  # type: ignore[arg-type]


def test_a_list() -> None:
    found = parameters("const T* x, lucid_strides<int, 2> walk,\n  int n")
    assert [p.name for p in found] == ["x", "walk", "n"]
    assert parameters("  ") == []


@pytest.mark.parametrize(
    "text", ["x", "float", "float x[3]", "float** x", "float& x", "int n, , float y", "f(int) x"]
)
def test_what_cannot_be_read_is_shown(text: str) -> None:
    with pytest.raises(ValueError, match="a parameter is a type and a name"):
        parameters(text)


def test_a_name_stands_for_one_parameter() -> None:
    with pytest.raises(ValueError, match="names 'x' twice"):
        parameters("const float* x, float* x")


def test_whole_words_are_replaced() -> None:
    text = substituted("const T* T2, lucid_strides<T, N> walk", {"T": "float", "N": "4"})
    assert text == "const float* T2, lucid_strides<float, 4> walk"
