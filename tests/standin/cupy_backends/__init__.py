"""cupy_backends of the stand-in for CuPy."""
