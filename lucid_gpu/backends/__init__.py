"""PyTorch's settings of the libraries beneath: ``lucid_gpu.backends.cuda.matmul.allow_tf32``."""

from __future__ import annotations

from lucid_gpu.backends import cpu as cpu
from lucid_gpu.backends import cuda as cuda
from lucid_gpu.backends import cudnn as cudnn
from lucid_gpu.backends import mkl as mkl
from lucid_gpu.backends import mkldnn as mkldnn
from lucid_gpu.backends import mps as mps
from lucid_gpu.backends import opt_einsum as opt_einsum
from lucid_gpu.backends import quantized as quantized
