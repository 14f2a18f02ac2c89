"""Names of PyTorch that are absent on purpose, and what to write instead."""

from __future__ import annotations

__all__ = ["lacking"]

_INSTEAD = {
    "ao": "there is no quantization; amp.autocast computes in 16 bits",
    "export": "models are saved by their state_dict()",
    "mps": "the devices are cpu and cuda",
    "nested": "batches of unequal length are padded, or packed by nn.utils.rnn",
    "quantization": "there is no quantization; amp.autocast computes in 16 bits",
    "xpu": "the devices are cpu and cuda",
}


def lacking(module: str, name: str) -> AttributeError:
    """The error of a module that has no such name; ``module`` is "" or, say, "nn"."""
    path = f"{module}.{name}".lstrip(".")
    where = f"lucid_gpu.{module}".rstrip(".")
    why = f": {_INSTEAD[path]} (docs/names.md)" if path in _INSTEAD else ""
    return AttributeError(f"module {where!r} has no attribute {name!r}{why}")
