"""cupy_backends.cuda of the stand-in for CuPy."""
