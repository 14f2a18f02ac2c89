"""Frequencies of drawn categories."""

import numpy as np

import lucid_gpu


def test_samples_of_categories(device):
    lucid_gpu.manual_seed(1)
    weights = lucid_gpu.tensor([[1.0, 2.0, 5.0], [4.0, 0.0, 4.0]]).to(device)
    drawn = lucid_gpu.distributions.Categorical(weights).sample((8000,)).cpu().numpy()
    found = [[(drawn[:, i] == k).mean() for k in range(3)] for i in range(2)]
    np.testing.assert_allclose(found, [[0.125, 0.25, 0.625], [0.5, 0, 0.5]], atol=0.03)
