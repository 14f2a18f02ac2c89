"""Layers of both modules with equal weights."""

import lucid_gpu
from tests.oracle import torch_module


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
