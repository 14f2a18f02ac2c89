"""Every function of NumPy's is ours with a gradient, computed on values, or refused by name."""

import numpy
import pytest

import lucid_gpu
from lucid_gpu.numpy import dispatch, ufuncs

# functions that NumPy does not hand on: they take no arrays, or convert what they take
NOT_HANDED_ON = (
    "arange array asanyarray asarray asarray_chkfinite ascontiguousarray asfortranarray asmatrix "
    "bartlett base_repr binary_repr blackman bmat broadcast_shapes datetime_data diag_indices "
    "empty eye fftfreq format_float_positional format_float_scientific from_dlpack frombuffer "
    "fromfile fromfunction fromiter frompyfunc fromregex fromstring full genfromtxt get_include "
    "get_printoptions getbufsize geterr geterrcall hamming hanning identity indices info isdtype "
    "isfortran isscalar issubdtype iterable kaiser load loadtxt mask_indices mintypecode "
    "nested_iters ones printoptions promote_types require rfftfreq row_stack set_printoptions "
    "setbufsize seterr seterrcall show show_config show_runtime tri tril_indices triu_indices "
    "typename zeros"
)
# ufuncs that only the array library computes: whole numbers and steps
WHOLE = "bitwise_count frexp gcd isnat lcm nextafter signbit spacing"


def named():
    for module in (numpy, numpy.linalg, numpy.fft):
        for name in sorted(module.__all__):  # NumPy's list is of a set
            function = getattr(module, name)
            if name[0] == "_" or name == "test":  # NumPy 2.0 lists some of its own
                continue
            if callable(function) and not isinstance(function, type):
                yield pytest.param(function, id=f"{module.__name__}.{name}")


@pytest.mark.parametrize("function", list(named()))
def test_every_function_is_of_one_class(function):
    if isinstance(function, numpy.ufunc):
        ours = function.__name__ in ufuncs.OPERATORS or function.__name__ in ufuncs.LOOPS
        assert ours != (function.__name__ in WHOLE.split())
        return
    known = function in dispatch._table()
    refused = function.__name__ in dispatch.REFUSED.split()
    outside = function.__name__ in NOT_HANDED_ON.split()
    assert [known, refused, outside].count(True) == 1


@pytest.mark.parametrize("name", dispatch.REFUSED.split())
def test_what_is_refused_says_so(name):
    arguments = {"busday_offset": (1,), "busday_count": (1,)}.get(name, ())
    with pytest.raises(TypeError, match=f"{name} does not take lucid_gpu's tensors"):
        getattr(numpy, name)(lucid_gpu.ones(3), *arguments)
