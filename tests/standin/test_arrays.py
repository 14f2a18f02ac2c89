"""The stand-in's arrays keep to themselves as CuPy's do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


def test_arrays_do_not_become_numpy_arrays_by_themselves(cupy: Any) -> None:
    a = cupy.arange(3)
    with pytest.raises(TypeError, match="Implicit conversion to a NumPy array is not allowed"):
        np.asarray(a)
    with pytest.raises(TypeError, match="Implicit conversion"):
        np.zeros(3)[...] = a
    assert a.get().tolist() == cupy.asnumpy(a).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "mix",
    [
        lambda a, n: a + n,
        lambda a, n: n * a,
        lambda a, n: a < n,
        lambda a, n: a.__iadd__(n),
        lambda a, n: a @ n,
    ],
    ids=["+", "reflected", "<", "+=", "@"],
)
def test_numpy_operands_are_refused(cupy: Any, mix: Any) -> None:
    refused = r"Unsupported type <class 'numpy.ndarray'>|Argument 'b' has incorrect type"
    with pytest.raises(TypeError, match=refused):
        mix(cupy.ones(3), np.ones(3))


def test_a_product_takes_its_output_by_name_only(cupy: Any) -> None:
    a, out = cupy.ones((2, 2), "i"), cupy.zeros((2, 2), "i")
    with pytest.raises(TypeError, match="multiple values for argument 'out'"):
        cupy.matmul(a, a, out)
    assert cupy.matmul(a, a, out=out) is out and out.tolist() == [[2, 2], [2, 2]]
    assert cupy.add(a, a, out) is out  # a ufunc takes it by place too


def test_functions_want_device_arrays(cupy: Any) -> None:
    with pytest.raises(TypeError):
        cupy.concatenate([[True], cupy.ones(2, bool)])
    with pytest.raises(TypeError):
        cupy.where(np.ones(2, bool), cupy.ones(2), 0)
    with pytest.raises(TypeError):
        cupy.add(cupy.ones(2), 1, where=cupy.ones(2, bool))
    with pytest.raises(TypeError, match="casting is not supported"):
        cupy.ones(2).astype("i", casting="safe")


def test_types_a_gpu_does_not_have_are_refused(cupy: Any) -> None:
    for kind in (object, np.longdouble, "U3", "M8[s]"):
        with pytest.raises(ValueError, match="Unsupported dtype"):
            cupy.zeros(2, kind)


def test_results_without_dimensions_are_arrays(cupy: Any) -> None:
    a = cupy.arange(4.0)
    for found in (a.sum(), a[1], a.max(), cupy.array_equal(a, a), a[cupy.array(2)]):
        assert isinstance(found, cupy.ndarray) and found.shape == ()
    assert not hasattr(a, "__index__")


def test_indices_out_of_bounds_wrap_around(cupy: Any) -> None:
    a = cupy.arange(3)
    assert a[cupy.array([1, 3, -4])].tolist() == [1, 0, 2]
    assert cupy.take_along_axis(a, cupy.array([5]), 0).tolist() == [2]
    assert a[False].shape == (0, 3) and a[True].shape == (1, 3)
    a[cupy.array([4])] = 9
    assert a.tolist() == [0, 9, 2]
    with pytest.raises(IndexError):
        a[3]


def test_a_place_assigned_twice_does_not_keep_the_last_value(cupy: Any) -> None:
    a = cupy.zeros(2)
    a[cupy.array([0, 0, 1])] = cupy.array([1.0, 2.0, 3.0])
    assert a.tolist() == [1, 3]


def test_scattered_additions_count_each_and_know_few_types(cupy: Any) -> None:
    import cupyx

    a = cupy.zeros(2, "f")
    cupyx.scatter_add(a, cupy.array([0, 0, 1]), cupy.ones(3, "f"))
    assert a.tolist() == [2, 1]
    with pytest.raises(TypeError, match="scatter_add only supports"):
        cupyx.scatter_add(cupy.zeros(2, "q"), cupy.array([0]), 1)


def test_views_share_memory_and_name_their_base(cupy: Any) -> None:
    a = cupy.zeros((2, 3), "f")
    for view in (a[1], a.T, a.reshape(6), a.view("i"), cupy.broadcast_to(a, (2, 2, 3))):
        assert view.base is a
    row = a[1]
    row[...] = 5
    assert a.tolist() == [[0] * 3, [5] * 3]
    assert row.data.ptr == a.data.ptr + 12 and a[1][1:].base is a


def test_numbers_are_weak_and_types_those_of_cupys_loops(cupy: Any) -> None:
    assert (cupy.ones(2, "e") + 1.5).dtype == "e"
    assert (cupy.ones(2, "i") + 1.5).dtype == "d"
    assert cupy.power(cupy.ones(2, bool), cupy.ones(2, bool)).dtype == "b"
    with pytest.raises(TypeError, match="Wrong type"):
        cupy.ones(2, "F") // 1


def test_an_array_of_another_device_is_refused(cupy: Any) -> None:
    with cupy.cuda.Device(1):
        there = cupy.ones(2)
    assert there.device.id == 1
    with pytest.raises(ValueError, match="different from the current device"):
        there + 1
    assert there.copy().device.id == 0


def test_what_cupy_lacks_for_bfloat16(cupy: Any) -> None:
    import ml_dtypes

    a = cupy.ones(2, ml_dtypes.bfloat16)
    assert cupy.where(a > 0, a, a).dtype == "f"
    for sort in (cupy.sort, cupy.argsort):
        with pytest.raises(TypeError, match="Thrust sorts no bfloat16"):
            sort(a)
    with pytest.raises(TypeError, match="issue 10317"):
        cupy.matmul(cupy.ones((2, 1, 1), a.dtype), cupy.ones((2, 1, 1), a.dtype))
