"""cupy_backends.cuda.api of the stand-in for CuPy."""
