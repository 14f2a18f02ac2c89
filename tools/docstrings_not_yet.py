"""What tools/check_docstrings.py passes over until it is documented."""

NOT_YET: dict[str, str] = {
    "lucid_gpu.nn.init": """
        calculate_gain
        constant
        constant_
        dirac
        dirac_
        eye
        eye_
        kaiming_normal
        kaiming_normal_
        kaiming_uniform
        kaiming_uniform_
        normal
        normal_
        ones_
        orthogonal
        orthogonal_
        sparse
        sparse_
        trunc_normal_
        uniform
        uniform_
        xavier_normal
        xavier_normal_
        xavier_uniform
        xavier_uniform_
        zeros_
    """,
    "lucid_gpu.nn.utils": """
        fuse_conv_bn_eval
        fuse_conv_bn_weights
        fuse_linear_bn_eval
        fuse_linear_bn_weights
        remove_spectral_norm
        remove_weight_norm
        skip_init
        spectral_norm
        vector_to_parameters
        weight_norm
    """,
    "lucid_gpu.nn.utils.parametrizations": """
        orthogonal
        spectral_norm
        weight_norm
    """,
    "lucid_gpu.nn.utils.parametrize": """
        ParametrizationList
        ParametrizationList.forward
        ParametrizationList.right_inverse
        register_parametrization
        remove_parametrizations
    """,
    "lucid_gpu.nn.utils.rnn": """
        PackedSequence.byte
        PackedSequence.char
        PackedSequence.double
        PackedSequence.float
        PackedSequence.half
        PackedSequence.int
        PackedSequence.long
        PackedSequence.short
        pad_packed_sequence
        pad_sequence
        unpack_sequence
    """,
    "lucid_gpu.optim": """
        ASGD
        Adadelta
        Adafactor
        Adagrad
        Adam
        AdamW
        Adamax
        LBFGS
        LBFGS.step
        Muon
        NAdam
        Optimizer
        RAdam
        RMSprop
        SGD
        SparseAdam
    """,
    "lucid_gpu.optim.lr_scheduler": """
        ChainedScheduler
        ConstantLR
        CosineAnnealingWarmRestarts
        CosineAnnealingWarmRestarts.step
        CyclicLR
        LRScheduler
        LRScheduler.get_lr
        LambdaLR
        LinearLR
        MultiplicativeLR
        OneCycleLR
        OneCycleLR.get_lr
        ReduceLROnPlateau
        SequentialLR
    """,
    "lucid_gpu.optim.swa_utils": """
        AveragedModel
        SWALR
        get_ema_avg_fn
        get_ema_multi_avg_fn
    """,
    "lucid_gpu.utils.data": """
        BatchSampler
        ConcatDataset
        DataLoader
        RandomSampler
        TensorDataset
        WeightedRandomSampler
    """,
    "lucid_gpu.multiprocessing": """
        set_sharing_strategy
    """,
    "lucid_gpu.utils.checkpoint": """
        CheckpointFunction.backward
        checkpoint
        checkpoint_sequential
    """,
    "lucid_gpu.utils.tensorboard": """
        SummaryWriter.add_graph
    """,
}
