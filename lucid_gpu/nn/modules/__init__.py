"""Every module class."""

from lucid_gpu.nn.modules import (
    activation,
    adaptive,
    attention,
    batchnorm,
    channelshuffle,
    container,
    conv,
    distance,
    dropout,
    flatten,
    fold,
    instancenorm,
    lazy,
    linear,
    loss,
    normalization,
    padding,
    pixelshuffle,
    pooling,
    rnn,
    sparse,
    transformer,
    upsampling,
)
from lucid_gpu.nn.modules.activation import *  # noqa: F403
from lucid_gpu.nn.modules.adaptive import *  # noqa: F403
from lucid_gpu.nn.modules.attention import *  # noqa: F403
from lucid_gpu.nn.modules.batchnorm import *  # noqa: F403
from lucid_gpu.nn.modules.channelshuffle import *  # noqa: F403
from lucid_gpu.nn.modules.container import *  # noqa: F403
from lucid_gpu.nn.modules.conv import *  # noqa: F403
from lucid_gpu.nn.modules.distance import *  # noqa: F403
from lucid_gpu.nn.modules.dropout import *  # noqa: F403
from lucid_gpu.nn.modules.flatten import *  # noqa: F403
from lucid_gpu.nn.modules.fold import *  # noqa: F403
from lucid_gpu.nn.modules.instancenorm import *  # noqa: F403
from lucid_gpu.nn.modules.lazy import *  # noqa: F403
from lucid_gpu.nn.modules.linear import *  # noqa: F403
from lucid_gpu.nn.modules.loss import *  # noqa: F403
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.modules.normalization import *  # noqa: F403
from lucid_gpu.nn.modules.padding import *  # noqa: F403
from lucid_gpu.nn.modules.pixelshuffle import *  # noqa: F403
from lucid_gpu.nn.modules.pooling import *  # noqa: F403
from lucid_gpu.nn.modules.rnn import *  # noqa: F403
from lucid_gpu.nn.modules.sparse import *  # noqa: F403
from lucid_gpu.nn.modules.transformer import *  # noqa: F403
from lucid_gpu.nn.modules.upsampling import *  # noqa: F403

_FILES = (
    activation,
    adaptive,
    attention,
    batchnorm,
    channelshuffle,
    container,
    conv,
    distance,
    dropout,
    flatten,
    fold,
    instancenorm,
    lazy,
    linear,
    loss,
    normalization,
    padding,
    pixelshuffle,
    pooling,
    rnn,
    sparse,
    upsampling,
    transformer,
)
__all__ = ["Module", *(name for file in _FILES for name in file.__all__)]
