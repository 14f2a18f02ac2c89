"""What pyproject.toml cannot say: `kernels/` travels in the package, the C files are optional."""

from __future__ import annotations

import sysconfig
from glob import glob

from setuptools import Extension, find_packages, setup

try:
    import numpy
except ImportError:  # a build without isolation and without NumPy: the package works, more slowly
    extensions = []
else:
    files = {
        "lucid_gpu.devices._native": ["lucid_gpu/devices/_native.c"],
        "lucid_gpu._gpu": ["lucid_gpu/devices/_gpu.c"],
    }
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):  # on which this one relies
        files["lucid_gpu._core"] = sorted(glob("lucid_gpu/core/native/*.c"))
    extensions = [
        Extension(
            name,
            sources,
            include_dirs=[numpy.get_include()],
            depends=glob("lucid_gpu/core/native/*.h"),
            extra_compile_args=["-std=c11", "-Wall", "-Wextra"],
            optional=True,  # where it cannot be compiled, Python does the same
        )
        for name, sources in files.items()
    ]

setup(
    ext_modules=extensions,
    packages=[*find_packages(include=["lucid_gpu", "lucid_gpu.*"]), "lucid_gpu._kernels"],
    package_dir={"lucid_gpu._kernels": "kernels"},
    package_data={
        "lucid_gpu": ["py.typed", "_core.pyi", "_gpu.pyi"],
        "lucid_gpu.devices": ["_native.pyi"],
        "lucid_gpu._kernels": ["**/*.cu", "**/*.cuh", "**/*.h", "README.md"],
    },
    include_package_data=False,
)
