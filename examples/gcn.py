"""Classify 1,797 digits from 50 labels: graph convolutions over a graph of neighbors.

Every image is a node, joined to those that look most like it (scikit-learn's kneighbors_graph).
Five labels per digit are given; the model ("Semi-supervised classification with graph convolutional
networks", Kipf and Welling, 2017) lets them spread along the edges. The same model without edges
is trained too, to show what the graph contributes. All other images are the test set.
"""

from __future__ import annotations

import argparse
from typing import Any

import training  # first: from here on Ctrl-C ends in one sentence

# isort: split
import numpy as np

import lucid_gpu as torch
from lucid_gpu import nn
from lucid_gpu.nn import functional as F

LABELS, NEIGHBORS, WIDTH, DROPOUT = 5, 8, 64, 0.5  # the first: known of each digit
LEARNING_RATE, WEIGHT_DECAY = 1e-2, 5e-3


class Spread(torch.autograd.Function):
    """``A @ x`` for a sparse matrix that is fixed: its gradient is ``A.T @ grad``."""

    @staticmethod
    def forward(ctx: Any, indices: Any, values: Any, x: torch.Tensor) -> torch.Tensor:
        matrix = torch.sparse_coo_tensor(indices, values, (len(x), len(x)))
        ctx.save_for_backward(matrix)
        return torch.sparse.mm(matrix, x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        (matrix,) = ctx.saved_tensors
        return None, None, torch.sparse.mm(matrix.t(), grad)


class GCN(nn.Module):
    def __init__(self, edges: Any) -> None:
        super().__init__()
        self.edges = edges
        self.first, self.last = nn.Linear(64, WIDTH), nn.Linear(WIDTH, 10)
        self.dropout = nn.Dropout(DROPOUT)

    def spread(self, x: torch.Tensor) -> torch.Tensor:
        return x if self.edges is None else Spread.apply(*self.edges, x)

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        return self.spread(self.first(self.dropout(x))).relu()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.spread(self.last(self.dropout(self.hidden(x))))


def neighbors(images: Any) -> Any:
    """SciPy's COO matrix: who is among whose nearest, either way, and everybody himself."""
    from scipy.sparse import eye
    from sklearn.neighbors import kneighbors_graph

    near = kneighbors_graph(images, NEIGHBORS)
    return (near.maximum(near.T) + eye(len(images))).tocoo()


def edges_of(matrix: Any, device: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Places and values of ``D**-0.5 A D**-0.5``, where D holds the number of neighbors."""
    scale = np.asarray(matrix.sum(1)).ravel() ** -0.5
    values = (matrix.data * scale[matrix.row] * scale[matrix.col]).astype(np.float32)
    places = torch.tensor(np.stack([matrix.row, matrix.col]), dtype=torch.int64, device=device)
    return places, torch.tensor(values, device=device)


class Reader(training.Run):
    unit, ticks_of = "epoch", "epochs"

    def __init__(self, args: argparse.Namespace) -> None:
        from sklearn.datasets import load_digits

        super().__init__(args, args.epochs, ("loss", "test", "without"))
        data = load_digits()
        self.matrix = neighbors(data.data)
        self.x = torch.tensor((data.data / 16).astype(np.float32), device=self.device)
        self.labels = torch.tensor(data.target, device=self.device)
        order = np.random.default_rng(0).permutation(len(data.target))  # the same known every time
        given = [order[data.target[order] == digit][:LABELS] for digit in range(10)]
        self.known = np.isin(np.arange(len(order)), given)
        self.given = torch.tensor(np.flatnonzero(self.known), device=self.device)
        self.asked = torch.tensor(np.flatnonzero(~self.known), device=self.device)
        self.models = nn.ModuleList([GCN(edges_of(self.matrix, self.device)), GCN(None)])
        self.learn(self.models, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)

    def about(self) -> str:
        return f"{self.weights()}: {len(self.given)} of {len(self.x)} labels are known"

    def advance(self, bar: Any) -> dict[str, float]:
        self.models.train()
        known, labels = self.given, self.labels[self.given]
        loss = sum(F.cross_entropy(model(self.x)[known], labels) for model in self.models)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.done += 1
        right = ((self.guesses(model) == self.labels)[self.asked] for model in self.models)
        test, without = (r.float().mean().item() for r in right)
        bar.update()
        bar.set_postfix_str(f"accuracy {test:.3f}, without edges {without:.3f}", False)
        return {"loss": loss.item(), "test": test, "without": without}

    @torch.no_grad()
    def guesses(self, model: GCN) -> torch.Tensor:
        model.eval()
        return model(self.x).argmax(1)

    def reached(self) -> tuple[str, float]:
        without = f"accuracy without the graph {self.history['without'][-1]:.4f}"
        return f"{without}, with it", self.history["test"][-1]

    def draw(self) -> None:
        from matplotlib.collections import LineCollection

        figure = training.new_figure(11, 5)
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.6))
        curves = {"test": ("with the graph", "C3"), "without": ("without", "C0")}
        training.plot_curves(left, self, "accuracy on the other images", curves)
        # The images where the model sees them, with their edges.
        guesses, labels = self.guesses(self.models[0]).cpu().numpy(), self.labels.cpu().numpy()
        hidden = training.on_host(self.models[0].hidden(self.x))
        hidden -= hidden.mean(0)
        places = hidden @ np.linalg.svd(hidden, full_matrices=False)[2][:2].T
        lines = np.stack([places[self.matrix.row], places[self.matrix.col]], 1)
        right.add_collection(LineCollection(lines, colors="#00000010", linewidths=0.5, zorder=0))
        style = {"cmap": "tab10", "vmin": 0, "vmax": 9}
        right.scatter(*places.T, c=guesses, s=6, **style)
        known, wrong = places[self.known].T, places[guesses != labels].T
        right.scatter(*known, c=labels[self.known], s=45, edgecolors="black", **style)
        right.scatter(*wrong, c="black", s=14, marker="x", linewidths=0.8)
        right.set_title("large: known; crossed: read wrongly", size=9)
        right.axis("off")
        training.write_picture(figure, self.args.out / "graph.png")


flags = training.parser("Read digits by a graph of neighbors.", "runs/gcn", epochs=200)

if __name__ == "__main__":
    training.main(flags, Reader)
