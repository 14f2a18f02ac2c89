"""The one thing pyproject.toml cannot say: the top-level `kernels/` travels inside the package."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["lucid_gpu", "lucid_gpu.*"]), "lucid_gpu._kernels"],
    package_dir={"lucid_gpu._kernels": "kernels"},
    package_data={
        "lucid_gpu": ["py.typed"],
        "lucid_gpu._kernels": ["**/*.cu", "**/*.cuh", "**/*.h", "README.md"],
    },
    include_package_data=False,
)
