"""What pyproject.toml cannot say: `kernels/` travels inside the package, one C file is optional."""

from __future__ import annotations

from setuptools import Extension, find_packages, setup

try:
    import numpy
except ImportError:  # a build without isolation and without NumPy: the package works, more slowly
    extensions = []
else:
    extensions = [
        Extension(
            "lucid_gpu.devices._native",
            ["lucid_gpu/devices/_native.c"],
            include_dirs=[numpy.get_include()],
            extra_compile_args=["-std=c11", "-Wall", "-Wextra"],
            optional=True,  # where it cannot be compiled, the same calls are made from Python
        )
    ]

setup(
    ext_modules=extensions,
    packages=[*find_packages(include=["lucid_gpu", "lucid_gpu.*"]), "lucid_gpu._kernels"],
    package_dir={"lucid_gpu._kernels": "kernels"},
    package_data={
        "lucid_gpu": ["py.typed"],
        "lucid_gpu.devices": ["_native.pyi"],
        "lucid_gpu._kernels": ["**/*.cu", "**/*.cuh", "**/*.h", "README.md"],
    },
    include_package_data=False,
)
