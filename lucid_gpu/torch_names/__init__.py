"""Modules that packages import from PyTorch, under PyTorch's names.

This folder is on the path of `lucid_gpu` itself: ``torch_names/jit.py`` is imported as
``lucid_gpu.jit``, and ``torch_names/utils/hooks.py`` as ``lucid_gpu.utils.hooks``. Each does the
work, answers where there is nothing to do, or refuses and says what to write instead.
"""
