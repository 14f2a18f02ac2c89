"""PyTorch's settings of the libraries beneath: ``lucid_gpu.backends.cuda.matmul.allow_tf32``."""

from __future__ import annotations

from lucid_gpu.backends import cuda as cuda
