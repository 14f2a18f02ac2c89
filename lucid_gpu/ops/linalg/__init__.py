"""Linear algebra: forward by NumPy's and CuPy's libraries, gradients in closed form.

A gradient is written with tensor ops, these among them, and so has gradients itself.
"""
