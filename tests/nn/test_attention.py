"""MultiheadAttention: every argument, PyTorch's values, gradients, repr and error sentences."""

import numpy as np
import pytest

import lucid_gpu
from tests.nn.layers import pair, run_of
from tests.oracle import agree, same_error, torch_module

normal = np.random.default_rng(0).standard_normal
L, S, N, E = 3, 4, 2, 6
SELF, OTHER = normal((L, N, E)), normal((S, N, E))
PADDING = np.array([[False, False, True, True], [False, True, False, False]])
PAIRS = np.triu(np.ones((L, S), bool), 2)
MASKS = {
    None: (),
    "bool": (PADDING, PAIRS),
    "float": [np.where(a, -np.inf, normal(a.shape)) for a in (PADDING, PAIRS)],
    "of each head": (PADDING, np.repeat(PAIRS[None], N * 2, 0)),
    "causal": (None, np.where(np.triu(np.ones((L, L)), 1), -np.inf, 0.0)),
}
# how the layer is made, how it is called, which masks, whether key and value are the query
CASES = {
    "self": ({}, {}, None, True),
    "self, no weights": ({}, {"need_weights": False}, None, True),
    "other": ({"bias": False}, {"need_weights": False}, None, False),
    "other widths": ({"kdim": 6, "vdim": 6}, {"average_attn_weights": False}, None, False),
    "keys of 5": ({"kdim": 5}, {}, None, False),
    "added keys": ({"add_bias_kv": True, "add_zero_attn": True}, {}, "bool", False),
    "masks": ({}, {}, "bool", False),
    "masks, no weights": ({}, {"need_weights": False}, "bool", False),
    "float masks": ({}, {"need_weights": False}, "float", False),
    "mask of each head": ({}, {}, "of each head", False),
    "causal": ({}, {"is_causal": True, "need_weights": False}, "causal", True),
    "causal with weights": ({}, {"is_causal": True}, "causal", True),
}


def masks_of(m, name, device):
    """The arguments of a module's forward."""
    names = ("key_padding_mask", "attn_mask")
    found = {k: v for k, v in zip(names, MASKS[name], strict=False) if v is not None}
    return {k: m.tensor(v).to(device if m is lucid_gpu else "cpu") for k, v in found.items()}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_torch(name, device):
    made, settings, masks, own = CASES[name]
    made = {**made, "batch_first": "masks" in name}
    theirs, ours = pair(lambda m: m.nn.MultiheadAttention(E, 2, **made), device)
    key = OTHER[..., : made.get("kdim", E)]

    def run(layer, m, query, *rest):
        key, value = rest or (query, query)
        return layer(query, key, value, **masks_of(m, masks, device), **settings)

    given = [SELF] if own else [SELF, key, OTHER]
    given = [a.swapaxes(0, 1).copy() for a in given] if made["batch_first"] else given
    agree(run_of(theirs, ours, run), *given, device=device, order=1)


def test_key_that_is_value_shares_a_product(device):
    theirs, ours = pair(lambda m: m.nn.MultiheadAttention(E, 2), device)
    run = run_of(theirs, ours, lambda layer, m, q, k: layer(q, k, k))
    agree(run, SELF, OTHER, device=device, order=1)


def test_without_a_batch(device):
    theirs, ours = pair(lambda m: m.nn.MultiheadAttention(E, 2, batch_first=True), device)

    def run(layer, m, q):
        mask = m.tensor(PADDING[0, :L]).to(q.device)
        return layer(q, q, q, key_padding_mask=mask)

    agree(run_of(theirs, ours, run), SELF[:, 0].copy(), device=device)


def test_dropout_of_weights(device):
    layer = lucid_gpu.nn.MultiheadAttention(E, 2, dropout=0.5).to(device)
    x = lucid_gpu.tensor(SELF.astype(np.float32)).to(device)
    assert not lucid_gpu.equal(layer(x, x, x)[0], layer(x, x, x)[0])
    layer.eval()
    assert lucid_gpu.equal(layer(x, x, x)[0], layer(x, x, x)[0])


@pytest.mark.parametrize("made", [{}, {"kdim": 3, "bias": False}, {"add_bias_kv": True}])
def test_repr_state_and_first_values_are_torchs(made):
    ours, theirs = (m.nn.MultiheadAttention(24, 4, **made) for m in (lucid_gpu, torch_module()))
    assert repr(ours) == repr(theirs)
    mine, other = ours.state_dict(), theirs.state_dict()
    assert [(k, tuple(v.shape)) for k, v in mine.items()] == [
        (k, tuple(v.shape)) for k, v in other.items()
    ]
    for name in mine:
        if mine[name].numel() > 500:
            assert abs(mine[name].std().item() - other[name].std().item()) < 0.05, name


def _call(m, query=(3, 2, 6), key=(3, 2, 6), value=None, **settings):
    layer = m.nn.MultiheadAttention(6, 2)
    return layer(m.zeros(query), m.zeros(key), m.zeros(value or key), **settings)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.nn.MultiheadAttention(6, 4), "embed_dim must be divisible by num_heads"),
        (lambda m: m.nn.MultiheadAttention(0, 4), "must be greater than 0, got embed_dim=0"),
        (lambda m: _call(m, (3,)), "query should be unbatched 2D or batched 3D tensor"),
        (lambda m: _call(m, key=(3, 6)), "expected `key` and `value` to be 3-D but found 2-D"),
        (lambda m: _call(m, (3, 2, 5)), "was expecting embedding dimension of 6, but got 5"),
        (lambda m: _call(m, value=(2, 2, 6)), "does not match value shape"),
        (lambda m: _call(m, attn_mask=m.zeros(2, 3)), "The shape of the 2D attn_mask is"),
        (lambda m: _call(m, attn_mask=m.zeros(1, 3, 3)), "The shape of the 3D attn_mask is"),
        (lambda m: _call(m, attn_mask=m.zeros(3)), "expected `attn_mask` to be `None`, 2-D or 3-D"),
        (lambda m: _call(m, key_padding_mask=m.zeros(3)), "expected `key_padding_mask` to be"),
        (lambda m: _call(m, key_padding_mask=m.zeros(3, 3)), "expecting key_padding_mask shape of"),
        (lambda m: _call(m, attn_mask=m.zeros(3, 3).long()), "only bool and floating types of"),
        (lambda m: _call(m, is_causal=True), "Need attn_mask if specifying the is_causal hint."),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(call, words)
