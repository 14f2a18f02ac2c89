"""What training loops do to gradients, weights and sequences, under PyTorch's names."""

import os as _os

from lucid_gpu.nn.utils import parametrizations, parametrize, prune, rnn, stateless
from lucid_gpu.nn.utils.clip_grad import (
    clip_grad_norm,
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from lucid_gpu.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters
from lucid_gpu.nn.utils.fusion import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
)
from lucid_gpu.nn.utils.init import skip_init
from lucid_gpu.nn.utils.memory_format import (
    convert_conv2d_weight_memory_format,
    convert_conv3d_weight_memory_format,
)
from lucid_gpu.nn.utils.spectral_norm import remove_spectral_norm, spectral_norm
from lucid_gpu.nn.utils.weight_norm import remove_weight_norm, weight_norm

__path__ = [  # `nn.utils._named_member_accessor`
    *__path__,
    _os.path.join(_os.path.dirname(_os.path.dirname(__path__[0])), "torch_names", "nn", "utils"),
]

__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "convert_conv2d_weight_memory_format",
    "convert_conv3d_weight_memory_format",
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "prune",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "skip_init",
    "spectral_norm",
    "stateless",
    "vector_to_parameters",
    "weight_norm",
]
