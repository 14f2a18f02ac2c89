"""Small language models learn as in PyTorch: equal losses from equal weights, step after step."""

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import torch_module

TEXT = np.random.default_rng(0).integers(0, 12, (4, 9))
STEPS = 8


def recurrent(m):
    """Letters, an LSTM on packed sequences of several lengths, scores."""

    class Model(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.letters = m.nn.Embedding(12, 8, padding_idx=0)
            self.reader = m.nn.LSTM(8, 6, 2, batch_first=True, bidirectional=True)
            self.scores = m.nn.Linear(12, 12)

        def forward(self, text):
            rnn = m.nn.utils.rnn
            packed = rnn.pack_padded_sequence(self.letters(text), [5, 8, 8, 3], True, False)
            out, _ = rnn.pad_packed_sequence(self.reader(packed)[0], batch_first=True)
            return self.scores(out)

    return Model()


def transformer(m):
    """Letters and places, a causal encoder, scores."""

    class Model(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.letters, self.places = m.nn.Embedding(12, 8), m.nn.Embedding(8, 8)
            layer = m.nn.TransformerEncoderLayer(
                8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True
            )
            self.blocks = m.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.scores = m.nn.Linear(8, 12)

        def forward(self, text):
            x = self.letters(text) + self.places(m.arange(8, device=text.device))
            mask = m.nn.Transformer.generate_square_subsequent_mask(8, text.device)
            return self.scores(self.blocks(x, mask, is_causal=True))

    return Model()


def losses(m, model, device, steps):
    """Of a training run."""
    text = m.tensor(TEXT).to(device)
    optimizer = m.optim.Adam(model.parameters(), lr=1e-2)
    found = []
    for _ in range(steps):
        scores = model(text[:, :-1])
        loss = m.nn.functional.cross_entropy(scores.flatten(0, 1), text[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        m.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("make", [recurrent, transformer])
def test_losses_are_torchs(make, device):
    torch = torch_module()
    theirs, ours = make(torch), make(lucid_gpu)
    ours.load_state_dict({k: lucid_gpu.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    expected = losses(torch, theirs, "cpu", STEPS)
    np.testing.assert_allclose(losses(lucid_gpu, ours.to(device), device, STEPS), expected, 1e-4)
    assert expected[-1] < expected[0]
