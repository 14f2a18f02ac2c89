"""`torch.optim._functional`: the steps of all optimizers as functions of lists."""

__all__ = [
    *("adadelta", "adagrad", "adam", "adamax", "adamw", "asgd", "nadam", "radam", "rmsprop"),
    *("rprop", "sgd"),
]
