"""`torch._inductor.config`: settings of a compiler, kept for code that sets them and reads them."""

from types import SimpleNamespace

from lucid_gpu.compat.settings import patcher

triton = SimpleNamespace(unique_kernel_names=True, cudagraphs=False, cudagraph_trees=True)
cpp = SimpleNamespace(threads=-1, simdlen=None)
coordinate_descent_tuning = coordinate_descent_check_all_directions = max_autotune = False
force_fuse_int_mm_with_mul = conv_1x1_as_mm = freezing = cpp_wrapper = False
epilogue_fusion = fx_graph_cache = shape_padding = True
compile_threads = 1

patch = patcher(globals())
