"""Names that packages import and that refuse when they are called."""

from __future__ import annotations

import importlib
from operator import attrgetter

import pytest

import lucid_gpu

NAMES = [
    *("embedding_bag", "hash_tensor", "sparse_bsc_tensor", "sparse_bsr_tensor"),
    *("sparse_compressed_tensor", "sparse_csc_tensor"),
    *("nested.as_nested_tensor", "nested.masked_select", "nested.narrow", "nested.nested_tensor"),
    *("nested.nested_tensor_from_jagged", "nested.to_padded_tensor"),
    *("sparse.log_softmax", "sparse.sampled_addmm", "sparse.softmax", "sparse.spdiags"),
    *("serialization.register_package", "utils.benchmark.Compare", "utils.benchmark.Fuzzer"),
]


@pytest.mark.parametrize("path", NAMES)
def test_calling_refuses_and_says_what_to_write(path: str) -> None:
    function = attrgetter(path)(lucid_gpu)
    assert function.__name__ == path.rpartition(".")[2] and "Refuse" in function.__doc__
    with pytest.raises(NotImplementedError, match=rf"^lucid_gpu\.{path}: ") as caught:
        function(1, out=2)
    assert any(word in str(caught.value) for word in ("write", "load", "pad", "print", "draw"))


def test_hashes_as_the_refusal_says() -> None:
    import numpy

    x = lucid_gpu.tensor([-1.0, 3.0])
    mixed = numpy.bitwise_xor.reduce(x.double().numpy().view("uint64"), axis=None)
    assert int(mixed) == 18444492273895866368  # PyTorch's hash_tensor


@pytest.mark.parametrize("name", ["ao.nn", "ao.nn.qat", "ao.nn.intrinsic", "ao.nn.quantized"])
def test_quantized_layers_can_be_imported(name: str) -> None:
    assert importlib.import_module(f"lucid_gpu.{name}")
