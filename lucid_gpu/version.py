"""The one place that names the version."""

__version__ = "0.1.0"
hip = rocm = xpu = None  # GPUs are NVIDIA's
debug = False


def __getattr__(name: str) -> str | None:
    """``version.cuda``: that of the CUDA runtime in use, such as ``"12.9"``; None without a GPU."""
    if name != "cuda":
        raise AttributeError(f"module 'lucid_gpu.version' has no attribute {name!r}")
    from lucid_gpu.devices.cupy_backend import runtime_version

    return runtime_version()
