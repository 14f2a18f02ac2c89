"""Recurrent layers and cells: PyTorch's values, gradients, names, repr and error sentences."""

import warnings

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import nn
from tests.nn.layers import flat, pair, run_of
from tests.oracle import agree, modules, same_error, torch_module

normal = np.random.default_rng(0).standard_normal
BATCH, SINGLE = normal((4, 3, 5)), normal((4, 5))
LAYERS = {
    "LSTM": (lambda m: m.nn.LSTM(5, 3), BATCH),
    "LSTM with all": (
        lambda m: m.nn.LSTM(5, 4, 2, bidirectional=True, proj_size=3, batch_first=True),
        BATCH,
    ),
    "LSTM without bias": (lambda m: m.nn.LSTM(5, 3, bias=False), SINGLE),
    "GRU": (lambda m: m.nn.GRU(5, 3, 2, bidirectional=True), BATCH),
    "GRU without bias": (lambda m: m.nn.GRU(5, 3, bias=False, batch_first=True), SINGLE),
    "RNN": (lambda m: m.nn.RNN(5, 3, 2, dropout=0.0), BATCH),
    "RNN of relu": (lambda m: m.nn.RNN(5, 3, 1, "relu", bidirectional=True), BATCH),
}
CELLS = {
    "LSTMCell": (lambda m: m.nn.LSTMCell(5, 3), BATCH[0]),
    "GRUCell": (lambda m: m.nn.GRUCell(5, 3, bias=False), BATCH[0]),
    "RNNCell": (lambda m: m.nn.RNNCell(5, 3), SINGLE[0]),
    "RNNCell of relu": (lambda m: m.nn.RNNCell(5, 3, nonlinearity="relu"), BATCH[0]),
}
ALL = {**LAYERS, **CELLS}


@pytest.mark.parametrize("name", ALL)
def test_agrees_with_torch(name, device):
    make, x = ALL[name]
    theirs, ours = pair(make, device)
    agree(run_of(theirs, ours, lambda layer, m, x: layer(x)), x, device=device, order=1)


@pytest.mark.parametrize("name", ["LSTM with all", "GRU", "RNN", "LSTMCell", "GRUCell"])
def test_first_states(name, device):
    make, x = ALL[name]
    theirs, ours = pair(make, device)
    states = [normal(tuple(t.shape)) for t in flat(theirs(torch_module().tensor(x)))]
    states = states if "Cell" in name else states[1:]

    def run(m, x, *states):
        layer = ours if m is lucid_gpu else theirs
        return flat(layer(x, states if len(states) > 1 else states[0]))

    agree(run, x, *states, device=device, order=1)


@pytest.mark.parametrize("name", ["LSTM with all", "GRU", "RNN of relu"])
@pytest.mark.parametrize("enforce_sorted", [True, False])
def test_packed(name, enforce_sorted, device):
    make, _ = ALL[name]
    theirs, ours = pair(make, device)
    lengths = [4, 4, 2, 1] if enforce_sorted else [2, 4, 1, 4]

    def run(m, x):
        rnn, layer = m.nn.utils.rnn, ours if m is lucid_gpu else theirs
        packed = rnn.pack_padded_sequence(x, lengths, enforce_sorted=enforce_sorted)
        out, states = layer(packed)
        assert isinstance(out, rnn.PackedSequence)
        again = layer(packed, states)
        return flat([rnn.pad_packed_sequence(out)[0], states, again[1]])

    agree(run, normal((4, 4, 5)), device=device, order=1)


def test_a_part_of_the_results_is_differentiated(device):
    theirs, ours = pair(LAYERS["LSTM"][0], device)
    agree(lambda m, x: (ours if m is lucid_gpu else theirs)(x)[1][1], BATCH, device=device, order=1)


@pytest.mark.parametrize("name", ALL)
def test_repr_and_state_are_torchs(name):
    make, _ = ALL[name]
    ours, theirs = make(lucid_gpu), make(torch_module())
    assert repr(ours) == repr(theirs)
    assert [(k, tuple(v.shape)) for k, v in ours.state_dict().items()] == [
        (k, tuple(v.shape)) for k, v in theirs.state_dict().items()
    ]
    bound = ours.hidden_size**-0.5
    assert all(p.abs().max().item() <= bound for p in ours.parameters())


def test_dropout_between_layers(device):
    lucid_gpu.manual_seed(0)
    layer = nn.LSTM(5, 3, 2, dropout=0.5).to(device)
    x = lucid_gpu.tensor(BATCH.astype(np.float32)).to(device)
    assert not lucid_gpu.equal(layer(x)[0], layer(x)[0])
    layer.eval()
    assert lucid_gpu.equal(layer(x)[0], layer(x)[0])
    with pytest.warns(UserWarning, match="num_layers greater than 1"):
        nn.GRU(5, 3, dropout=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nn.GRU(5, 3, 2, dropout=1)


def test_float32_and_empty_batches(device):
    theirs, ours = LAYERS["LSTM"][0](torch_module()), LAYERS["LSTM"][0](lucid_gpu).to(device)
    ours.load_state_dict({k: lucid_gpu.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    x = BATCH.astype(np.float32)
    run = lambda m, x: flat((ours if m is lucid_gpu else theirs)(x))  # noqa: E731
    agree(run, x, device=device, order=1, rtol=1e-5, atol=1e-6)
    agree(run, x[:, :0], device=device, order=1)


def test_autocast(device):
    """A layer runs in the 16-bit type as a whole, whatever type its input has."""
    lower, x = lucid_gpu.bfloat16, lucid_gpu.randn(4, 2, 5, device=device)
    kind = lucid_gpu.device(device).type
    layers = [nn.LSTM(5, 4).to(device), nn.MultiheadAttention(5, 1).to(device)]
    with lucid_gpu.autocast(kind, dtype=lower):
        outs = [layers[0](x)[0], layers[0](x.to(lower))[0], layers[1](x, x, x)[0]]
    assert [o.dtype for o in outs] == [lower] * 3
    sum(o.sum() for o in outs).backward()
    assert all(p.grad.dtype is lucid_gpu.float32 for p in layers[0].parameters())


def test_names_of_weights():
    def run(m, where):
        layer = m.nn.LSTM(2, 3, num_layers=2, bidirectional=True)
        return layer._flat_weights_names, [tuple(w.shape) for w in layer._flat_weights]

    found = [run(m, where) for m, where in modules()]
    assert all(f == found[0] for f in found)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.nn.LSTM(4, 3)(m.zeros(5, 2, 3)), "LSTM: input.size(-1) must be equal to inp"),
        (lambda m: m.nn.LSTM(4, 3)(m.zeros(5, 2, 4, 1)), "LSTM: Expected input to be 2D or 3D"),
        (lambda m: m.nn.GRU(4, 3)(m.zeros(0, 2, 4)), "Expected sequence length to be larger than"),
        (lambda m: m.nn.GRU(4, 3)(m.zeros(5, 2, 4).double()), "RNN input dtype"),
        (lambda m: m.nn.GRU(4, 3)(m.zeros(5, 2, 4), m.zeros(1, 3, 3)), "Expected hidden size (1"),
        (lambda m: m.nn.GRU(4, 3)(m.zeros(5, 4), m.zeros(1, 1, 3)), "hx should also be 2-D but"),
        (
            lambda m: m.nn.LSTM(4, 3)(m.zeros(5, 2, 4), (m.zeros(1, 2, 3), m.zeros(1, 2, 2))),
            "LSTM: Expected hidden[1] size (1, 2, 3), got [1, 2, 2]",
        ),
        (
            lambda m: m.nn.LSTM(4, 3)(m.zeros(5, 4), (m.zeros(1, 2, 3), m.zeros(1, 2, 3))),
            "hx and cx should also be 2-D but got (3-D, 3-D) tensors",
        ),
        (lambda m: m.nn.RNN(4, 3, 2, "sin"), "Unknown nonlinearity 'sin'"),
        (lambda m: m.nn.GRU(4, 3, proj_size=2), "proj_size argument is only supported for LSTM"),
        (lambda m: m.nn.LSTM(4, 3, proj_size=3), "proj_size has to be smaller than hidden_size"),
        (lambda m: m.nn.LSTM(4, 3, dropout=2), "dropout should be a number in range [0, 1]"),
        (lambda m: m.nn.LSTM(4, 3, bias=1), "bias should be of type bool, got: int"),
        (lambda m: m.nn.LSTM(4, 0), "hidden_size must be greater than zero"),
        (lambda m: m.nn.LSTMCell(4, 3)(m.zeros(2, 5)), "LSTMCell: input has inconsistent input_s"),
        (lambda m: m.nn.LSTMCell(4, 3)(m.zeros(2, 4, 1)), "LSTMCell: Expected input to be 1D or"),
        (lambda m: m.nn.LSTMCell(4, 3)(m.zeros(2, 4), m.zeros(2, 3)), "must be tuple of Tensors"),
        (lambda m: m.nn.GRUCell(4, 3)(m.zeros(2, 4), m.zeros(2, 2)), "hidden0 has inconsistent"),
        (lambda m: m.nn.RNNCell(4, 3)(m.zeros(2, 4), m.zeros(1, 3)), "RNNCell: Input batch size"),
        (lambda m: m.nn.RNNCell(4, 3, True, "x")(m.zeros(2, 4)), "Unknown nonlinearity: x"),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(call, words)


def test_weights_put_in_the_place_of_parameters_are_used():
    for m, _ in modules():
        layer = m.nn.LSTM(2, 3)
        halved = [(w * 0.5) for w in layer._flat_weights]
        layer._flat_weights = halved
        assert all(a is b for a, b in zip(layer._flat_weights, halved, strict=True))
        layer(m.ones(4, 1, 2))[0].sum().backward()
        ours = layer.weight_hh_l0.grad.abs().sum()
        assert ours > 0
        layer._flat_weights = [m.zeros_like(w) for w in halved]
        assert not layer(m.ones(4, 1, 2))[0].any()
        layer.weight_ih_l0 = m.nn.Parameter(m.ones(12, 2))
        assert layer._flat_weights[0] is layer.weight_ih_l0
