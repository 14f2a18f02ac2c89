"""Graph networks over edge lists: GIN, GraphSAGE, principal aggregation, virtual nodes, pooling."""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def maybe_num_nodes(index, num_nodes=None):
    return int(index.max()) + 1 if num_nodes is None else num_nodes


def broadcast(src, other, dim):
    if dim < 0:
        dim = other.dim() + dim
    for _ in range(src.dim(), other.dim()):
        src = src.unsqueeze(-1)
    return src.expand(other.size())


def scatter(src, index, dim=0, dim_size=None, reduce="sum"):
    dim_size = maybe_num_nodes(index, dim_size)
    size = src.size()[:dim] + (dim_size,) + src.size()[dim + 1 :]
    if reduce == "sum":
        return src.new_zeros(size).scatter_add_(dim, broadcast(index, src, dim), src)
    if reduce == "mean":
        count = src.new_zeros(dim_size)
        count.scatter_add_(0, index, src.new_ones(src.size(dim)))
        out = src.new_zeros(size).scatter_add_(dim, broadcast(index, src, dim), src)
        return out / count.clamp(min=1).view(-1, *[1] * (src.dim() - 1))
    return src.new_zeros(size).scatter_reduce_(
        dim, broadcast(index, src, dim), src, reduce=f"a{reduce}", include_self=False
    )


def softmax(src, index, num_nodes):
    src_max = scatter(src.detach(), index, 0, num_nodes, reduce="max")
    out = (src - src_max.index_select(0, index)).exp()
    return out / (scatter(out, index, 0, num_nodes).index_select(0, index) + 1e-16)


class GINConv(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.nn = nn.Sequential(
            nn.Linear(dim, 2 * dim), nn.BatchNorm1d(2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)
        )
        self.eps = nn.Parameter(torch.Tensor([0.0]))
        self.edge_encoder = nn.Embedding(3, dim)

    def forward(self, x, edge_index, edge_attr):
        row, col = edge_index
        message = F.softplus(x[row] + self.edge_encoder(edge_attr))
        out = torch.zeros_like(x).index_add_(0, col, message)
        return self.nn((1 + self.eps) * x + out)


class PNAConv(nn.Module):
    """Mean, largest, smallest and spread of the neighbors, scaled by their number."""

    def __init__(self, dim):
        super().__init__()
        self.pre, self.post = nn.Linear(2 * dim, dim), nn.Linear(13 * dim, dim)

    def forward(self, x, edge_index):
        row, col = edge_index
        h = self.pre(torch.cat([x[col], x[row]], dim=-1))
        n = x.size(0)
        mean = scatter(h, col, 0, n, "mean")
        spread = (scatter(h * h, col, 0, n, "mean") - mean * mean).clamp(min=1e-2).sqrt()
        outs = [mean, scatter(h, col, 0, n, "min"), scatter(h, col, 0, n, "max"), spread]
        out = torch.cat(outs, dim=-1)
        deg = torch.bincount(col, minlength=n).to(out.dtype).view(-1, 1).clamp_(min=1)
        log = (deg + 1).log()
        out = torch.cat([x, out, out * log, out / log], dim=-1)
        return self.post(out)


class Model(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.atoms = nn.ModuleList([nn.Embedding(4, dim), nn.Embedding(2, dim)])
        self.gin, self.pna = GINConv(dim), PNAConv(dim)
        self.norm = nn.LayerNorm(dim)
        self.virtual = nn.Embedding(1, dim)
        nn.init.constant_(self.virtual.weight.data, 0)
        self.gate = nn.Linear(dim, 1)
        self.head = nn.Linear(3 * dim, 1)

    def forward(self, x, edge_index, edge_attr, batch):
        graphs = int(batch[-1]) + 1
        h = sum(emb(x[:, i]) for i, emb in enumerate(self.atoms))
        v = self.virtual(torch.zeros(graphs, dtype=torch.long, device=x.device))
        h = h + v[batch]
        h = h + self.gin(h, edge_index, edge_attr)
        v = v + scatter(h, batch, 0, graphs)
        h = self.norm(h + torch.tanh(self.pna(h + v.index_select(0, batch), edge_index)))
        gate = softmax(self.gate(h), batch, graphs)
        top = torch.zeros(graphs, h.size(1), device=x.device).scatter_reduce(
            0, batch[:, None].expand_as(h), h, "amax", include_self=False
        )
        pooled = [scatter(h, batch, 0, graphs, "mean"), scatter(gate * h, batch, 0, graphs), top]
        return self.head(torch.cat(pooled, dim=1)).view(-1)


def build_model():
    return Model()


def graphs(rng, device, number=6):
    x, edges, kinds, batch, y, first = [], [], [], [], [], 0
    for i in range(number):
        n = int(rng.integers(4, 9))
        pairs = np.argwhere(np.triu(rng.random((n, n)) < 0.5, 1))
        pairs = np.vstack([pairs, [[k, (k + 1) % n] for k in range(n)]])
        pairs = np.vstack([pairs, pairs[:, ::-1]])
        x.append(torch.from_numpy(np.stack([rng.integers(0, 4, n), rng.integers(0, 2, n)], 1)))
        edges.append(torch.from_numpy(pairs.T.copy()) + first)
        kinds.append(torch.from_numpy(rng.integers(0, 3, len(pairs))))
        batch.append(torch.full((n,), i, dtype=torch.long))
        y.append(len(pairs) / n / n)
        first += n
    parts = torch.cat(x), torch.cat(edges, dim=1), torch.cat(kinds), torch.cat(batch)
    return [t.to(device) for t in (*parts, torch.tensor(y))]


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    rng = np.random.default_rng(0)
    model = build_model().to(args.device)
    if args.init:
        model.load_state_dict(torch.load(args.init))
    optimizer = torch.optim.ASGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(args.steps):
        *inputs, y = graphs(rng, args.device)
        loss = F.smooth_l1_loss(model(*inputs), y.float(), beta=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    print(main())
