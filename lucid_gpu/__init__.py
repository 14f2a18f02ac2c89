"""Automatic differentiation on CuPy and NumPy arrays with PyTorch's contract.

``import lucid_gpu`` is meant to stand where a training script says ``import torch``. CuPy is
imported when a cuda device is first asked for.
"""

from __future__ import annotations

import contextlib as _contextlib
import importlib
import math as _math
import os as _os
from typing import Any

from lucid_gpu import autograd as autograd
from lucid_gpu import dtypes as _dtypes
from lucid_gpu.compat.module_names import imported as _imported
from lucid_gpu.device import device as device
from lucid_gpu.devices.threads import (
    get_num_interop_threads,
    get_num_threads,
    set_num_interop_threads,
    set_num_threads,
)
from lucid_gpu.dtypes import as_dtype as _as_dtype
from lucid_gpu.dtypes import (
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    get_default_dtype,
    int8,
    int16,
    int32,
    int64,
    promote_types,
    set_default_dtype,
    uint8,
)
from lucid_gpu.dtypes import bool as bool
from lucid_gpu.dtypes import dtype as dtype
from lucid_gpu.ops import complex_numbers, creation, elementwise, indexing, reductions, shape
from lucid_gpu.ops import cumsum as _cumsum
from lucid_gpu.ops import gather as _gather
from lucid_gpu.ops import index_add as _index_add
from lucid_gpu.ops import layouts as _layouts
from lucid_gpu.ops import matmul as _matmul
from lucid_gpu.ops import registry as _registry
from lucid_gpu.ops import scatter as _scatter
from lucid_gpu.ops import softmax as _softmax
from lucid_gpu.ops import transfer as _transfer
from lucid_gpu.ops.arguments import published as _published
from lucid_gpu.ops.arguments import with_out as _with_out
from lucid_gpu.ops.creation import tensor  # named, since type checkers see the module else
from lucid_gpu.storage import (
    Size,
    channels_last,
    channels_last_3d,
    contiguous_format,
    layout,
    memory_format,
    preserve_format,
    sparse_bsc,
    sparse_bsr,
    sparse_coo,
    sparse_csc,
    sparse_csr,
    strided,
)
from lucid_gpu.tape.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from lucid_gpu.tensor import Tensor
from lucid_gpu.version import __version__

__path__ = [
    *__path__,
    _os.path.join(_os.path.dirname(__file__), "torch_names"),
]  # see torch_names/__init__.py

half, float, double = float16, float32, float64
short, int, long = int16, int32, int64
cfloat, cdouble = complex64, complex128
e, pi, inf, nan, newaxis = _math.e, _math.pi, _math.inf, _math.nan, None

for _module in (creation, shape, complex_numbers):
    for _function in _module.FUNCTIONS:
        globals()[_function.__name__] = _published(_function)
for _module in (reductions, _cumsum, indexing, _gather, _scatter, _index_add, _matmul, _softmax):
    for _function in _module.METHODS:
        globals()[_function.__name__] = _published(_function)
for _name, _function in elementwise.FUNCTIONS.items():
    globals()[_name] = _with_out(_function)
spmm = dsmm = _published(_matmul.mm)

_TORCH_NAMES = (
    *(
        "_C",
        "_VF",
        "__config__",
        "__future__",
        "_compile",
        "_custom_ops",
        "_decomp",
        "_dynamo",
        "_functorch",
        "_higher_order_ops",
        "_inductor",
        "_jit_internal",
        "_six",
        "_subclasses",
        "_tensor",
        "_utils",
        "_vmap_internals",
        "ao",
        "classes",
        "cpu",
        "functional",
    ),
    *(
        "futures",
        "hub",
        "jit",
        "library",
        "masked",
        "mps",
        "nested",
        "onnx",
        "overrides",
        "quasirandom",
        "return_types",
        "signal",
        "torch_version",
        "types",
        "xpu",
    ),
)
_SYMBOLS = (
    *("SymBool", "SymFloat", "SymInt", "sym_float", "sym_int", "sym_ite", "sym_max", "sym_min"),
    *("sym_not", "sym_sum"),
)
_REFUSED = (  # when called
    *("eig", "symeig", "embedding_bag", "hash_tensor", "sparse_bsc_tensor", "sparse_bsr_tensor"),
    *("sparse_compressed_tensor", "sparse_csc_tensor"),
)
_FIRST_NAMES = ("get_autocast_cpu_dtype", "get_autocast_gpu_dtype", "is_autocast_cpu_enabled")
_MODULES = (
    *("accelerator", "amp", "array_api", "backends", "compiler", "cuda", "fft", "fx"),
    *("distributed", "distributions", "func", "fusion", "linalg", "multiprocessing"),
    *("nn", "numpy", "optim", "profiler", "random", "serialization", "sparse", "special"),
    *("testing", "utils", "viz"),
    *_TORCH_NAMES,
)
_STORAGE_TYPES = (
    *("BFloat16Storage", "BoolStorage", "ByteStorage", "CharStorage", "ComplexDoubleStorage"),
    *("ComplexFloatStorage", "DoubleStorage", "FloatStorage", "HalfStorage", "IntStorage"),
    *("LongStorage", "ShortStorage", "Storage"),
)
_UNLISTED = (  # in ``dir()``
    *_STORAGE_TYPES,
    *_SYMBOLS,
    *_FIRST_NAMES,
    *_REFUSED,
    *(
        "DeviceObjType",
        "classes",
        "get_device_module",
        "mps",
        "nested",
        "torch_version",
        "typename",
        "xpu",
    ),
    *("_VF", "_compile", "_disable_dynamo", "_higher_order_ops", "_inductor"),
    *("_log_softmax_backward_data", "_softmax_backward_data", "_use_cudnn_rnn_flatten_weight"),
    *("_amp_foreach_non_finite_check_and_unscale_", "_amp_update_scale_"),
    *("Any", "annotations", "importlib", "__dir__"),
    *("compat", "devices", "kernels", "launch", "tape"),  # not for users
    *("doctor", "functorch", "precompile", "torch", "torch_names"),  # commands, and what lies apart
    *("complex_numbers", "creation", "elementwise", "indexing", "reductions", "shape"),
    *(*_dtypes.NAMED_ONLY, "chalf"),  # no tensor has these types
    *("sparse_bsc", "sparse_bsr", "sparse_csc"),  # ... or layouts
)
_FROM = {
    "Generator": "lucid_gpu.ops.generator",
    "GradScaler": "lucid_gpu.amp",
    "autocast": "lucid_gpu.amp",
    **dict.fromkeys(
        (
            *_FIRST_NAMES,
            "clear_autocast_cache",
            "get_autocast_dtype",
            "is_autocast_cache_enabled",
            "is_autocast_enabled",
            "set_autocast_cache_enabled",
            "set_autocast_dtype",
        ),
        "lucid_gpu.amp.state",
    ),
    "set_autocast_enabled": "lucid_gpu.amp.autocast_mode",
    **dict.fromkeys(("is_warn_always_enabled", "set_warn_always"), "lucid_gpu.ops.user_warnings"),
    "compile": "lucid_gpu.compiler",
    "_disable_dynamo": "lucid_gpu._compile",
    **dict.fromkeys(_SYMBOLS, "lucid_gpu._sym"),
    **dict.fromkeys(_REFUSED, "lucid_gpu.compat.refused"),
    **dict.fromkeys(("get_device_module", "typename"), "lucid_gpu._utils"),
    "install_as_torch": "lucid_gpu.torch",
    "get_default_device": "lucid_gpu.devices",
    "set_default_device": "lucid_gpu.device",
    **dict.fromkeys(("can_cast", "finfo", "iinfo"), "lucid_gpu.dtypes"),
    **dict.fromkeys(
        (
            "are_deterministic_algorithms_enabled",
            "get_deterministic_debug_mode",
            "is_deterministic_algorithms_warn_only_enabled",
            "set_deterministic_debug_mode",
            "use_deterministic_algorithms",
        ),
        "lucid_gpu.devices.determinism",
    ),
    **dict.fromkeys(
        (
            "BFloat16Tensor",
            "BoolTensor",
            "ByteTensor",
            "CharTensor",
            "DoubleTensor",
            "FloatTensor",
            "HalfTensor",
            "IntTensor",
            "LongTensor",
            "ShortTensor",
            "set_default_tensor_type",
        ),
        "lucid_gpu.ops.tensor_types",
    ),
    "PyTorchFileReader": "lucid_gpu._C",
    "TensorType": "lucid_gpu._C",
    "DeviceObjType": "lucid_gpu._C",
    "ScriptModule": "lucid_gpu.jit",
    "Future": "lucid_gpu.compat.future",
    **dict.fromkeys(("Event", "Stream"), "lucid_gpu.cuda"),
    "_assert": "lucid_gpu._C",
    **dict.fromkeys(
        (
            "_assert_async",
            "_check",
            "_check_index",
            "_check_is_size",
            "_check_not_implemented",
            "_check_tensor_all",
            "_check_type",
            "_check_value",
        ),
        "lucid_gpu._C",
    ),
    "_amp_foreach_non_finite_check_and_unscale_": "lucid_gpu._amp",
    "_amp_update_scale_": "lucid_gpu._amp",
    "_int_mm": "lucid_gpu._C",
    "_use_cudnn_rnn_flatten_weight": "lucid_gpu._C",
    "_softmax_backward_data": "lucid_gpu._aten_backward",
    "_log_softmax_backward_data": "lucid_gpu._aten_backward",
    "_shape_as_tensor": "lucid_gpu._C",
    "_has_compatible_shallow_copy_type": "lucid_gpu._C",
    "_convert_indices_from_coo_to_csr": "lucid_gpu._C",
    **dict.fromkeys((*_dtypes.NAMED_ONLY, "chalf"), "lucid_gpu.dtypes"),
    "explain": "lucid_gpu.fusion.explain",
    "is_anomaly_check_nan_enabled": "lucid_gpu.autograd.anomaly_mode",
    "is_anomaly_enabled": "lucid_gpu.autograd.anomaly_mode",
    "vmap": "lucid_gpu.func",
    "save": "lucid_gpu.serialization",
    **dict.fromkeys(("sparse_coo_tensor", "sparse_csr_tensor"), "lucid_gpu.sparse.creation"),
    "load": "lucid_gpu.serialization",
    "summary": "lucid_gpu.viz.summary",
    **dict.fromkeys(_STORAGE_TYPES, "lucid_gpu.ops.storage_types"),
    "TypedStorage": "lucid_gpu.ops.storages",
    "UntypedStorage": "lucid_gpu.ops.storages",
    "set_printoptions": "lucid_gpu.ops.printing",
    "get_float32_matmul_precision": "lucid_gpu.devices.precision",
    "set_float32_matmul_precision": "lucid_gpu.devices.precision",
    "default_generator": "lucid_gpu.ops.generator",
    **dict.fromkeys(("AcceleratorError", "OutOfMemoryError"), "lucid_gpu.devices.cuda_errors"),
    **dict.fromkeys(
        (
            *("channel_shuffle", "cosine_similarity", "pairwise_distance", "pixel_shuffle"),
            "pixel_unshuffle",
            *("alpha_dropout", "celu", "celu_", "dropout", "feature_alpha_dropout", "relu"),
            *("relu_", "rrelu", "rrelu_", "selu", "selu_", "threshold_"),
            *("group_norm", "layer_norm", "rms_norm"),
        ),
        "lucid_gpu.nn.functional",
    ),
}


def __getattr__(name: str) -> Any:
    if name.startswith("_foreach_"):
        value = importlib.import_module("lucid_gpu._foreach").FUNCTIONS.get(name)
        if value is not None:
            return value
    if name in _registry.FUNCTIONS:
        value = _registry.load(_registry.FUNCTIONS[name], name)
        value = globals()[name] = _published(value)
        _registry.findable({name: value}, __name__)
        return value
    if name == "__all__":  # what ``import *`` gives: no modules, as in PyTorch
        inner = {n for n, value in globals().items() if isinstance(value, type(importlib))}
        names = _names().difference(_MODULES, inner, ("Any", "annotations"))
        return sorted(n for n in names if n[0] != "_")
    return _imported(globals(), name, _FROM, _MODULES)


def _names() -> set[str]:
    public = [name for name in globals() if name[0] != "_" or name[:2] == "__"]
    return {*public, *_MODULES, *_FROM, *_registry.FUNCTIONS}


def __dir__() -> list[str]:
    return sorted(_names().difference(_UNLISTED))  # Python suggests names of up to 750


def is_tensor(value: Any) -> Any:
    """Whether a value is a `Tensor`."""
    return isinstance(value, Tensor)


@_published
def is_inference(input: Tensor) -> Any:
    """Whether a tensor, of any shape, was made in inference mode, or views what was."""
    return input.is_inference()


@_published
def numel(input: Tensor) -> Any:
    """Number of elements."""
    return input.numel()


@_published
def is_floating_point(input: Tensor) -> Any:
    """Whether a tensor's element type is a floating point type."""
    return input.dtype.is_floating_point


def result_type(a: Any, b: Any) -> _dtypes.dtype:
    """The type an op of two tensors or numbers gives."""
    tensors = [(x.dtype, x.ndim) for x in (a, b) if isinstance(x, Tensor)]
    numbers = [_dtypes.scalar_type(x) for x in (a, b) if not isinstance(x, Tensor)]
    return _dtypes.result_type(tensors, numbers)


_registry.findable(dict(globals()), __name__)
with _contextlib.suppress(ImportError):  # of einops, or of a class that it has no more
    importlib.import_module("lucid_gpu.compat.einops_backend")
del _function, _module, _name
