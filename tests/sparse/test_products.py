"""Products under the names of `lucid_gpu.sparse`."""

from __future__ import annotations

import pytest

import lucid_gpu


@pytest.mark.parametrize("beta", [0, 1, 2.5])
@pytest.mark.parametrize("alpha", [1, -0.5])
def test_addmm_of_a_sparse_matrix(alpha: float, beta: float, device: str) -> None:
    dense = lucid_gpu.tensor([[0.0, 2.0], [3.0, 0.0], [0.0, 0.0]], device=device)
    sparse = dense.to_sparse().requires_grad_()
    other = lucid_gpu.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device=device)
    added = lucid_gpu.ones(3, 3, device=device)
    made = lucid_gpu.sparse.addmm(added, sparse, other, beta=beta, alpha=alpha)
    assert lucid_gpu.equal(made, beta * added + alpha * (dense @ other))
    made.sum().backward()
    assert sparse.grad.is_sparse
    expected = alpha * other.sum(1)[None].expand(3, 2) * (dense != 0)
    assert lucid_gpu.equal(sparse.grad.to_dense(), expected)
