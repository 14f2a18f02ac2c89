"""cupy_backends.cuda.libs of the stand-in for CuPy."""
