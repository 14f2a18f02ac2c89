"""Ops whose files are imported when one is first asked for: most programs never do.

A file of `TABLE` lists its ops in ``METHODS`` (of `Tensor`) and ``FUNCTIONS`` (of `lucid_gpu`).
Their names stand here too, so that `Tensor` and `lucid_gpu` know them before the import.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from lucid_gpu.tensor import Tensor

__all__ = ["FUNCTIONS", "TABLE", "findable", "load"]

# fmt: off
# file of this folder: (methods that are functions too, methods only, functions only)
TABLE: dict[str, tuple[str, str, str]] = {
    "scatter_reduce": ("scatter_reduce index_reduce", "scatter_reduce_ index_reduce_", ""),
    "distances": ("dist", "", "cdist pdist bilinear vander cosine_similarity pairwise_distance"),
    "einsum": ("inner", "", "einsum tensordot"),
    "products": ("addmv addmv_ addr addbmm baddbmm vdot ger kron", "addmm_ addr_ baddbmm_ addbmm_",
                 ""),
    "axes": ("swapaxes swapdims moveaxis ravel adjoint is_same_size", "sum_to_size unsqueeze_ "
             "squeeze_ t_ transpose_ swapaxes_ swapdims_", ""),
    "selections": ("select select_scatter slice_scatter narrow_copy index_fill masked_scatter "
                   "argwhere nonzero_static repeat_interleave", "index_fill_ masked_scatter_",
                   "index_put_"),
    "strides": ("as_strided as_strided_ as_strided_scatter resize_as_", "stride storage_offset "
                "data_ptr is_set_to unfold resize_", ""),
    "incomplete_gamma": ("igamma igammac", "", ""),
    "pinned": ("", "is_pinned pin_memory", ""),
    "cumulative": ("cumprod logcumsumexp cummax cummin diff", "cumprod_",
                   "trapezoid trapz cumulative_trapezoid gradient"),
    "convolution": ("", "", "conv1d conv2d conv3d"),
    "transposed_convolution": ("", "", "conv_transpose1d conv_transpose2d conv_transpose3d"),
    "recurrent": ("", "", "lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell "
                  "rnn_relu_cell"),
    "pooling": ("", "", "avg_pool1d max_pool1d max_pool2d max_pool3d"),
    "adaptive_pooling": ("", "", "adaptive_avg_pool1d adaptive_max_pool1d"),
    "activations": ("prelu hardshrink", "", ""),
    "linalg.cholesky": ("cholesky", "", ""),
    "linalg.determinant": ("det slogdet logdet", "", ""),
    "linalg.householder": ("geqrf orgqr ormqr", "", ""),
    "linalg.inverse": ("inverse triangular_solve cholesky_solve cholesky_inverse", "", ""),
    "linalg.low_rank": ("", "", "svd_lowrank pca_lowrank"),
    "linalg.lu": ("", "", "lu_unpack"),
    "linalg.old_names": ("svd qr lu lu_solve", "", "frobenius_norm nuclear_norm"),
    "linalg.products": ("matrix_power matrix_exp cross", "", "chain_matmul"),
    "linalg.svd": ("pinverse", "", ""),
    "diagonals": ("diagonal diag diag_embed diagflat trace diagonal_scatter", "fill_diagonal_", ""),
    "grids": ("", "", "meshgrid cartesian_prod combinations tril_indices triu_indices "
              "unravel_index"),
    "rolled": ("roll rot90 flipud fliplr", "", ""),
    "splitting": ("narrow split split_with_sizes chunk unbind unsafe_split "
                  "unsafe_split_with_sizes unsafe_chunk tensor_split", "", ""),
    "stacking": ("hsplit vsplit dsplit", "", "concat concatenate hstack vstack dstack row_stack "
                 "column_stack atleast_1d atleast_2d atleast_3d block_diag broadcast_shapes "
                 "broadcast_tensors"),
    "order": ("msort kthvalue mode aminmax unique unique_consecutive", "",
              "isin searchsorted bucketize"),
    "in_place_names": ("arccos_ arccosh_ arcsin_ arcsinh_ arctan_ arctanh_ fix_ negative_ gcd_ "
                       "lcm_ ldexp_",
                       "absolute_ arctan2_ divide_ greater_ greater_equal_ less_ less_equal_ "
                       "multiply_ not_equal_ subtract_ true_divide_ heaviside_ nextafter_ "
                       "renorm_ mvlgamma_ igamma_ igammac_",
                       "abs_ acos_ acosh_ asin_ asinh_ atan_ atanh_ ceil_ clamp_ clamp_max_ "
                       "clamp_min_ clip_ conj_physical_ cos_ cosh_ deg2rad_ detach_ erf_ erfc_ "
                       "exp2_ exp_ expm1_ fill_ floor_ frac_ log10_ log1p_ log2_ log_ "
                       "nan_to_num_ neg_ rad2deg_ reciprocal_ round_ rsqrt_ sigmoid_ sin_ "
                       "sinh_ sqrt_ square_ tan_ tanh_ trunc_ zero_ logit_ sinc_ xlogy_"),
    "complex_views": ("resolve_conj resolve_neg is_conj is_neg", "",
                      "view_as_real view_as_complex polar conj"),
    "storages": ("", "storage untyped_storage", "is_storage"),
    "shared_memory": ("", "share_memory_ is_shared", ""),
    "questions": ("is_signed is_nonzero", "",
                  "is_complex get_device detach fill"),
    "array_methods": ("", "astype copy conjugate to_device __array_namespace__ __imatmul__ "
                      "__ilshift__ __irshift__", ""),
    "dlpack": ("", "__dlpack__ __dlpack_device__", "from_dlpack to_dlpack from_torch to_torch"),
    "sources": ("", "new_empty_strided apply_ map_",
                "asarray frombuffer logspace range empty_strided"),
    "tensor_types": ("", "type new byte char", ""),
    "spectrograms": ("stft istft", "", ""),
    "signal_windows": ("", "", "hann_window hamming_window blackman_window bartlett_window "
                       "kaiser_window"),
    "statistics": ("quantile nanquantile nansum nanmean cov corrcoef renorm bincount histc "
                   "histogram isclose allclose equal", "", "std_mean var_mean"),
    "generator": ("", "", "get_rng_state initial_seed manual_seed seed set_rng_state"),
    "random": ("bernoulli", "uniform_ normal_ random_ bernoulli_ exponential_",
               "normal rand rand_like randint randint_like randn randn_like randperm"),
    "multinomial": ("multinomial", "", ""),
    "draws": ("", "cauchy_ log_normal_ geometric_", "poisson binomial"),
    "special_functions": ("polygamma mvlgamma logit sinc logaddexp2 fmax fmin float_power "
                          "heaviside positive signbit isposinf isneginf isreal ldexp frexp "
                          "nextafter gcd lcm", "logit_ sinc_ polygamma_ float_power_", ""),
}
# fmt: on

FUNCTIONS: dict[str, str] = {
    name: file for file, (both, _, only) in TABLE.items() for name in (*both.split(), *only.split())
}
# functions that take ``out=`` where the method does not
_TAKE_OUT = """addcdiv addcmul addmm angle bucketize chain_matmul cholesky cholesky_inverse
    cholesky_solve clamp clip complex cross deg2rad dot frac geqrf index_add index_copy
    index_reduce index_select inner inverse isin lerp log_softmax lu lu_solve lu_unpack
    masked_select matrix_power mv nan_to_num narrow_copy nonzero orgqr ormqr outer pinverse
    polar qr rad2deg scatter scatter_add scatter_reduce searchsorted slice_scatter softmax
    sort svd take take_along_dim tensordot topk triangular_solve tril triu"""
TAKE_OUT = frozenset(_TAKE_OUT.split())


class LazyMethod:
    """A method that makes way for the real one when it is first looked up."""

    def __init__(self, file: str, name: str) -> None:
        self.file, self.name = file, name

    def __get__(self, tensor: Tensor | None, owner: type[Tensor]) -> Any:
        function = load(self.file, self.name)
        setattr(Tensor, self.name, function)
        return function.__get__(tensor, owner)


def load(file: str, name: str) -> Callable[..., Any]:
    """The op called ``name``, which ``file`` of this folder defines."""
    module = importlib.import_module(f"lucid_gpu.ops.{file}")
    ops = (*getattr(module, "METHODS", ()), *getattr(module, "FUNCTIONS", ()))
    return next(function for function in ops if function.__name__ == name)


def findable(namespace: dict[str, Any], module: str) -> None:
    """Name functions that some factory made after the place where pickle can find them: here."""
    for name, function in namespace.items():
        if type(function) is not FunctionType or name[0] == "_":
            continue
        found: Any = sys.modules.get(function.__module__)
        for part in function.__qualname__.split("."):
            found = getattr(found, part, None)
        if found is not function:
            function.__module__, function.__qualname__ = module, name


for _file, (_both, _only, _) in TABLE.items():
    for _name in (*_both.split(), *_only.split()):
        setattr(Tensor, _name, LazyMethod(_file, _name))
