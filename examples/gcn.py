"""Read 1,797 digits knowing 50 of them: graph convolutions over a graph of neighbours.

Every image is a node, joined to those that look most like it (scikit-learn's kneighbors_graph).
Five labels a digit are given; the model ("Semi-supervised classification with graph convolutional
networks", Kipf and Welling, 2017) lets them spread along the edges. The same model without edges
is trained beside it, to tell what the graph is worth. The test are all other images.
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

LABELS = 5  # known of each digit
NEIGHBOURS, WIDTH, DROPOUT = 8, 64, 0.5
LEARNING_RATE, WEIGHT_DECAY = 1e-2, 5e-3


class Spread(torch.autograd.Function):
    """``A @ x`` for a sparse matrix that is fixed: its gradient is ``A.T @ grad``."""

    @staticmethod
    def forward(ctx: Any, indices: Any, values: Any, x: torch.Tensor) -> torch.Tensor:
        n = len(x)
        matrix = torch.sparse_coo_tensor(indices, values, (n, n))
        ctx.save_for_backward(matrix)
        return torch.sparse.mm(matrix, x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        (matrix,) = ctx.saved_tensors
        return None, None, torch.sparse.mm(matrix.t(), grad)


class GCN(nn.Module):
    """``A dropout(relu(A dropout(x) W)) W'``."""

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


def neighbours(images: Any) -> Any:
    """SciPy's COO matrix: who is among whose nearest, either way, and everybody himself."""
    from scipy.sparse import eye
    from sklearn.neighbors import kneighbors_graph

    near = kneighbors_graph(images, NEIGHBOURS)
    return (near.maximum(near.T) + eye(len(images))).tocoo()


def edges_of(matrix: Any, device: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Places and values of ``D**-0.5 A D**-0.5``, where D holds the number of neighbours."""
    scale = np.asarray(matrix.sum(1)).ravel() ** -0.5
    values = (matrix.data * scale[matrix.row] * scale[matrix.col]).astype(np.float32)
    places = np.stack([matrix.row, matrix.col]).astype(np.int64)
    return torch.tensor(places, device=device), torch.tensor(values, device=device)


class Reader(training.Run):
    unit, ticks_of = "epoch", "epochs"

    def __init__(self, args: argparse.Namespace) -> None:
        from sklearn.datasets import load_digits

        names = ("loss", "with the graph", "without")
        super().__init__(args, args.epochs, names)
        data = load_digits()
        self.matrix = neighbours(data.data)
        self.x = torch.tensor((data.data / 16).astype(np.float32), device=self.device)
        self.labels = torch.tensor(data.target, device=self.device)
        order = np.random.default_rng(0).permutation(len(data.target))  # the same known every time
        self.known = np.zeros(len(order), bool)
        for digit in range(10):
            self.known[order[data.target[order] == digit][:LABELS]] = True
        self.given = torch.tensor(np.flatnonzero(self.known), device=self.device)
        self.asked = torch.tensor(np.flatnonzero(~self.known), device=self.device)
        edges = edges_of(self.matrix, self.device)
        self.models = nn.ModuleList([GCN(edges), GCN(None)]).to(self.device)
        self.optimizer = torch.optim.Adam(
            self.models.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY
        )
        self.schedule = training.half_cosine(self.optimizer, args.epochs)
        self.parts = {
            "weights": self.models,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
        }

    def about(self) -> str:
        edges = (self.matrix.nnz - len(self.x)) // 2
        return (
            f"{len(self.x)} images and {edges} edges on {self.device}: "
            f"{len(self.given)} labels are known"
        )

    def advance(self, bar: Any) -> dict[str, float]:
        self.models.train()
        loss = sum(
            F.cross_entropy(model(self.x)[self.given], self.labels[self.given])
            for model in self.models
        )
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.done += 1
        accuracies = [self.accuracy(model) for model in self.models]
        bar.update()
        bar.set_postfix_str("accuracy {:.3f}, without edges {:.3f}".format(*accuracies), False)
        return dict(zip(("loss", "with the graph", "without"), (loss.item(), *accuracies)))

    @torch.no_grad()
    def guesses(self, model: GCN) -> torch.Tensor:
        model.eval()
        return model(self.x).argmax(1)

    def accuracy(self, model: GCN) -> float:
        right = self.guesses(model) == self.labels
        return right[self.asked].float().mean().item()

    def reached(self) -> tuple[str, float]:
        without = f"accuracy without the graph {self.history['without'][-1]:.4f}"
        return f"{without}, with it", self.history["with the graph"][-1]

    def draw(self) -> None:
        figure = training.new_figure(11, 5)
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.6))
        training.plot_curves(
            left,
            self,
            "accuracy on the other images",
            {
                "with the graph": ("with the graph", training.TEST),
                "without": ("without", training.TRAINING),
            },
        )
        left.set_ylim(0, 1)
        self.draw_graph(right)
        figure.suptitle(f"Digits read with {len(self.given)} labels known")
        training.write_picture(figure, self.args.out / "graph.png")

    @torch.no_grad()
    def draw_graph(self, axes: Any) -> None:
        """The images where the model sees them, with their edges."""
        from matplotlib.collections import LineCollection

        model = self.models[0]
        guesses, labels = self.guesses(model).cpu().numpy(), self.labels.cpu().numpy()
        hidden = model.hidden(self.x).cpu().numpy()
        hidden -= hidden.mean(0)
        places = hidden @ np.linalg.svd(hidden, full_matrices=False)[2][:2].T
        lines = np.stack([places[self.matrix.row], places[self.matrix.col]], 1)
        axes.add_collection(LineCollection(lines, colors="#00000010", linewidths=0.5, zorder=0))
        label = {"ha": "center", "va": "center", "bbox": {"color": "#ffffffb0", "pad": 0.5}}
        style = {"cmap": "tab10", "vmin": 0, "vmax": 9}
        axes.scatter(*places.T, c=guesses, s=6, **style)
        known, wrong = self.known, guesses != labels
        axes.scatter(*places[known].T, c=labels[known], s=45, edgecolors="black", **style)
        axes.scatter(*places[wrong].T, c="black", s=14, marker="x", linewidths=0.8)
        for digit in range(10):
            where = np.median(places[labels == digit], 0)
            axes.text(*where, str(digit), size=17, weight="bold", **label)
        axes.set_title("large: known; crossed: read wrongly", size=9)
        axes.axis("off")


def flags() -> training.Parser:
    made = training.parser("Read digits by a graph of neighbours, few labels known.", "runs/gcn")
    made.add_argument("--epochs", type=training.positive, default=200, help="(%(default)s)")
    return made


if __name__ == "__main__":
    training.main(flags(), Reader)
