"""Which ops autocast casts, and to what: PyTorch's lists, and how they are applied.

The lists are those of the reference on automatic mixed precision (docs.pytorch.org/docs/stable/
amp.html). While autocast is on anywhere, the arguments of each op are looked at first
(`tape.door`). What an op calls inside is its own affair, and is not cast again.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

from lucid_gpu.amp.state import cast, eligible, state
from lucid_gpu.dtypes import float32
from lucid_gpu.nn import functional
from lucid_gpu.ops import matmul, softmax
from lucid_gpu.tape.door import AUTOCAST, Interpreter, Watch, op_of
from lucid_gpu.tape.engine import run_node
from lucid_gpu.tape.modes import state as modes
from lucid_gpu.tensor import Tensor

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

# What is done with arguments: "lower" casts to the 16-bit type, "float32" to that, "promote" to the
# widest among them, "leave" does nothing, nor to the ops that such a composition calls.
LISTS: dict[str, dict[str, str]] = {
    "cpu": {
        "lower": f"{_PRODUCTS} tensordot matrix_power",
        "float32": f"""{_LOSSES} {_ALGEBRA} {_TRANSFORMS} prod avg_pool3d binary_cross_entropy
            grid_sample polar quantile nanquantile stft triplet_margin_with_distance_loss""",
        "promote": "cat concat concatenate stack index_copy",
        "leave": "mv dot vdot outer addmv addr bilinear det slogdet logdet",
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
UNSAFE = (
    "nn.functional.binary_cross_entropy and nn.BCELoss are unsafe to autocast.\n"
    "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
    "In this case, combine the two layers using nn.functional.binary_cross_entropy_with_logits\n"
    "or nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
    "safe to autocast."
)


def _interpreter() -> Interpreter:
    kinds_of = kinds_of_ops()

    def cast_first(
        op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], go_on: Callable[..., Any]
    ) -> Any:
        if modes.in_op or (op is run_node and args[0].runs_user_code):
            return go_on(*args, **kwargs)
        where = _device_type(args, kwargs)
        if where is not None and state.enabled[where] and kwargs.get("out") is None:
            kind = kinds_of.get(op, {}).get(where, "leave")
            args, kwargs = _CASTS[kind](args, kwargs, where)
        modes.in_op = True
        try:
            return go_on(*args, **kwargs)
        finally:
            modes.in_op = False

    return cast_first


def _device_type(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    return next((t.device.type for t in _tensors((*args, *kwargs.values()))), None)


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _to(args: Any, kwargs: Any, to: Any, where: str) -> tuple[Any, Any]:
    return cast(args, to, where), {k: cast(v, to, where) for k, v in kwargs.items()}


def _lower(args: Any, kwargs: Any, where: str) -> tuple[Any, Any]:
    return _to(args, kwargs, state.dtype[where], where)


def _float32(args: Any, kwargs: Any, where: str) -> tuple[Any, Any]:
    asked = kwargs.get("dtype") is not None  # then the op is done in that type
    return (args, kwargs) if asked else _to(args, kwargs, float32, where)


def _promote(args: Any, kwargs: Any, where: str) -> tuple[Any, Any]:
    some = [t for t in _tensors((*args, *kwargs.values())) if eligible(t, where)]
    wide = any(t.dtype is float32 for t in some)
    return _to(args, kwargs, float32 if wide else state.dtype[where], where)


def _leave(args: Any, kwargs: Any, where: str) -> tuple[Any, Any]:
    return args, kwargs


def _refuse(args: Any, kwargs: Any, where: str) -> tuple[Any, Any]:
    raise RuntimeError(UNSAFE)


_CASTS: dict[str, Callable[[Any, Any, str], tuple[Any, Any]]] = {
    "lower": _lower,
    "float32": _float32,
    "promote": _promote,
    "leave": _leave,
    "refuse": _refuse,
}


def kinds_of_ops() -> dict[Any, dict[str, str]]:
    """What is done with the arguments of each op of the lists, by the kind of their device."""
    kinds: dict[Any, dict[str, str]] = {}
    for where, lists in LISTS.items():
        for kind, names in lists.items():
            for op in [op for name in names.split() for op in _ops(name)]:
                kinds.setdefault(op, {})[where] = kind
    return kinds


def _ops(name: str) -> Iterator[Any]:
    """The ops of this name: in the package, of tensors, among layers' functions."""
    package = sys.modules["lucid_gpu"]
    folder, _, name = name.rpartition(".")
    homes = [package, Tensor, functional, matmul, softmax]  # the last two: what attention calls
    for home in [getattr(package, folder, None)] if folder else homes:
        function = getattr(home, name, None)
        if inspect.isfunction(function) and (op := op_of(function)) is not None:
            yield op


watching = Watch(AUTOCAST, _interpreter)
