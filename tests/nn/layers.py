"""A layer beside PyTorch's with the same state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import lucid_gpu
from tests.oracle import agree, torch_module


def agrees(make: Callable[[Any], Any], *arrays: Any, device: str, order: int = 2) -> None:
    """Check values, gradients by inputs and parameters, repr and state of ``make(module)``."""
    torch = torch_module()
    theirs, ours = make(torch).double(), make(lucid_gpu).double().to(device)
    assert repr(ours) == repr(theirs)
    state = {k: v.numpy() for k, v in theirs.state_dict().items()}
    assert {k: tuple(v.shape) for k, v in ours.state_dict().items()} == {
        k: v.shape for k, v in state.items()
    }
    ours.load_state_dict({k: lucid_gpu.tensor(v) for k, v in state.items()})
    agree(lambda m, *t: (theirs if m is torch else ours)(*t), *arrays, device=device, order=order)
    if not list(ours.parameters()):
        return
    ours(*[lucid_gpu.tensor(a).to(device) for a in arrays]).square().sum().backward()
    theirs(*map(torch.tensor, arrays)).square().sum().backward()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.cpu().numpy(), q.grad.numpy(), rtol=1e-6, atol=1e-6)
