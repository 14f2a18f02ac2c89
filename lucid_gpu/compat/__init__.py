"""Modules of PyTorch that packages import and few call: each answers, does the work, or refuses.

This folder is on the path of `lucid_gpu` itself: ``compat/jit.py`` is imported as
``lucid_gpu.jit``, and ``compat/utils/hooks.py`` as ``lucid_gpu.utils.hooks``. Nothing else in the
package imports them.
"""
