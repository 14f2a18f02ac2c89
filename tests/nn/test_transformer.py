"""Transformer layers and stacks: PyTorch's values, gradients, names, repr."""

import numpy as np
import pytest

import lucid_gpu
from tests.nn.layers import pair, run_of
from tests.oracle import agree, same_error, torch_module

normal = np.random.default_rng(0).standard_normal
SRC, TGT = normal((4, 2, 6)), normal((3, 2, 6))
PADDING = np.array([[False, False, False, True], [False, False, True, True]])
SMALL = {"dim_feedforward": 5, "dropout": 0.0}


def encoder(m, **settings):
    layer = m.nn.TransformerEncoderLayer(6, 2, **{**SMALL, **settings})
    return m.nn.TransformerEncoder(layer, 2, m.nn.LayerNorm(6), enable_nested_tensor=False)


def future(m, n, device):
    mask = m.nn.Transformer.generate_square_subsequent_mask(n, dtype=m.float64)
    return mask.to(device if m is lucid_gpu else "cpu")


CASES = {
    "encoder": (encoder, {}, 1),
    "encoder, norm first": (lambda m: encoder(m, norm_first=True, activation="gelu"), {}, 1),
    "encoder, batch first": (
        lambda m: encoder(m, batch_first=True, bias=False, activation=m.tanh),
        {"src_key_padding_mask": PADDING},
        1,
    ),
    "decoder": (
        lambda m: m.nn.TransformerDecoder(m.nn.TransformerDecoderLayer(6, 2, **SMALL), 2),
        {"memory_key_padding_mask": PADDING},
        2,
    ),
    "decoder, norm first": (
        lambda m: m.nn.TransformerDecoderLayer(6, 3, norm_first=True, layer_norm_eps=0.1, **SMALL),
        {},
        2,
    ),
    "transformer": (
        lambda m: m.nn.Transformer(6, 2, 1, 1, **SMALL),
        {"src_key_padding_mask": PADDING},
        2,
    ),
}


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_torch(name, training, device):
    make, masks, count = CASES[name]
    theirs, ours = pair(make, device)
    theirs.train(training)
    ours.train(training)

    def run(layer, m, *given):
        where = device if m is lucid_gpu else "cpu"
        padding = {k: m.tensor(v).to(where) for k, v in masks.items()}
        causal = {"tgt_mask": future(m, 3, device)} if count == 2 else {}
        causal = causal if masks or count == 2 else {"mask": future(m, 4, device)}
        return layer(*given, **padding, **causal)

    given = [TGT, SRC] if "decoder" in name else [SRC, TGT]
    if "batch first" in name:
        given = [SRC.swapaxes(0, 1).copy()]
    agree(run_of(theirs, ours, run), *given[:count], device=device, order=1, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("name", CASES)
def test_repr_and_state_are_torchs(name):
    make, _, _ = CASES[name]
    ours, theirs = make(lucid_gpu), make(torch_module())
    assert repr(ours) == repr(theirs)
    assert [(k, tuple(v.shape)) for k, v in ours.state_dict().items()] == [
        (k, tuple(v.shape)) for k, v in theirs.state_dict().items()
    ]


def test_copies_of_a_layer_are_apart():
    stack = encoder(lucid_gpu)
    first, second = (layer.linear1.weight for layer in stack.layers)
    assert lucid_gpu.equal(first, second)
    assert first.data_ptr() != second.data_ptr()


def test_the_causal_mask():
    ours, theirs = (future(m, 3, "cpu").tolist() for m in (lucid_gpu, torch_module()))
    assert ours == theirs


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.nn.TransformerEncoderLayer(6, 2, activation="x"), "activation should be relu"),
        (lambda m: m.nn.Transformer(6, 2, 1, 1)(m.zeros(4, 2, 6), m.zeros(4, 3, 6)), "batch numbe"),
        (lambda m: m.nn.Transformer(6, 2, 1, 1)(m.zeros(4, 2, 6), m.zeros(4, 2, 5)), "feature num"),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(call, words)


def test_layers_call_attention_as_pytorch_does():
    """Hooks, and modules put in its place, see three tensors and the masks by name."""
    seen = {}
    for m in (lucid_gpu, torch_module()):
        seen[m] = []
        for make, count in ((m.nn.TransformerEncoderLayer, 1), (m.nn.TransformerDecoderLayer, 2)):
            layer = make(4, 2, 8, batch_first=True)
            for name, module in layer.named_modules():
                module.register_forward_hook(
                    lambda mod, args, kwargs, out, name=name, into=seen[m]: into.append(
                        (name, len(args), sorted(kwargs))
                    ),
                    with_kwargs=True,
                )
            layer(*[m.ones(1, 3, 4)] * count)
    ours, theirs = seen.values()
    assert ours == theirs


def test_blocks_can_be_overridden():
    class Layer(lucid_gpu.nn.TransformerEncoderLayer):
        def _sa_block(self, x, *masks):
            return x * 0

        def _ff_block(self, x):
            return x + 1

    class Decoder(lucid_gpu.nn.TransformerDecoderLayer):
        def _mha_block(self, x, mem, *masks):
            return mem - x

    x = lucid_gpu.randn(2, 3, 4)
    layer = Layer(4, 2, 8, norm_first=True, dropout=0.0)
    assert lucid_gpu.allclose(layer(x), x + layer.norm2(x) + 1)
    assert Decoder(4, 2, 8)(x, x).shape == x.shape
