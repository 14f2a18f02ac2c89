"""Every module class."""

# ruff: noqa: F403, F405, RUF022

from lucid_gpu.nn.argument_errors import named_in_errors
from lucid_gpu.nn.modules import utils
from lucid_gpu.nn.modules.activation import *
from lucid_gpu.nn.modules.adaptive import *
from lucid_gpu.nn.modules.attention import *
from lucid_gpu.nn.modules.batchnorm import *
from lucid_gpu.nn.modules.channelshuffle import *
from lucid_gpu.nn.modules.container import *
from lucid_gpu.nn.modules.conv import *
from lucid_gpu.nn.modules.distance import *
from lucid_gpu.nn.modules.dropout import *
from lucid_gpu.nn.modules.flatten import *
from lucid_gpu.nn.modules.fold import *
from lucid_gpu.nn.modules.instancenorm import *
from lucid_gpu.nn.modules.lazy import *
from lucid_gpu.nn.modules.linear import *
from lucid_gpu.nn.modules.linear_cross_entropy import *
from lucid_gpu.nn.modules.loss import *
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.modules.normalization import *
from lucid_gpu.nn.modules.padding import *
from lucid_gpu.nn.modules.pixelshuffle import *
from lucid_gpu.nn.modules.pooling import *
from lucid_gpu.nn.modules.rnn import *
from lucid_gpu.nn.modules.rnn_cells import *
from lucid_gpu.nn.modules.sparse import *
from lucid_gpu.nn.modules.sync_batchnorm import *
from lucid_gpu.nn.modules.transformer import *
from lucid_gpu.nn.modules.upsampling import *

# Written out, because type checkers read it: tests/nn/test_names.py holds it to the files.
# fmt: off
__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveLogSoftmaxWithLoss",
    "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AlphaDropout", "AvgPool1d",
    "AvgPool2d", "AvgPool3d", "BCELoss", "BCEWithLogitsLoss", "BatchNorm1d", "BatchNorm2d",
    "BatchNorm3d", "Bilinear", "CELU", "CTCLoss", "ChannelShuffle", "CircularPad1d",
    "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
    "Container", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d",
    "ConvTranspose3d",
    "CosineEmbeddingLoss", "CosineSimilarity", "CrossEntropyLoss", "CrossMapLRN2d", "Dropout",
    "Dropout1d", "Dropout2d", "Dropout3d", "ELU", "Embedding", "EmbeddingBag",
    "FeatureAlphaDropout", "Flatten", "FractionalMaxPool2d", "FractionalMaxPool3d", "Fold", "GELU",
    "GLU", "GRU", "GRUCell", "GaussianNLLLoss", "GroupNorm", "Hardshrink", "Hardsigmoid",
    "Hardswish", "Hardtanh", "HingeEmbeddingLoss", "HuberLoss", "Identity", "InstanceNorm1d",
    "InstanceNorm2d", "InstanceNorm3d", "KLDivLoss", "L1Loss", "LPPool1d", "LPPool2d", "LPPool3d",
    "LSTM", "LSTMCell", "LayerNorm", "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d",
    "LazyConv1d", "LazyConv2d", "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d",
    "LazyConvTranspose3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d",
    "LazyLinear", "LeakyReLU", "Linear", "LinearCrossEntropyLoss", "LinearCrossEntropyOptions",
    "LocalResponseNorm", "LogSigmoid", "LogSoftmax", "MSELoss", "MarginRankingLoss", "MaxPool1d",
    "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "Mish", "Module",
    "ModuleDict", "ModuleList", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss",
    "MultiMarginLoss", "MultiheadAttention", "NLLLoss", "NLLLoss2d", "PReLU", "PairwiseDistance",
    "ParameterDict", "ParameterList", "PixelShuffle", "PixelUnshuffle", "PoissonNLLLoss", "RMSNorm",
    "RNN", "RNNBase", "RNNCell", "RNNCellBase", "RReLU", "ReLU", "ReLU6", "ReflectionPad1d",
    "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
    "ReplicationPad3d", "SELU", "Sequential", "SiLU", "Sigmoid", "SmoothL1Loss", "SoftMarginLoss",
    "Softmax", "Softmax2d", "Softmin", "Softplus", "Softshrink", "Softsign", "SyncBatchNorm",
    "Tanh", "Tanhshrink", "Threshold", "Transformer", "TransformerDecoder",
    "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer", "TripletMarginLoss",
    "TripletMarginWithDistanceLoss", "Unflatten", "Unfold", "Upsample", "UpsamplingBilinear2d",
    "UpsamplingNearest2d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]
# fmt: on

for _name in __all__:
    if _name != "Module":
        named_in_errors(globals()[_name])
