"""What ops declare about autocast, beside the lists of PyTorch's page on automatic mixed precision.

The page (docs.pytorch.org/docs/stable/amp.html) is written down here: an op that loses its
declaration, or has one that the page does not give it, fails.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import lucid_gpu
from lucid_gpu.nn import functional
from lucid_gpu.ops import matmul, softmax
from lucid_gpu.tape.door import op_of
from lucid_gpu.tape.overrides import function_of

# fmt: off
_PRODUCTS = """
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d mm bmm matmul linear
    addmm addbmm baddbmm einsum inner chain_matmul linalg.multi_dot linalg.vecdot prelu
    scaled_dot_product_attention lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell
    rnn_relu_cell"""
_LOSSES = """
    cosine_embedding_loss cross_entropy nll_loss hinge_embedding_loss kl_div l1_loss smooth_l1_loss
    huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss poisson_nll_loss
    triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits ctc_loss cdist"""
_ALGEBRA = """
    inverse pinverse trace cholesky cholesky_inverse cholesky_solve qr svd lu_solve linalg.cond
    linalg.cholesky linalg.cholesky_ex linalg.eig linalg.eigh linalg.eigvals linalg.eigvalsh
    linalg.inv linalg.inv_ex linalg.lstsq linalg.lu_factor linalg.lu_factor_ex linalg.matrix_rank
    linalg.pinv linalg.qr linalg.solve linalg.svd linalg.svdvals linalg.tensorinv
    linalg.tensorsolve"""
_TRANSFORMS = """
    fft.fft fft.ifft fft.fft2 fft.ifft2 fft.fftn fft.ifftn fft.rfft fft.irfft fft.rfft2 fft.irfft2
    fft.rfftn fft.irfftn fft.hfft fft.ihfft"""

LISTS: dict[str, dict[str, str]] = {
    "cpu": {
        "lower": f"{_PRODUCTS} tensordot matrix_power",
        "float32": f"""{_LOSSES} {_ALGEBRA} {_TRANSFORMS} prod avg_pool3d binary_cross_entropy
            grid_sample polar quantile nanquantile stft triplet_margin_with_distance_loss""",
        "promote": "cat concat concatenate stack index_copy",
    },
    "cuda": {
        "lower": f"{_PRODUCTS} mv addmv addr outer matrix_power",
        "float32": f"""{_LOSSES} acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal
            rsqrt sinh tan pow __pow__ __rpow__ softplus layer_norm rms_norm group_norm norm
            normalize frobenius_norm nuclear_norm cosine_similarity dist pdist renorm logsumexp
            interpolate upsample prod softmax softmin log_softmax cumprod cumsum linalg.norm
            linalg.vector_norm linalg.matrix_norm sum gumbel_softmax""",
        "promote": """cat concat concatenate stack addcdiv addcmul atan2 bilinear cross linalg.cross
            dot vdot grid_sample index_put tensordot scatter_add""",
        "refuse": "binary_cross_entropy",
    },
}
# fmt: on
NAMESPACES = (
    lucid_gpu,
    lucid_gpu.Tensor,
    functional,
    matmul,
    softmax,
)  # last: what attention calls
FOLDERS = ("linalg", "fft")


def ops_named(name: str) -> Iterator[Any]:
    """The ops of this name: in the package, of tensors, among layers' functions."""
    folder, _, name = name.rpartition(".")
    for space in [getattr(lucid_gpu, folder)] if folder else NAMESPACES:
        function = function_of(getattr(space, name, None))
        if inspect.isroutine(function) and (op := op_of(function)) is not None:
            yield op


def test_ops_declare_what_the_lists_say() -> None:
    wrong = []
    for device, kinds in LISTS.items():
        for kind, names in kinds.items():
            for name in names.split():
                declared = {op.autocast.get(device) for op in ops_named(name)}
                if declared != {kind}:
                    wrong.append((device, name, kind, declared))
    assert wrong == []


def test_no_other_op_declares_anything() -> None:
    listed: dict[tuple[Any, str], str] = {}
    for device, kinds in LISTS.items():
        for kind, names in kinds.items():
            listed |= {(op, device): kind for name in names.split() for op in ops_named(name)}
    names = {name for space in NAMESPACES for name in dir(space) if not name.startswith("_")}
    names |= {f"{f}.{name}" for f in FOLDERS for name in dir(getattr(lucid_gpu, f))}
    found = {op for name in names for op in ops_named(name)}
    assert len(found) > 300
    declared = {(op, device): kind for op in found for device, kind in op.autocast.items()}
    assert {place: listed.get(place) for place in declared} == declared


def test_what_attention_calls_is_cast_as_the_functions_of_users_are() -> None:
    for inner, outer in ((matmul.linear, functional.linear), (softmax.softmax, functional.softmax)):
        assert op_of(inner).autocast == op_of(outer).autocast
