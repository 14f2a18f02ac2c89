"""Pictures: the autograd graph, a step as a time line, a model as a table."""

from lucid_gpu.viz.graph import graph
from lucid_gpu.viz.picture import Picture
from lucid_gpu.viz.summary import Summary, summary
from lucid_gpu.viz.timeline import timeline

__all__ = ["Picture", "Summary", "graph", "summary", "timeline"]
