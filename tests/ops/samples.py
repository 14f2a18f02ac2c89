"""Sample calls of every op that is not an elementwise row: the data of test_every_op.py.

A line is one call, by the name that PyTorch has for it; several lines of one name are several
calls. ``t(3, 4)`` is a tensor of random float64 numbers, ``fixed([0, 2])`` one of these values.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

__all__ = ["NOT_SAMPLED", "ROWS", "Drawn", "Fixed", "Row", "draw", "placeholders"]


@dataclass(frozen=True)
class Drawn:
    """A tensor of random numbers, which is differentiated."""

    shape: tuple[int, ...]
    domain: str | tuple[float, float]


@dataclass(frozen=True)
class Fixed:
    """A tensor of these values: indices, masks, targets. Floats are of the type of the others."""

    values: Any
    dtype: str | None = None


@dataclass(frozen=True)
class Row:
    """One call, and what of the tests does not apply to it, with the reason."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    reasons: dict[str, str] = field(default_factory=dict)
    of: Callable[[Any], Any] = lambda result: result

    def but(self, **reasons: str) -> Row:
        """The row without tests: ``vmap="its shape depends on values"``."""
        return replace(self, reasons={**self.reasons, **reasons})

    def compare(self, of: Callable[[Any], Any]) -> Row:
        """The row, of whose result only ``of(result)`` is determined."""
        return replace(self, of=of)


# has_biases, num_layers, dropout, train, bidirectional, batch_first
ONE_LAYER = (True, 1, 0.0, True, False, False)


def row(name: str, *args: Any, **kwargs: Any) -> Row:
    return Row(name, args, kwargs)


def t(*shape: int, of: str | tuple[float, float] = "normal") -> Drawn:
    return Drawn(shape, of)


def fixed(values: Any, dtype: str | None = None) -> Fixed:
    return Fixed(values, dtype)


def placeholders(value: Any) -> Iterator[Drawn]:
    """The tensors that are drawn for arguments, in their order."""
    if isinstance(value, Drawn):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from placeholders(part)


def _square(shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    return 0.3 * rng.standard_normal(shape) + np.diag(np.arange(1.0, shape[-1] + 1))


def _definite(shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    a = _square(shape, rng)
    return a @ np.swapaxes(a, -1, -2)


DOMAINS: dict[str, Callable[[tuple[int, ...], np.random.Generator], Any]] = {
    "normal": lambda shape, rng: rng.standard_normal(shape),
    "positive": lambda shape, rng: rng.uniform(0.5, 2, shape),
    "unit": lambda shape, rng: rng.uniform(0.1, 0.9, shape),
    "distinct": lambda shape, rng: (
        rng.permutation(np.linspace(-2, 2.2, int(np.prod(shape)))).reshape(shape).copy()
    ),
    "complex": lambda shape, rng: rng.standard_normal(shape) + 1j * rng.standard_normal(shape),
    "square": _square,
    "definite": _definite,
    "factor": lambda shape, rng: np.tril(_square(shape, rng)),
}


def draw(name: str, place: int, wanted: Drawn, again: int = 0) -> Any:
    """The array of a placeholder; ``again`` numbers others like it."""
    seed = [zlib.crc32(name.encode()), place, again]
    rng = np.random.default_rng(seed)
    if isinstance(wanted.domain, tuple):  # an interval
        return np.asarray(rng.uniform(*wanted.domain, wanted.shape))
    return np.asarray(DOMAINS[wanted.domain](wanted.shape, rng))


NO_SHAPE = "the shape of the result depends on values"
RANDOM = "random: there are no values to compare; tests/ops/test_random.py and test_draws.py"
NO_VALUES = "memory that nothing was written to"

RANDOM_OPS = """binomial poisson multinomial bernoulli normal rand rand_like randint randint_like
    randn randn_like randperm nn.functional.gumbel_softmax Tensor.bernoulli_ Tensor.cauchy_
    Tensor.exponential_ Tensor.geometric_ Tensor.log_normal_ Tensor.normal_ Tensor.random_
    Tensor.uniform_"""
EMPTY_OPS = "empty empty_like empty_permuted empty_strided Tensor.new_empty_strided"
SPECIAL = """airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_k0 modified_bessel_k1
    scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0"""
POLYNOMIALS = """chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v
    chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l
    legendre_polynomial_p shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u
    shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w"""
UNARY = """acos asin cosh erfinv exp expm1 log log10 log1p log2 reciprocal rsqrt sinh tan"""

# Public names without a row, and why.
NOT_SAMPLED = {
    **dict.fromkeys(RANDOM_OPS.split(), RANDOM),
    **dict.fromkeys(EMPTY_OPS.split(), NO_VALUES),
    **dict.fromkeys(("sparse_coo_tensor", "sparse_csr_tensor"), "sparse: tests/sparse"),
    "Tensor.is_contiguous": "a question about layout: tests/ops/test_strides.py",
}

ROWS = [
    # --- nn.functional and activations
    row("nn.functional.cross_entropy", t(3, 4), fixed([0, 3, 1])),
    row("nn.functional.cross_entropy", t(3, 4), t(3, 4, of="unit"), label_smoothing=0.1),
    row("nn.functional.linear", t(2, 3), t(4, 3), t(4)),
    row("nn.functional.log_softmax", t(2, 3), 1),
    row("nn.functional.nll_loss", t(3, 4), fixed([0, 3, 1])),
    row("nn.functional.softmax", t(2, 3), 1),
    row("nn.functional.softmin", t(2, 3), 1),
    row("log_softmax", t(2, 3), 1),
    row("softmax", t(2, 3), 0),
    row("special.log_softmax", t(2, 3), 1),
    row("special.softmax", t(2, 3), 1),
    row("special.log_ndtr", t(2, 3)),
    row("special.xlog1py", t(2, 3, of="unit"), t(2, 3, of="unit")),
    row("hardshrink", t(2, 3, of="distinct")),
    row("prelu", t(2, 3), t(3, of="positive")),
    row("rrelu", t(2, 3)),
    row("threshold", t(2, 3), 0.1, 20.0),
    row("nn.functional.glu", t(2, 4)),
    row("nn.functional.softshrink", t(2, 3)),
    row("celu", t(2, 3), 0.7),
    row("selu", t(2, 3)),
    row("nn.functional.elu", t(2, 3), 0.7),
    row("nn.functional.gelu", t(2, 3)),
    row("nn.functional.gelu", t(2, 3), approximate="tanh"),
    row("nn.functional.hardsigmoid", t(2, 3)),
    row("nn.functional.hardswish", t(2, 3)),
    row("nn.functional.hardtanh", t(2, 3), -0.5, 0.6),
    row("nn.functional.leaky_relu", t(2, 3), 0.1),
    row("nn.functional.logsigmoid", t(2, 3)),
    row("nn.functional.mish", t(2, 3)),
    row("nn.functional.relu6", t(2, 3)),
    row("nn.functional.silu", t(2, 3)),
    row("nn.functional.softplus", t(2, 3), 2.0, 1.5),
    row("nn.functional.softsign", t(2, 3)),
    row("nn.functional.tanhshrink", t(2, 3)),
    # --- convolution and pooling
    row("conv1d", t(2, 2, 5), t(3, 2, 3), t(3), padding=1),
    row("conv2d", t(1, 2, 4, 4), t(2, 1, 2, 2), t(2), groups=2),
    row("conv3d", t(1, 1, 3, 3, 3), t(2, 1, 2, 2, 2)),
    row("conv_transpose1d", t(1, 2, 4), t(2, 3, 3), t(3), stride=2),
    row("conv_transpose2d", t(1, 2, 3, 3), t(2, 2, 2, 2)),
    row("conv_transpose3d", t(1, 1, 2, 2, 2), t(1, 2, 2, 2, 2)),
    row("adaptive_avg_pool1d", t(1, 2, 5), 3),
    row("adaptive_max_pool1d", t(1, 2, 5, of="distinct"), 3).compare(lambda pair: pair[0]),
    row("nn.functional.adaptive_avg_pool2d", t(1, 2, 5, 4), (3, 2)),
    row("nn.functional.adaptive_avg_pool3d", t(1, 1, 3, 4, 2), (2, 2, 1)),
    row("nn.functional.adaptive_max_pool1d", t(1, 2, 5, of="distinct"), 3),
    row("nn.functional.adaptive_max_pool2d", t(1, 2, 5, 4, of="distinct"), (3, 2)),
    row("nn.functional.adaptive_max_pool3d", t(1, 1, 3, 4, 2, of="distinct"), (2, 2, 1)),
    row("avg_pool1d", t(1, 2, 6), 2),
    row("nn.functional.avg_pool2d", t(1, 2, 4, 4), 2, padding=1, count_include_pad=False),
    row("nn.functional.avg_pool3d", t(1, 1, 4, 2, 2), 2),
    row("max_pool1d", t(1, 2, 6, of="distinct"), 2),
    row("max_pool2d", t(1, 2, 4, 4, of="distinct"), 3, 1, 1),
    row("max_pool3d", t(1, 1, 4, 2, 2, of="distinct"), 2),
    row("nn.functional.max_pool2d", t(1, 1, 4, 4, of="distinct"), 2, return_indices=True),
    row("nn.functional.lp_pool1d", t(1, 2, 6, of="positive"), 2.0, 2),
    row("nn.functional.lp_pool2d", t(1, 2, 4, 4, of="positive"), 2.0, 2),
    row("nn.functional.lp_pool3d", t(1, 1, 2, 4, 2, of="positive"), 2.0, 2),
    row("nn.functional.max_unpool1d", t(1, 1, 2), fixed([[[1, 2]]]), 2),
    row("nn.functional.max_unpool2d", t(1, 1, 1, 2), fixed([[[[1, 6]]]]), 2),
    row("nn.functional.max_unpool3d", t(1, 1, 1, 1, 2), fixed([[[[[1, 10]]]]]), 2),
    row(
        "nn.functional.fractional_max_pool2d",
        t(1, 1, 5, 5, of="distinct"),
        2,
        (3, 3),
        _random_samples=fixed([[[0.3, 0.7]]]),
    ),
    row(
        "nn.functional.fractional_max_pool3d",
        t(1, 1, 4, 4, 4, of="distinct"),
        2,
        (2, 2, 2),
        _random_samples=fixed([[[0.3, 0.7, 0.5]]]),
    ),
    row("nn.functional.fold", t(1, 4, 4), (3, 3), 2),
    row("nn.functional.unfold", t(1, 1, 3, 3), 2),
    row("constant_pad_nd", t(2, 3), (1, -1), 0.5),
    row("nn.functional.pad", t(2, 3), (1, 2)),
    row("nn.functional.pad", t(1, 2, 4), (1, 2), mode="reflect"),
    row("nn.functional.interpolate", t(1, 1, 3, 3), scale_factor=2, mode="bilinear"),
    row("nn.functional.interpolate", t(1, 1, 4), size=3),
    row("nn.functional.upsample", t(1, 1, 3), scale_factor=2),
    row("nn.functional.upsample_bilinear", t(1, 1, 3, 3), scale_factor=2),
    row("nn.functional.upsample_nearest", t(1, 1, 3, 3), scale_factor=2),
    row("nn.functional.affine_grid", t(1, 2, 3), (1, 1, 2, 3), align_corners=False),
    row("nn.functional.grid_sample", t(1, 1, 3, 3), t(1, 2, 2, 2, of="unit"), align_corners=False),
    row("channel_shuffle", t(1, 4, 2), 2),
    row("pixel_shuffle", t(1, 4, 2, 2), 2),
    row("pixel_unshuffle", t(1, 1, 4, 4), 2),
    # --- normalization, attention, dropout, embeddings, recurrence
    row("nn.functional.scaled_dot_product_attention", t(1, 2, 3, 4), t(1, 2, 3, 4), t(1, 2, 3, 4)),
    row(
        "nn.functional.scaled_dot_product_attention",
        t(2, 3, 4),
        t(2, 3, 4),
        t(2, 3, 4),
        is_causal=True,
    ),
    row("nn.functional.batch_norm", t(4, 3), None, None, t(3), t(3), training=True),
    row("nn.functional.batch_norm", t(4, 3), fixed([0.1, 0.2, 0.3]), fixed([1.0, 2.0, 3.0])),
    row("group_norm", t(2, 4, 3), 2, t(4), t(4)),
    row("nn.functional.instance_norm", t(2, 2, 4)),
    row("nn.functional.local_response_norm", t(2, 4, 3), 2),
    row("nn.functional.normalize", t(2, 3)),
    row("layer_norm", t(2, 3), (3,), t(3), t(3)),
    row("rms_norm", t(2, 3), (3,), t(3)),
    row("dropout", t(2, 3), 0.5, False),
    row("alpha_dropout", t(2, 3), 0.5, False),
    row("feature_alpha_dropout", t(2, 3), 0.5, False),
    row("nn.functional.dropout1d", t(2, 2, 3), 0.5, False),
    row("nn.functional.dropout2d", t(1, 2, 3, 2), 0.5, False),
    row("nn.functional.dropout3d", t(1, 2, 3, 2, 1), 0.5, False),
    row("nn.functional.embedding", fixed([0, 2, 2]), t(4, 3)),
    row("nn.functional.embedding_bag", fixed([[0, 2], [2, 1]]), t(4, 3)),
    row("gru_cell", t(2, 3), t(2, 2), t(6, 3), t(6, 2), t(6), t(6)),
    row("lstm_cell", t(2, 3), (t(2, 2), t(2, 2)), t(8, 3), t(8, 2), t(8), t(8)),
    row("rnn_relu_cell", t(2, 3), t(2, 2), t(2, 3), t(2, 2), t(2), t(2)),
    row("rnn_tanh_cell", t(2, 3), t(2, 2), t(2, 3), t(2, 2), t(2), t(2)),
    row(
        "gru",
        t(3, 1, 2),
        t(1, 1, 2),
        [t(6, 2), t(6, 2), t(6), t(6)],
        *ONE_LAYER,
    ),
    row(
        "lstm",
        t(3, 1, 2),
        (t(1, 1, 2), t(1, 1, 2)),
        [t(8, 2), t(8, 2), t(8), t(8)],
        *ONE_LAYER,
    ).but(autocast="PyTorch refuses bfloat16 on processors without AVX-512"),
    row(
        "rnn_relu",
        t(3, 1, 2),
        t(1, 1, 2),
        [t(2, 2), t(2, 2), t(2), t(2)],
        *ONE_LAYER,
    ),
    row(
        "rnn_tanh",
        t(3, 1, 2),
        t(1, 1, 2),
        [t(2, 2), t(2, 2), t(2), t(2)],
        *ONE_LAYER,
    ),
    # --- losses and distances
    row("nn.functional.binary_cross_entropy", t(2, 3, of="unit"), t(2, 3, of="unit")),
    row("nn.functional.binary_cross_entropy_with_logits", t(2, 3), t(2, 3, of="unit")),
    row("nn.functional.gaussian_nll_loss", t(2, 3), t(2, 3), t(2, 3, of="positive")).but(
        vmap="looks at values, as PyTorch does"
    ),
    row("nn.functional.huber_loss", t(2, 3), t(2, 3), delta=0.7),
    row("nn.functional.kl_div", t(2, 3), t(2, 3, of="unit"), reduction="batchmean"),
    row("nn.functional.l1_loss", t(2, 3), t(2, 3)),
    row("nn.functional.mse_loss", t(2, 3), t(2, 3)),
    row("nn.functional.poisson_nll_loss", t(2, 3), t(2, 3, of="positive")),
    row("nn.functional.smooth_l1_loss", t(2, 3), t(2, 3), beta=0.7),
    row("cosine_similarity", t(2, 3), t(2, 3)),
    row("pairwise_distance", t(2, 3), t(2, 3)),
    row("nn.functional.cosine_embedding_loss", t(2, 3), t(2, 3), fixed([1, -1])),
    row("nn.functional.hinge_embedding_loss", t(3), fixed([1, -1, 1])),
    row("nn.functional.margin_ranking_loss", t(3), t(3), fixed([1, -1, 1]), 0.1),
    row("nn.functional.multi_margin_loss", t(2, 3), fixed([0, 2])),
    row("nn.functional.multilabel_margin_loss", t(2, 3), fixed([[0, 2, -1], [1, -1, 0]])),
    row("nn.functional.multilabel_soft_margin_loss", t(2, 3), fixed([[0, 1, 1], [1, 0, 0]])),
    row("nn.functional.soft_margin_loss", t(3), fixed([1, -1, 1])),
    row("nn.functional.triplet_margin_loss", t(2, 3), t(2, 3), t(2, 3)),
    row("nn.functional.triplet_margin_with_distance_loss", t(2, 3), t(2, 3), t(2, 3)),
    row("nn.functional.ctc_loss", t(4, 1, 3), fixed([[1, 2]]), fixed([4]), fixed([2])).but(
        gradcheck="as in PyTorch the gradient holds for probabilities that sum to one",
        forward="as in PyTorch the gradient holds for probabilities that sum to one",
    ),
    row("bilinear", t(2, 3), t(2, 2), t(4, 3, 2), t(4)),
    row("cdist", t(2, 3), t(4, 3)),
    row("cdist", t(2, 3), t(4, 3), p=1.0),
    row("dist", t(2, 3), t(2, 3)),
    row("pdist", t(3, 2)),
    row("vander", t(3), 3).but(gradients="PyTorch writes over what it kept: it raises"),
    # --- axes and shapes
    row("adjoint", t(2, 3)),
    row("moveaxis", t(2, 3, 2), 0, 2),
    row("movedim", t(2, 3, 2), 0, 2),
    row("ravel", t(2, 3)),
    row("swapaxes", t(2, 3), 0, 1),
    row("swapdims", t(2, 3), 0, 1),
    row("Tensor.sum_to_size", t(2, 3), 1, 3),
    row("broadcast_to", t(3), (2, 3)),
    row("cat", [t(2, 3), t(1, 3)], 0),
    row("clone", t(2, 3)),
    row("flatten", t(2, 3, 2), 1),
    row("flip", t(2, 3), (1,)),
    row("permute", t(2, 3, 2), (2, 0, 1)),
    row("reshape", t(2, 3), (3, 2)),
    row("squeeze", t(2, 1, 3), 1),
    row("stack", [t(2, 3), t(2, 3)], 1),
    row("t", t(2, 3)),
    row("tile", t(2, 3), (2, 1)),
    row("transpose", t(2, 3), 0, 1),
    row("unflatten", t(2, 4), 1, (2, 2)),
    row("unsqueeze", t(2, 3), 1),
    row("Tensor.contiguous", t(2, 3)),
    row("Tensor.expand", t(1, 3), 2, -1),
    row("Tensor.expand_as", t(1, 3), fixed([[1.0] * 3] * 2)),
    row("Tensor.repeat", t(2, 3), 2, 1),
    row("Tensor.reshape_as", t(2, 3), fixed([[1.0] * 2] * 3)),
    row("Tensor.view", t(2, 3), 3, 2).but(strides="views depend on strides"),
    row("Tensor.view_as", t(2, 3), fixed([[1.0] * 2] * 3)).but(strides="views depend on strides"),
    row("chunk", t(4, 2), 2),
    row("narrow", t(4, 2), 0, 1, 2),
    row("narrow_copy", t(4, 2), 0, 1, 2),
    row("split", t(4, 2), 3),
    row("split_with_sizes", t(4, 2), [1, 3]),
    row("tensor_split", t(4, 2), 3),
    row("unbind", t(2, 3), 1),
    row("unsafe_chunk", t(4, 2), 2),
    row("unsafe_split", t(4, 2), 3),
    row("unsafe_split_with_sizes", t(4, 2), [1, 3]),
    row("atleast_1d", t()),
    row("atleast_2d", t(3)),
    row("atleast_3d", t(3)),
    row("block_diag", t(2, 2), t(1, 3)),
    row("broadcast_tensors", t(1, 3), t(2, 1)),
    row("column_stack", [t(3), t(3, 2)]),
    row("concat", [t(2, 3), t(1, 3)]),
    row("concatenate", [t(2, 3), t(1, 3)]),
    row("dsplit", t(1, 2, 4), 2),
    row("dstack", [t(2, 3), t(2, 3)]),
    row("hsplit", t(2, 4), 2),
    row("hstack", [t(2, 3), t(2, 1)]),
    row("row_stack", [t(2, 3), t(1, 3)]),
    row("vsplit", t(4, 2), 2),
    row("vstack", [t(2, 3), t(1, 3)]),
    row("fliplr", t(2, 3)),
    row("flipud", t(2, 3)),
    row("roll", t(2, 3), 1, 1),
    row("rot90", t(2, 3)),
    row("as_strided", t(2, 3), (2, 2), (3, 1)).but(strides="it replaces strides"),
    row("as_strided_", t(2, 3), (2, 2), (3, 1))
    .but(strides="it replaces strides")
    .but(
        vmap="as_strided_ is refused inside transforms",
        forward="as_strided_ is refused inside transforms",
    ),
    row("as_strided_scatter", t(2, 3), t(2, 2), (2, 2), (3, 1))
    .but(strides="it replaces strides")
    .but(
        gradients="PyTorch gives it to what was overwritten and not to what was kept",
        vmap="PyTorch has no rule",
    ),
    row("Tensor.unfold", t(2, 5), 1, 3, 2),
    row("cartesian_prod", t(2), t(3)),
    row("combinations", t(4), 2),
    row("meshgrid", t(2), t(3), indexing="ij"),
    # --- complex numbers and transforms
    row("angle", t(2, 3, of="complex")),
    row("complex", t(2, 3), t(2, 3)),
    row("conj", t(2, 3, of="complex")),
    row("polar", t(2, 3, of="positive"), t(2, 3)),
    row("view_as_complex", t(3, 2)).but(strides="its last dimension must be dense"),
    row("view_as_real", t(2, 3, of="complex")),
    row("fft.fft", t(2, 4, of="complex")),
    row("fft.fft", t(2, 4), 3, norm="ortho"),
    row("fft.fft2", t(3, 4)),
    row("fft.fftn", t(3, 4)),
    row("fft.fftshift", t(2, 4)),
    row("fft.hfft", t(2, 3, of="complex")),
    row("fft.hfft2", t(2, 3, of="complex")),
    row("fft.hfftn", t(2, 3, of="complex")),
    row("fft.ifft", t(2, 4, of="complex")),
    row("fft.ifft2", t(3, 4, of="complex")),
    row("fft.ifftn", t(3, 4, of="complex")),
    row("fft.ifftshift", t(2, 4)),
    row("fft.ihfft", t(2, 4)),
    row("fft.ihfft2", t(3, 4)),
    row("fft.ihfftn", t(3, 4)),
    row("fft.irfft", t(2, 3, of="complex")),
    row("fft.irfft2", t(2, 3, of="complex")),
    row("fft.irfftn", t(2, 3, of="complex")),
    row("fft.rfft", t(2, 4)),
    row("fft.rfft2", t(3, 4)),
    row("fft.rfftn", t(3, 4)),
    row("fft.fftfreq", 5, 0.5),
    row("fft.rfftfreq", 5, 0.5),
    row("stft", t(2, 8), 4, return_complex=True, window=fixed([0.5, 1.0, 1.0, 0.5])),
    row("stft", t(8), 4, 2, return_complex=True, window=t(4, of="positive")),
    row("istft", t(3, 5, of="complex"), 4, 2, window=t(4, of="positive")).but(
        vmap="looks at values, as PyTorch does"
    ),
    # --- cumulative
    row("cumsum", t(3, 4), 1),
    row("cumprod", t(3, 4), 0),
    row("cummax", t(3, 4, of="distinct"), 1),
    row("cummin", t(3, 4, of="distinct"), 1),
    row("logcumsumexp", t(3, 4), 1),
    row("cumulative_trapezoid", t(2, 4), dx=0.5),
    row("trapezoid", t(2, 4), t(2, 4)),
    row("trapz", t(2, 4), dx=0.5),
    row("diff", t(2, 4), 2),
    row("diff", t(2, 4), prepend=t(2, 1)),
    row("gradient", t(4), spacing=0.5),
    # --- diagonals and triangles
    row("diag", t(3, 3), 1),
    row("diag", t(3)),
    row("diag_embed", t(2, 3)),
    row("diagflat", t(2, 2)),
    row("diagonal", t(3, 3), 1),
    row("diagonal_scatter", t(3, 3), t(3)),
    row("trace", t(3, 3)),
    row("Tensor.fill_diagonal_", t(3, 3), 2.0),
    row("tril", t(3, 3)),
    row("triu", t(3, 4), 1),
    row("tril_indices", 3, 3),
    row("triu_indices", 3, 4, 1),
    # --- elementwise compositions
    row("addcdiv", t(2, 3), t(2, 3), t(3, of="positive"), value=0.5),
    row("addcmul", t(2, 3), t(2, 3), t(3), value=0.5),
    row("deg2rad", t(2, 3)),
    row("rad2deg", t(2, 3)),
    row("frac", t(2, 3)),
    row("lerp", t(2, 3), t(2, 3), 0.3),
    row("lerp", t(2, 3), t(2, 3), t(3, of="unit")),
    row("nan_to_num", t(2, 3)),
    row("pow", t(2, 3, of="positive"), t(3)),
    row("pow", t(2, 3), 3),
    row("Tensor.pow", t(2, 3, of="positive"), 1.5),
    row("Tensor.__pow__", t(2, 3), 2),
    row("Tensor.__rpow__", t(2, 3), 2.0),
    row("float_power", t(2, 3, of="positive"), 1.5),
    row("fmax", t(2, 3), t(2, 3)),
    row("fmin", t(2, 3), t(2, 3)),
    row("frexp", t(2, 3)),
    row("gcd", fixed([4, 6]), fixed([6, 9])),
    row("lcm", fixed([4, 6]), fixed([6, 9])),
    row("heaviside", t(2, 3), t(3)).but(
        **dict.fromkeys(("gradients", "gradcheck", "forward", "strides"), "backward raises")
    ),
    row("isneginf", t(2, 3)),
    row("isposinf", t(2, 3)),
    row("isreal", t(2, 3)),
    row("ldexp", t(2, 3), fixed([1, 2, 3])),
    row("logaddexp2", t(2, 3), t(2, 3)),
    *[
        row(f"special.{name}", fixed([[0.5, 1.5], [2.0, 7.0]])).but(
            values="PyTorch's has errors of 1e-7: SciPy's in test_special_functions.py"
        )
        for name in SPECIAL.split()
    ],
    *[
        row(f"special.{name}", fixed([[0.5, 0.25], [1.0, 1.5]]), fixed([[2, 8]]))
        for name in POLYNOMIALS.split()
    ],
    row("logit", t(2, 3, of="unit")),
    row("mvlgamma", t(2, 3, of="positive"), 1),
    row("nextafter", t(2, 3), t(2, 3)).but(
        gradients="here nothing is recorded where PyTorch records what raises in backward"
    ),
    row("polygamma", 1, t(2, 3, of="positive")).but(in_place="its first argument is a number"),
    row("positive", t(2, 3)),
    row("signbit", t(2, 3)),
    row("sinc", t(2, 3)),
    row("igamma", fixed([[0.7, 1.0, 2.0]]), t(2, 3, of="positive")),
    row("igammac", fixed([[0.7, 1.0, 2.0]]), t(2, 3, of="positive")),
    *(row(f"Tensor.{name}", t(2, 3, of="unit")) for name in UNARY.split()),
    row("Tensor.atan2", t(2, 3), t(2, 3)),
    # --- selection
    row("argsort", t(2, 4, of="distinct")),
    row("sort", t(2, 4, of="distinct"), 1, True),
    row("msort", t(4, 2, of="distinct")),
    row("topk", t(2, 4, of="distinct"), 2),
    row("kthvalue", t(2, 4, of="distinct"), 2),
    row("mode", t(2, 4, of="distinct")),
    row("gather", t(3, 2), 0, fixed([[0, 2], [1, 1]])),
    row("index_put", t(4, 2), [fixed([0, 2])], t(2, 2)),
    row("index_put", t(4, 2), [fixed([2, 2])], t(2), accumulate=True),
    row("index_put_", t(4, 2), [fixed([0, 2])], t(2, 2)),
    row("index_select", t(4, 2), 0, fixed([0, 2, 2])),
    row("masked_select", t(4), fixed([True, False, True, True])).but(vmap=NO_SHAPE),
    row("masked_scatter", t(4), fixed([True, False, True, True]), t(4)),
    row("nonzero", t(4)).but(vmap=NO_SHAPE),
    row("argwhere", t(4)).but(vmap=NO_SHAPE),
    row("nonzero_static", t(4), size=3).but(vmap="PyTorch has no rule"),
    row("put", t(2, 3), fixed([0, 4]), t(2)),
    row("scatter", t(3, 2), 0, fixed([[0, 2], [1, 1]]), t(2, 2)),
    row("scatter", t(3, 2), 0, fixed([[0, 2], [1, 1]]), 1.5),
    row("take", t(2, 3), fixed([0, 4, 4])),
    row("take_along_dim", t(3, 2), fixed([[0, 2], [1, 1]]), 0),
    row("Tensor.__setitem__", t(4, 2), 1, t(2)),
    row("index_add", t(4, 2), 0, fixed([0, 2, 2]), t(3, 2), alpha=0.5),
    row("index_copy", t(4, 2), 0, fixed([0, 2]), t(2, 2)),
    row("scatter_add", t(3, 2), 0, fixed([[0, 2], [1, 1]]), t(2, 2)),
    row("Tensor.index_add_", t(4, 2), 0, fixed([0, 2, 2]), t(3, 2)),
    row("Tensor.scatter_add_", t(3, 2), 0, fixed([[0, 2], [1, 1]]), t(2, 2)),
    row("index_reduce", t(4, 2), 0, fixed([0, 2, 2]), t(3, 2), "prod"),
    row("scatter_reduce", t(3, 2), 0, fixed([[0, 2], [1, 1]]), t(2, 2), "prod"),
    row("scatter_reduce", t(3, 2), 0, fixed([[0, 2], [1, 1]]), t(2, 2), "amax"),
    row("index_fill", t(4, 2), 0, fixed([0, 2]), 1.5),
    row("repeat_interleave", t(3, 2), 2, 0),
    row("select", t(3, 2), 0, 1),
    row("select_scatter", t(3, 2), t(2), 0, 1),
    row("slice_scatter", t(4, 2), t(2, 2), 0, 1, 3),
    row("unravel_index", fixed([1, 5]), (2, 3)),
    # --- order and statistics
    row("aminmax", t(2, 4, of="distinct"), dim=1),
    row("bucketize", t(3), fixed([-0.5, 0.5])),
    row("isin", t(3), fixed([0.5, 1.0])),
    row("searchsorted", fixed([-1.0, 0.0, 0.5]), t(2)),
    row("unique", fixed([0.5, -1.0, -1.0, 0.5])).but(vmap=NO_SHAPE),
    row("unique_consecutive", fixed([0.5, -1.0, -1.0, 0.5])).but(vmap=NO_SHAPE),
    row("allclose", t(3), t(3)).but(vmap="gives a bool", out="gives a bool"),
    row("equal", t(3), t(3)).but(vmap="gives a bool", out="gives a bool"),
    row("isclose", t(3), t(3)),
    row("bincount", fixed([0, 2, 2])),
    row("corrcoef", t(2, 4)),
    row("cov", t(2, 4)),
    row("histc", t(6), 4, -1.0, 1.0).but(vmap="PyTorch has no rule"),
    row("histogram", t(6), 4, range=(-1.0, 1.0))
    .but(vmap="PyTorch has no rule")
    .but(gradients="here nothing is recorded where PyTorch records what raises in backward"),
    row("histogramdd", t(6, 2), (4, 3), range=(-1.0, 1.0, -1.0, 1.0))
    .compare(lambda result: (result.hist, *result.bin_edges))
    .but(vmap="PyTorch has no rule", out="PyTorch takes none")
    .but(gradients="here nothing is recorded where PyTorch records what raises in backward"),
    row("nanmean", t(2, 3), 1),
    row("nansum", t(2, 3), 1),
    row("nanmedian", t(2, 5, of="distinct"), 1),
    row("quantile", t(2, 4, of="distinct"), 0.4, 1),
    row("nanquantile", t(2, 4, of="distinct"), 0.4, 1),
    row("renorm", t(3, 2), 2.0, 0, 0.5),
    row("std_mean", t(2, 4), 1),
    row("var_mean", t(2, 4), 1),
    row("all", t(2, 3), 1),
    row("any", t(2, 3), 1),
    row("amax", t(2, 4, of="distinct"), 1),
    row("amin", t(2, 4, of="distinct"), 1),
    row("argmax", t(2, 4, of="distinct"), 1),
    row("argmin", t(2, 4, of="distinct"), 1),
    row("count_nonzero", t(2, 3), 1),
    row("logsumexp", t(2, 3), 1),
    row("max", t(2, 4, of="distinct")),
    row("max", t(2, 4, of="distinct"), 1),
    row("min", t(2, 4, of="distinct"), 1),
    row("mean", t(2, 3), 1),
    row("median", t(2, 5, of="distinct"), 1),
    row("norm", t(2, 3)),
    row("norm", t(2, 3), 1.5, 1),
    row("prod", t(2, 3), 1),
    row("prod", t(2, 3)),
    row("std", t(2, 4), 1),
    row("sum", t(2, 3), 1),
    row("var", t(2, 4), 1),
    # --- products
    row("einsum", "ij,jk->ik", t(2, 3), t(3, 2)),
    row("inner", t(2, 3), t(4, 3)),
    row("tensordot", t(2, 3), t(3, 2), 1),
    row("addmm", t(2, 2), t(2, 3), t(3, 2), beta=0.5, alpha=2.0),
    row("bmm", t(2, 2, 3), t(2, 3, 2)),
    row("dot", t(3), t(3)),
    row("Tensor.dot", t(3), t(3)),
    row("matmul", t(2, 3), t(3, 2)),
    row("matmul", t(2, 2, 3), t(3)),
    row("mm", t(2, 3), t(3, 2)),
    row("mv", t(2, 3), t(3)),
    row("outer", t(2), t(3)),
    row("ger", t(2), t(3)),
    row("kron", t(2, 2), t(1, 3)),
    row("vdot", t(3, of="complex"), t(3, of="complex")),
    row("addbmm", t(2, 2), t(2, 2, 3), t(2, 3, 2), beta=1.5, alpha=2.5),
    row("addmv", t(2), t(2, 3), t(3), alpha=0.5),
    row("addmv_", t(2), t(2, 3), t(3)),
    row("addr", t(2, 3), t(2), t(3), beta=0.5),
    row("baddbmm", t(2, 2, 2), t(2, 2, 3), t(2, 3, 2), beta=0.5),
    row("chain_matmul", t(2, 3), t(3, 2), t(2, 2)),
    row("cross", t(2, 3), t(2, 3), 1),
    row("linalg.cross", t(2, 3), t(2, 3)),
    row("linalg.diagonal", t(3, 3)),
    row("linalg.multi_dot", [t(2, 3), t(3, 2), t(2, 2)]),
    row("linalg.vander", t(3)),
    row("linalg.vecdot", t(2, 3), t(2, 3)),
    row("matrix_exp", t(3, 3)),
    row("matrix_power", t(3, 3), 3),
    # --- linear algebra
    row("cholesky", t(3, 3, of="definite")).but(
        gradcheck="one triangle is read, and the gradient is that of symmetric matrices"
    ),
    row("linalg.cholesky_ex", t(3, 3, of="definite")).but(
        gradcheck="one triangle is read, and the gradient is that of symmetric matrices"
    ),
    row("cholesky_inverse", t(3, 3, of="factor")).but(
        gradients="PyTorch counts the triangle that is not read"
    ),
    row("cholesky_solve", t(3, 2), t(3, 3, of="factor")).but(
        gradients="PyTorch counts the triangle that is not read"
    ),
    row("det", t(3, 3, of="square")),
    row("logdet", t(3, 3, of="definite")),
    row("slogdet", t(3, 3, of="square")),
    row("linalg.eig", t(3, 3, of="square")).compare(lambda result: (result[0], result[1].abs())),
    row("linalg.eigh", t(3, 3, of="definite"))
    .compare(lambda result: (result[0], result[1].abs()))
    .but(gradcheck="one triangle is read, and the gradient is that of symmetric matrices"),
    row("linalg.eigvals", t(3, 3, of="square")),
    row("linalg.eigvalsh", t(3, 3, of="definite")).but(
        gradcheck="one triangle is read, and the gradient is that of symmetric matrices"
    ),
    row("geqrf", t(3, 2)).but(
        gradients="its gradient is refused",
        gradcheck="its gradient is refused",
        forward="its gradient is refused",
        strides="its gradient is refused",
    ),
    row("orgqr", t(3, 2), t(2)),
    row("ormqr", t(3, 2), t(2), t(3, 2)),
    row("linalg.householder_product", t(3, 2), t(2)),
    row("inverse", t(3, 3, of="square")),
    row("linalg.inv", t(3, 3, of="square")),
    row("linalg.inv_ex", t(3, 3, of="square")),
    row("triangular_solve", t(3, 2), t(3, 3, of="factor"), upper=False),
    row("linalg.solve", t(3, 3, of="square"), t(3, 2)),
    row("linalg.solve_ex", t(3, 3, of="square"), t(3)),
    row("linalg.solve_triangular", t(3, 3, of="factor"), t(3, 2), upper=False),
    row("linalg.tensorinv", t(2, 2, of="square"), 1),
    row("linalg.tensorsolve", t(2, 2, of="square"), t(2)),
    row("lobpcg", t(4, 4, of="definite"))
    .compare(lambda result: (result[0], result[1].abs()))
    .but(gradcheck="one triangle is read, and the gradient is that of symmetric matrices"),
    row("pca_lowrank", t(4, 3), 3)
    .compare(lambda result: result[1])
    .but(vmap="draws random numbers"),
    row("svd_lowrank", t(4, 3), 3)
    .compare(lambda result: result[1])
    .but(vmap="draws random numbers", expanded="of lower rank"),
    row("lu_unpack", t(3, 3), fixed([2, 2, 3], "int32")),
    row("linalg.lu", t(3, 3, of="square")),
    *[
        row(name, *given).but(
            gradients="its gradient is refused",
            gradcheck="its gradient is refused",
            forward="its gradient is refused",
            strides="its gradient is refused",
        )
        for name, given in (
            ("linalg.ldl_factor", [t(3, 3, of="definite")]),
            ("linalg.ldl_factor_ex", [t(3, 3, of="definite")]),
            ("linalg.ldl_solve", [t(3, 3), fixed([3, -3, -3], "int32"), t(3, 2)]),
        )
    ],
    row("linalg.lu_factor", t(3, 3, of="square")),
    row("linalg.lu_factor_ex", t(3, 3, of="square")),
    row("linalg.lu_solve", t(3, 3, of="square"), fixed([2, 2, 3], "int32"), t(3, 2)),
    row("lu", t(3, 3, of="square")),
    row("lu_solve", t(3, 2), t(3, 3, of="square"), fixed([2, 2, 3], "int32")),
    row("linalg.cond", t(3, 3, of="square")),
    row("linalg.matrix_norm", t(3, 3)),
    row("linalg.norm", t(3, 2)),
    row("linalg.vector_norm", t(3, 2), 3, 1),
    row("frobenius_norm", t(3, 2), (0, 1)),
    row("nuclear_norm", t(3, 2)),
    row("qr", t(3, 2)),
    row("linalg.qr", t(3, 2)),
    row("svd", t(3, 2)).compare(lambda result: (result[0].abs(), result[1], result[2].abs())),
    row("linalg.svd", t(3, 2), False).compare(
        lambda result: (result[0].abs(), result[1], result[2].abs())
    ),
    row("linalg.svdvals", t(3, 2)),
    row("pinverse", t(3, 2)),
    row("linalg.pinv", t(3, 2)),
    row("linalg.lstsq", t(4, 2), t(4, 1)).compare(lambda result: result[0]),
    row("linalg.matrix_rank", t(3, 2)),
    # --- constructors
    row("arange", 1, 7, 2),
    row("eye", 2, 3),
    row("full", (2, 3), 1.5),
    row("full_like", t(2, 3), 1.5),
    row("linspace", 0.0, 1.0, 5),
    row("logspace", 0.0, 1.0, 5),
    row("ones", 2, 3),
    row("ones_like", t(2, 3)),
    row("zeros", 2, 3),
    row("zeros_like", t(2, 3)),
    row("range", 0, 4),
    row("Tensor.new_tensor", t(2), [1.5, 2.5]),
    row("bartlett_window", 5),
    row("blackman_window", 5),
    row("hamming_window", 5),
    row("hann_window", 5),
    row("kaiser_window", 5),
]
