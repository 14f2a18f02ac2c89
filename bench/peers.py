"""Who is measured, and in what environment."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parent.parent
THREADS = 2


@dataclass(frozen=True)
class Peer:
    """A module under PyTorch's API or NumPy's, and how it is run.

    Attributes
    ----------
    compiler : str
        The function of its module through which a case's function goes, if any.
    env : dict
        Environment variables of its process.
    usual : bool
        Whether it takes part when ``--peers`` is not given.
    on_gpus : bool
        Whether it computes on a GPU, installed and started as it is here.
    replays : bool
        Whether each step is captured as a graph and replayed.
    """

    name: str
    title: str
    module: str
    compiler: str = ""
    env: dict[str, str] = field(default_factory=dict)
    usual: bool = True
    on_gpus: bool = True
    replays: bool = False

    @property
    def compiled(self) -> bool:
        """Whether that is `torch.compile`, which has a column of its own beside torch eager."""
        return self.compiler == "compile"


PEERS: tuple[Peer, ...] = (
    Peer("lucid_gpu", "lucid_gpu", "lucid_gpu"),
    Peer(
        "lucid_gpu-graph",
        "lucid_gpu, graph",
        "lucid_gpu",
        usual=False,
        on_gpus=False,
        replays=True,
    ),
    Peer("torch-eager", "torch eager", "torch"),
    Peer("torch-compile", "torch.compile", "torch", compiler="compile"),
    Peer(
        "torch-hugepages",
        "torch eager, huge pages",
        "torch",
        env={"THP_MEM_ALLOC_ENABLE": "1"},
        usual=False,
    ),
    Peer(
        "torch-kept-memory",
        "torch eager, memory kept",
        "torch",
        env={"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)},
        usual=False,
    ),
    Peer("hips", "HIPS autograd", "autograd", on_gpus=False),
    Peer(
        "jax",
        "JAX",
        "jax",
        compiler="jit",
        env={
            "JAX_PLATFORMS": "cpu",
            "JAX_ENABLE_X64": "1",
            "NPROC": str(THREADS),
            "PJRT_NPROC": str(THREADS),
        },
        usual=False,
        on_gpus=False,
    ),
    Peer("mygrad", "MyGrad", "mygrad", usual=False, on_gpus=False),
    Peer(
        "tinygrad",
        "tinygrad",
        "tinygrad",
        compiler="TinyJit",
        env={"DEV": "CPU", "NUM_CPU_THREADS": str(THREADS)},
        usual=False,
        on_gpus=False,
    ),
)

SUBJECT = "lucid_gpu"
BASELINE = "torch-eager"
COMPILED = "torch-compile"
GRAPH = "lucid_gpu-graph"
TORCHES = (SUBJECT, BASELINE, COMPILED, GRAPH, "torch-hugepages", "torch-kept-memory")
NUMPYS = (SUBJECT, "hips", GRAPH)
ANYBODY = (*TORCHES, "jax", "mygrad", "tinygrad")

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "LUCID_NUM_THREADS",
)

# Each holds one library, and so one peer, to another processor's instructions.
_INSTRUCTION_VARIABLES = (
    "OPENBLAS_CORETYPE",
    "OPENBLAS_L2_SIZE",
    "NPY_DISABLE_CPU_FEATURES",
    "NPY_ENABLE_CPU_FEATURES",
    "MKL_ENABLE_INSTRUCTIONS",
    "MKL_CBWR",
    "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",
    "ATEN_CPU_CAPABILITY",
)


older: dict[str, str] = {}  # what ``--processor`` tells all of them: see `tools.as_processor`


def environment(peer: Peer | None = None) -> dict[str, str]:
    """The environment of a measured process: this one's, the tree importable, two threads.

    Every library chooses its kernels by the processor, as on a machine where nobody told it, or
    every one as on an ``older`` one.
    """
    env = {name: value for name, value in os.environ.items() if name not in _INSTRUCTION_VARIABLES}
    env.update(dict.fromkeys(THREAD_VARIABLES, str(THREADS)))
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # pip has compiled the other peers
    path = env.get("PYTHONPATH")
    env["PYTHONPATH"] = f"{TREE}{os.pathsep}{path}" if path else str(TREE)
    env.update(older)
    env.update(peer.env if peer else {})
    return env


def installed(module: str) -> bool:
    """Whether a peer's module is there, without importing it."""
    from importlib.util import find_spec

    if str(TREE) not in sys.path:
        sys.path.insert(0, str(TREE))
    spec = find_spec(module)
    return spec is not None and spec.origin is not None


def named(table: tuple[Any, ...], names: list[str], what: str) -> tuple[Any, ...]:
    """The entries of `PEERS` or `CASES` with these names, in the table's order.

    Raises
    ------
    ValueError
        For a name the table does not hold; the message lists those it does.
    """
    known = [entry.name for entry in table]
    for name in names:
        if name not in known:
            raise ValueError(f"no {what} {name!r}; there are: {', '.join(known)}")
    return tuple(entry for entry in table if entry.name in names)
