"""`torch._dynamo.config`: settings of a compiler, kept for code that sets them and reads them."""

from lucid_gpu.compat.settings import patcher

suppress_errors = verbose = force_parameter_static_shapes = compiled_autograd = False
capture_scalar_outputs = capture_dynamic_output_shape_ops = allow_unspec_int_on_nn_module = False
automatic_dynamic_shapes = assume_static_by_default = guard_nn_modules = optimize_ddp = True
inline_inbuilt_nn_modules = disable = True
cache_size_limit = recompile_limit = 8
accumulated_cache_size_limit = 256

patch = patcher(globals())
