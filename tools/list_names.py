"""Write docs/names.md: every public name of PyTorch, and whether it is here.

    python tools/list_names.py            # the page, from tools/torch_names.json: no torch needed
    python tools/list_names.py --torch    # the names anew, from the torch that is installed

A name that is here does what PyTorch's does, but for what docs/differences.md lists. A name is
*left out* where a row of `LEFT_OUT` says why; every other name is *absent*.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
import textwrap
import types
import warnings
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parents[1]
NAMES = TREE / "tools" / "torch_names.json"
PAGE = TREE / "docs" / "names.md"
MODULES = (
    "torch", "torch.Tensor", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.utils",
    "torch.nn.utils.rnn", "torch.optim", "torch.optim.lr_scheduler", "torch.linalg", "torch.fft",
    "torch.special", "torch.autograd", "torch.amp", "torch.utils.data", "torch.distributions",
    "torch.distributed", "torch.distributed.fsdp",
)  # fmt: skip

# Why names are no part of what the package covers: a reason, and which names (whole).
LEFT_OUT: tuple[tuple[str, str], ...] = (
    (
        "TorchScript, tracing and export",
        r"\w*Type|\w*Script\w*|JITException|CompilationUnit|Code|Block|Value|Use|Node|Graph|Gradient|"
        r"ErrorReport|FileCheck|FunctionSchema|ConcreteModuleTypeBuilder|IODescriptor|AliasDb|Argument\w*|"
        r"CompleteArgumentSpec|CallStack|Capsule|ExecutionPlan|GraphExecutorState|TracingState|"
        r"OperatorInfo|StaticModule|ScriptList\w*|\w*Logger\w*|Await\w*|Aggregation\w*|AVG|SUM|"
        r"PyTorchFile\w+|\w+StorageContext|DeepCopyMemoTable|ThroughputBenchmark|Benchmark\w+|"
        r"import_ir_module\w*|parse_ir|parse_schema|parse_type_comment|unify_type_list|"
        r"merge_type_from_type_comment|jit|fx|export|package|compiler|fork|wait|cond|while_loop|"
        r"Tag|DispatchKey\w*|ExcludeDispatchKeyGuard|DisableTorchFunction\w*|ConcreteModuleType|"
        r"library|overrides|classes|Future|futures|FatalError|typename|LiteScriptModule|boolean_dispatch|"
        r"has_torch_function\w*|handle_torch_function|assert_int_or_pair|BroadcastingList\d|"
        r"get_file_path|types|classproperty|cpp|thread_safe_generator|BufferDict|return_types|windows|DType|mtia|torch_version",
    ),
    (
        "quantized numbers and types of less than a byte",
        r"q(u?int)\d\w*|quantiz\w+|quantized\w*|dequantize|fake_quant\w+|fused_moving_avg\w+|"
        r"per_(channel|tensor)_\w+|q_\w+|int_repr|fbgemm_\w+|choose_qparams\w+|qscheme|QU?Int\w+|"
        r"bits\w+|bit|u?int[1-7]|float[48]_\w+|is_quantized|ao|qat|quantizable|intrinsic|"
        r"ScalingType|SwizzleType|scaled_mm|scaled_grouped_mm|empty_quantized|complex32|chalf",
    ),
    (
        "one library's kernel for what another name does",
        r"(cudnn|miopen|mkldnn)_\w+|native_\w+|batch_norm_(backward|elemt|gather|stats|update)\w*|"
        r"conv_tbc|\w+_with_indices|grid_sampler\w*|"
        r"(rnn_(relu|tanh)|gru|lstm)(_cell)?|embedding_renorm_|binary_cross_entropy_with_logits|"
        r"constant_pad_nd|convolution|affine_grid_generator|segment_reduce|norm_except_dim|"
        r"is_mkldnn|to_mkldnn|has_(mkl|openmp|lapack|spectral)|feature_dropout_?|hash_tensor|dsmm|"
        r"sym_\w+|Sym\w+|slice_inverse|\w+_copy|to_padded_tensor",
    ),
    (
        "other devices and other processes",
        r"mps|xpu|ipu|mtia|cpu|is_(ipu|xla|xpu|mps|mtia|maia|vulkan\w*|meta|distributed)|"
        r"multiprocessing|prepare_multiprocessing_environment|"
        r"Stream|Event|StreamObjType|get_device_module|"
        r"set_flush_denormal|\w+_autocast_(ipu|xla)\w*|profiler_allow\w+|DeviceObjType|"
        r"init_num_threads|[gs]et_num_interop_threads|USE_\w+|compiled_with_cxx11_abi|PRIVATE_OPS|"
        r"autocast_(de|in)crement_nesting",
    ),
    (
        "inside of process groups, remote calls",
        r"AllToAllOptions|Allreduce\w*Options|BarrierOptions|BroadcastOptions|GatherOptions|"
        r"Reduce\w*Options|ScatterOptions|BackendConfig|DebugLevel|[gs]et_debug_level\w*|"
        r"ProcessGroupGloo|Reducer|"
        r"c10d_logger|distributed_c10d|logging_handlers|record_comm|register_rendezvous_handler|"
        r"rendezvous|remote_device|rpc|shrink_group|split_group|all_gather_coalesced|FlatParameter|"
        r"DataParallelMeshDims|fully_sharded_data_parallel|share_comm_ctx|StateDictSettings",
    ),
    (
        "storages by type: untyped_storage() is a tensor's memory",
        r"\w*Storage\w*|storage_type|from_file|"
        r"const_data_ptr|is_set_to|module_load",
    ),
    (
        "sparse layouts but COO and CSR, nested tensors, names of dimensions",
        r"sparse_(csc|bsr|bsc|compressed)\w*|to_sparse_(csc|bsr|bsc)|"
        r"row_indices|ccol_indices|jagged|nested|is_nested|hspmm|sspaddmm|smm|saddmm|"
        r"hsmm|sparse_mask|sparse_resize\w*|resize_as_sparse_|name|masked",
    ),
    (
        "names PyTorch itself has removed: calling them raises",
        r"symeig|eig|solve|lstsq|reinforce|volatile|legacy_contiguous_format|Container|"
        r"set_autocast_(cpu|gpu)_dtype|"
        r"set_autocast_cpu_enabled|NLLLoss2d|upsample_(bilinear|nearest)",
    ),
    (
        "data pipes",
        r"\w*DataPipe\w*|DFIter\w+|DataChunk|datapipes|functional_datapipe|graph(_settings)?|"
        r"guaranteed_datapipes_determinism|non_deterministic|argument_validation|"
        r"runtime_validation\w*",
    ),
    (
        "parts of PyTorch that are packages of their own",
        r"hub|monitor|quasirandom|functional|random|signal|modules|utils|common_types|attention|ops|"
        r"storage",
    ),
)  # fmt: skip
# Where a pattern above would leave out what PyTorch's users call: (module, name).
KEPT = {("torch.linalg", name) for name in ("cond", "solve", "eig", "lstsq", "matrix_rank")} | {
    ("torch.autograd", "functional"), ("torch.nn", "functional"), ("torch.nn", "utils"),
    ("torch.autograd", "graph"), ("torch.nn", "attention"),
}  # fmt: skip

ACCIDENTS = {
    ("torch", "ops"),
    ("torch", "storage"),
    ("torch.distributed", "rendezvous"),
}  # files of ours that are called alike


def found_by_torch(module: str) -> list[str]:
    """The public names of a module or class that are PyTorch's own."""
    holder = held(module)
    names = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in dir(holder):
            value = getattr(holder, name, None)
            home = value.__name__ if isinstance(value, types.ModuleType) else None
            if home is None and (inspect.isclass(value) or inspect.isroutine(value)):
                home = getattr(value, "__module__", None)
            kind = type(value).__module__
            if home is None and kind in ("typing", "typing_extensions", "__future__"):
                home = "typing"
            foreign = home is not None and home.split(".")[0] not in ("torch", "builtins", "")
            text = isinstance(value, (str, dict)) or name == "TYPE_CHECKING"
            if not (name.startswith("_") or foreign or text) and name not in ("torch", "builtins"):
                names.append(name)
    if module not in ("torch", "torch.Tensor"):
        names = [n for n in names if n != "Tensor"]
    return names


def held(module: str) -> Any:
    """A module, or a class in it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        above, _, last = module.rpartition(".")
        return getattr(importlib.import_module(above), last)


def ours(module: str) -> Any:
    """What stands for a module of PyTorch's here; None where nothing does."""
    try:
        return held(re.sub(r"^torch", "lucid_gpu", module))
    except (ModuleNotFoundError, AttributeError):
        return None


def reason(module: str, name: str) -> str | None:
    """Why a name is left out, or None."""
    if (module, name) in KEPT:
        return None
    return next((why for why, which in LEFT_OUT if re.fullmatch(which, name)), None)


def section(module: str, names: list[str]) -> tuple[list[str], int, int]:
    """The lines about one module, and how many of its names are here and absent."""
    here = ours(module)
    present = [n for n in names if hasattr(here, n) and (module, n) not in ACCIDENTS]
    missing = [n for n in names if n not in set(present)]
    absent = [n for n in missing if reason(module, n) is None]
    lines = [f"## {module}", "", f"{len(present)} names are here, {len(absent)} are absent.", ""]
    lines += block("Here", present) + block("Absent", absent)
    for why, _ in LEFT_OUT:
        lines += block(f"Left out: {why}", [n for n in missing if reason(module, n) == why])
    return lines, len(present), len(absent)


def block(title: str, names: list[str]) -> list[str]:
    """A title and names, as lines; nothing where there are no names."""
    if not names:
        return []
    return [f"{title}:", "", "```", *textwrap.wrap(" ".join(names), 100), "```", ""]


def page() -> str:
    """docs/names.md as it should be."""
    data = json.loads(NAMES.read_text("utf-8"))
    sections = [section(module, names) for module, names in data["modules"].items()]
    here, absent = sum(s[1] for s in sections), sum(s[2] for s in sections)
    lines = [
        "# Names",
        "",
        "<!-- Written by tools/list_names.py: make names writes it anew. -->",
        "",
        f"Every public name of PyTorch {data['version']} in the modules below: {here} are here,",
        f"{absent} are absent; the rest are left out for a reason. A name that is here behaves as",
        "PyTorch's does, but for what [differences.md](differences.md) lists.",
        "",
        *[line for s in sections for line in s[0]],
    ]
    return "\n".join(lines).rstrip() + "\n"


def names_of_torch() -> dict[str, Any]:
    """What tools/torch_names.json holds, from the torch that is installed."""
    import torch

    found = {module: found_by_torch(module) for module in MODULES}
    return {"version": torch.__version__.split("+")[0], "modules": found}


def as_text(data: dict[str, Any]) -> str:
    """The JSON file: a line a module."""
    rows = [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in data["modules"].items()]
    version = json.dumps(data["version"])
    return "{\n" + f' "version": {version},\n "modules": {{\n' + ",\n".join(rows) + "\n }\n}\n"


def main() -> int:
    """Write the page, and before it, if asked, the names."""
    sys.path.insert(0, str(TREE))
    if "--torch" in sys.argv[1:]:
        NAMES.write_text(as_text(names_of_torch()), "utf-8")
    PAGE.write_text(page(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
