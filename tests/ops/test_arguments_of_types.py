"""Arguments of the wrong type, by the wrong name, and what a message says of them."""

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import agree, modules

FLAGS = {
    "sum": lambda m, v: m.ones(2, 2).sum(1, v),
    "amax": lambda m, v: m.amax(m.ones(2, 2), 1, keepdim=v),
    "svd": lambda m, v: m.ones(2, 2).svd(v),
    "put": lambda m, v: m.ones(2).put(m.tensor([0]), m.ones(1), v),
    "unique": lambda m, v: m.ones(2).unique_consecutive(v, return_counts=v),
    "dropout": lambda m, v: m.nn.functional.dropout(m.ones(2), 0.5, v),
    "allclose": lambda m, v: m.allclose(m.ones(2), m.ones(2), equal_nan=v),
    "requires_grad": lambda m, v: m.ones(2).requires_grad_(v),
    "parameter": lambda m, v: m.nn.Parameter(m.ones(2), v),
}
NUMBERS = {
    "diag": lambda m, v: m.ones(2, 2).diag(v),
    "diagonal": lambda m, v: m.diagonal(m.ones(2, 2), v),
    "topk": lambda m, v: m.ones(2).topk(v),
    "select": lambda m, v: m.ones(2, 2).select(0, v),
    "unfold": lambda m, v: m.ones(3).unfold(0, v, 1),
    "channel_shuffle": lambda m, v: m.channel_shuffle(m.ones(1, 2, 2), v),
    "one_hot": lambda m, v: m.nn.functional.one_hot(m.tensor([0]), v),
}
# None is no number, but may be given
OPTIONAL = {
    "std": lambda m, v: m.ones(2).std(unbiased=v),
    "sort": lambda m, v: m.ones(2).sort(stable=v),
}
OPTIONAL_NUMBERS = {
    "embedding": lambda m, v: m.nn.functional.embedding(m.tensor([0]), m.ones(2, 2), v),
    "argmax": lambda m, v: m.ones(2, 2).argmax(v),
}
SIZES = {
    "expand": lambda m, v: m.ones(1).expand(v),
    "view": lambda m, v: m.ones(1).view(v, 1),
    "reshape": lambda m, v: m.ones(1).reshape((v,)),
    "repeat": lambda m, v: m.ones(1).repeat(v),
    "tile": lambda m, v: m.ones(1).tile((v,)),
    "unflatten": lambda m, v: m.ones(1).unflatten(0, (v, 1)),
    "roll": lambda m, v: m.ones(1).roll(v),
    "conv2d": lambda m, v: m.conv2d(m.ones(1, 1, 2, 2), m.ones(1, 1, 1, 1), stride=v),
    "avg_pool2d": lambda m, v: m.nn.functional.avg_pool2d(m.ones(1, 2, 2), v),
    "adaptive": lambda m, v: m.nn.functional.adaptive_avg_pool1d(m.ones(1, 2), v),
    "layer_norm": lambda m, v: m.nn.functional.layer_norm(m.ones(2, 1), (v,)),
}


@pytest.mark.parametrize("value", [1.5, "no", [1], None, 1, np.True_], ids=str)
@pytest.mark.parametrize("name", FLAGS)
def test_truth_values_are_true_or_false(name, value):
    for m, _ in modules():
        with pytest.raises(TypeError):
            FLAGS[name](m, value)


@pytest.mark.parametrize("value", [1.5, "1", [1], None, True, 1j], ids=str)
@pytest.mark.parametrize("name", NUMBERS)
def test_whole_numbers_are_whole(name, value):
    for m, _ in modules():
        with pytest.raises(TypeError):
            NUMBERS[name](m, value)


@pytest.mark.parametrize("value", [1.5, "no", [1], 1], ids=str)
@pytest.mark.parametrize("name", OPTIONAL)
def test_optional_truth_values_are_true_false_or_none(name, value):
    for m, _ in modules():
        OPTIONAL[name](m, True)
        with pytest.raises(TypeError):
            OPTIONAL[name](m, value)


@pytest.mark.parametrize("value", [1.0, "1", True], ids=str)
@pytest.mark.parametrize("name", OPTIONAL_NUMBERS)
def test_optional_whole_numbers_are_whole_or_none(name, value):
    for m, _ in modules():
        OPTIONAL_NUMBERS[name](m, None)
        with pytest.raises(TypeError):
            OPTIONAL_NUMBERS[name](m, value)


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_whole_and_no_truth_values(name):
    for m, _ in modules():
        for value in (True, 1.0, {1}):
            with pytest.raises((TypeError, RuntimeError)):
                SIZES[name](m, value)
        for value in (1, np.int64(1), np.uint8(1)):
            SIZES[name](m, value)


WRAPPING = {
    "diagonal": lambda m, n: m.arange(12.0).view(3, 4).diagonal(n(1), n(1), n(0)),
    "unsafe_chunk": lambda m, n: m.arange(12.0).view(3, 4).unsafe_chunk(n(2), n(1)),
    "kthvalue": lambda m, n: tuple(m.arange(12.0).view(3, 4).kthvalue(n(1), n(1))),
    "alpha": lambda m, n: m.arange(3.0).add(n(3), alpha=n(100)),
    "tensor_split": lambda m, n: m.arange(6).tensor_split(n(3)),
    "fftshift": lambda m, n: m.fft.fftshift(m.arange(12.0).view(3, 4), n(1)),
    "unfold": lambda m, n: m.nn.functional.unfold(m.ones(1, 1, 3, 3), (n(2), n(2))),
    "avg_pool2d": lambda m, n: m.nn.functional.avg_pool2d(m.ones(1, 3, 3), n(2), [n(1), n(2)]),
    "max_pool2d": lambda m, n: m.nn.functional.max_pool2d(m.ones(1, 3, 3), 2, n(1)),
}


@pytest.mark.parametrize("kind", [np.uint8, np.int8, "a tensor"], ids=str)
@pytest.mark.parametrize("name", WRAPPING)
def test_small_integers_do_not_wrap(name, kind):
    results = []
    for m, _ in modules():
        for number in (int, m.tensor if kind == "a tensor" else kind):
            made = WRAPPING[name](m, number)
            parts = made if isinstance(made, tuple) else (made,)
            results.append([part.tolist() for part in parts])
    assert all(result == results[0] for result in results)


BY_TRUTH = {  # where PyTorch's Python code asks the truth alone
    "max_pool2d": lambda m, v: m.nn.functional.max_pool2d(m.ones(1, 2, 2), 2, return_indices=v),
    "adaptive": lambda m, v: m.nn.functional.adaptive_max_pool2d(m.ones(1, 2, 2), 1, v),
    "gumbel_softmax": lambda m, v: m.nn.functional.gumbel_softmax(m.ones(1, 1), hard=v),
    "dropout": lambda m, v: m.nn.functional.dropout(m.ones(2), 0.0, inplace=v),
    "stft": lambda m, v: m.stft(m.ones(8), 4, center=v, return_complex=True),
    "lu": lambda m, v: m.lu(m.eye(2), get_infos=v),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("value", [1, "yes", 0, np.False_], ids=str)
@pytest.mark.parametrize("name", BY_TRUTH)
def test_flags_that_are_taken_by_their_truth(name, value):
    for m, _ in modules():
        assert type(BY_TRUTH[name](m, value)) is type(BY_TRUTH[name](m, bool(value)))


@pytest.mark.parametrize("kind", [int, np.int64], ids=str)
@pytest.mark.parametrize("name", NUMBERS)
def test_whole_numbers_of_numpy_are_taken(name, kind):
    for m, _ in modules():
        assert str(NUMBERS[name](m, kind(1))) == str(NUMBERS[name](m, 1))


BY_NUMPYS_NAMES = {
    "add": lambda m, x: m.add(x1=x, x2=x, alpha=2),
    "sub": lambda m, x: m.sub(x, x2=2),
    "mul": lambda m, x: m.mul(x1=x, x2=x),
    "maximum": lambda m, x: m.maximum(x1=x, x2=x * 0),
    "matmul": lambda m, x: m.matmul(x1=x, x2=x),
    "exp": lambda m, x: m.exp(x=x),
    "sqrt": lambda m, x: m.sqrt(a=x * x + 1),
    "sum": lambda m, x: m.sum(a=x, axis=0, keepdims=True),
    "eq": lambda m, x: m.eq(x1=x, x2=x),
}


@pytest.mark.parametrize("name", BY_NUMPYS_NAMES)
def test_numpys_names_are_taken(name, device):
    agree(BY_NUMPYS_NAMES[name], np.random.default_rng(0).standard_normal((2, 2)), device=device)


SAID = {
    "zeros": (lambda: lucid_gpu.zeros(2, dtyp=lucid_gpu.int64), "zeros().*'dtyp'"),
    "add": (lambda: lucid_gpu.add(lucid_gpu.ones(1)), "add() missing.*'other'"),
    "mul": (lambda: lucid_gpu.mul(lucid_gpu.ones(1), 2, thr=3), "mul().*'thr'"),
    "tan": (lambda: lucid_gpu.ones(1).tan(3), "tan() takes"),
    "rpow": (lambda: lucid_gpu.ones(1).__rpow__(1, 2), "__rpow__() takes"),
    "sum": (lambda: lucid_gpu.ones(1).sum("a"), "sum().*'dim' must be int, not str"),
    "std": (lambda: lucid_gpu.ones(1).std("a"), "std().*'dim' must be int, not str"),
    "mm": (lambda: lucid_gpu.ones(1, 1).mm(3), "mm().*'mat2'.*must be Tensor, not int"),
    "polynomial": (
        lambda: lucid_gpu.special.legendre_polynomial_p(*[lucid_gpu.ones(1)] * 3),
        "legendre_polynomial_p() takes",
    ),
    "exp": (lambda: lucid_gpu.exp(np.ones(2)), "exp().*'input'.*must be Tensor, not numpy.ndarray"),
}


@pytest.mark.parametrize("name", SAID)
def test_a_message_names_the_public_function(name):
    call, words = SAID[name]
    with pytest.raises(TypeError, match=words.replace("()", r"\(\)")):
        call()


VALUES = {
    "a cell with one bias": lambda m, x: m.gru_cell(x, x, *[x.repeat(3, 1)] * 2, x[0].repeat(3)),
    "its other bias": lambda m, x: m.rnn_tanh_cell(x, x, x, x, None, x[0]),
    "flags by their truth": lambda m, x: m.nn.functional.l1_loss(x, x * 2, None, 0),
    "sums by their truth": lambda m, x: m.nn.functional.mse_loss(x, x * 2, 0),
    "pool and indices": lambda m, x: m.adaptive_max_pool1d(x, 1),
    "logit beyond the middle": lambda m, x: m.logit(x.sigmoid(), 0.7),
    "logit of NaN": lambda m, x: m.logit(x.sigmoid(), float("nan")),
    "a number beside bools": lambda m, x: m.special.xlog1py(x > -9, 2.0),
    "a target of more dimensions": lambda m, x: m.nn.functional.multilabel_soft_margin_loss(
        x, m.ones(1, 2, 2, dtype=x.dtype, device=x.device)
    ),
    "bins by default": lambda m, x: tuple(m.histogram(x.detach())),
    "poisson of a number": lambda m, x: m.poisson(m.tensor(0.0)),
    "celu by NaN": lambda m, x: m.celu(x.detach(), float("nan")),
    "logsumexp of one": lambda m, x: m.logsumexp(m.complex(x[0, 0] + 1000, x[0, 1]), 0).real,
    "linspace from NaN": lambda m, x: m.linspace(float("nan"), 1, 5),
    "linspace to NaN": lambda m, x: m.linspace(0, float("nan"), 1),
    "linspace from inf": lambda m, x: m.linspace(float("inf"), 1, 5),
    "linspace to inf": lambda m, x: m.linspace(0, float("inf"), 6),
    "logspace from NaN": lambda m, x: m.logspace(float("nan"), 1, 5),
    "pixels of nothing": lambda m, x: m.pixel_unshuffle(x.detach()[:0].view(0, 1, 2, 2), 2),
    "pivots for all": lambda m, x: m.lu_unpack(m.ones(3, 2, 2), m.tensor([1, 2], dtype=m.int32))[0],
    "a number copied": lambda m, x: x[0, 0].index_copy(0, x.new_zeros(1, dtype=m.int64), x[1, 1]),
    "lp_pool of inf": lambda m, x: m.nn.functional.lp_pool1d(x, float("inf"), 2),
    "lp_pool of -inf": lambda m, x: m.nn.functional.lp_pool1d(x, -float("inf"), 2),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", VALUES)
def test_values_of_unusual_calls(name, device):
    agree(VALUES[name], np.random.default_rng(0).standard_normal((2, 2)), device=device, order=1)


@pytest.mark.parametrize("p", [-1, -2.0, float("inf"), -float("inf")])
def test_norms_of_nothing_are_refused(p):
    for m, _ in modules():
        for call in (lambda: m.ones(0, 2).norm(p, 0), lambda: m.linalg.norm(m.ones(2, 0), p, 1)):  # noqa: B023
            with pytest.raises(RuntimeError, match="does not have an identity"):
                call()


DRAWS = {
    "bernoulli": lambda m, p: m.bernoulli(p),
    "poisson": lambda m, p: m.poisson(p),
    "normal": lambda m, p: m.normal(p, p.expand(2, 3)),
    "normal of one": lambda m, p: m.normal(1.0, p),
}


@pytest.mark.parametrize("name", DRAWS)
def test_gradients_of_what_is_drawn_by_are_zeros(name):
    for m, _ in modules():
        p = m.tensor([0.0, 0.5, 1.0], requires_grad=True)
        sample = DRAWS[name](m, p)
        assert sample.requires_grad
        (g,) = m.autograd.grad((sample * 2).sum(), p)
        assert g.tolist() == [0.0] * 3
        assert not DRAWS[name](m, p.detach()).requires_grad
