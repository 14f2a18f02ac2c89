"""Hand-written kernels by family: the launch of the CUDA C of ``kernels/`` beside its NumPy twin.

Functions here take and give arrays; `lucid_gpu.ops` makes differentiable ops of them. A module's
``INSTANCES`` lists the kernels a program launches with their template arguments; tests compile
them.
"""
