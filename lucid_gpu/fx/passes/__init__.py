"""Passes over graphs: `shape_prop`."""
