"""`torch._higher_order_ops`: ops of functions, of which `associative_scan` is here."""

from .associative_scan import associative_scan

__all__ = ["associative_scan"]
