"""opt_einsum on tensors: ``opt_einsum.contract(...)`` finds its functions in `lucid_gpu.numpy`."""

from __future__ import annotations

from opt_einsum.backends import dispatch

dispatch._aliases["lucid_gpu"] = "lucid_gpu.numpy"
