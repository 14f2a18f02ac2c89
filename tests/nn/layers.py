"""Layers of both modules with equal weights."""

import numpy as np

import lucid_gpu
from tests.oracle import agree, torch_module


def flat(result):
    """The tensors of nested tuples."""
    if isinstance(result, (tuple, list)):
        return [t for part in result if part is not None for t in flat(part)]
    return [result]


def pair(make, device):
    """The layer of both modules with equal weights."""
    theirs, ours = make(torch_module()).double(), make(lucid_gpu).double().to(device)
    ours.load_state_dict({k: lucid_gpu.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    return theirs, ours


def run_of(theirs, ours, run):
    """``run(layer, module, *tensors)`` for either module, and the gradients of the parameters."""

    def both(m, *tensors):
        layer = ours if m is lucid_gpu else theirs
        found = flat(run(layer, m, *tensors))
        total = sum((t * t).sum() for t in found)
        return found + list(m.autograd.grad(total, layer.parameters(), retain_graph=True))

    return both


def agrees(make, *arrays, device, order=2):
    """Check values, gradients by inputs and parameters, repr and state of ``make(module)``."""
    theirs, ours = pair(make, device)
    assert repr(ours) == repr(theirs)
    assert {k: tuple(v.shape) for k, v in ours.state_dict().items()} == {
        k: tuple(v.shape) for k, v in theirs.state_dict().items()
    }
    torch = torch_module()
    agree(lambda m, *t: (theirs if m is torch else ours)(*t), *arrays, device=device, order=order)
    if not list(ours.parameters()):
        return
    ours(*[lucid_gpu.tensor(a).to(device) for a in arrays]).square().sum().backward()
    theirs(*map(torch.tensor, arrays)).square().sum().backward()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.cpu().numpy(), q.grad.numpy(), rtol=1e-6, atol=1e-6)
