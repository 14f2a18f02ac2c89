"""Graph convolution over a sparse normalized adjacency matrix: classes of the nodes of a graph."""

import argparse
import math

import numpy as np
import torch
import torch.nn.functional as F
import torch.optim as optim
from torch import nn
from torch.nn.parameter import Parameter

NODES, FEATURES, CLASSES = 120, 16, 4


class GraphConvolution(nn.Module):
    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(torch.FloatTensor(in_features, out_features))
        if bias:
            self.bias = Parameter(torch.FloatTensor(out_features))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        stdv = 1.0 / math.sqrt(self.weight.size(1))
        self.weight.data.uniform_(-stdv, stdv)
        if self.bias is not None:
            self.bias.data.uniform_(-stdv, stdv)

    def forward(self, input, adj):
        support = torch.mm(input, self.weight)
        output = torch.spmm(adj, support)
        return output if self.bias is None else output + self.bias

    def __repr__(self):
        return f"{self.__class__.__name__} ({self.in_features} -> {self.out_features})"


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass, dropout=0.0):
        super().__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


def build_model():
    return GCN(FEATURES, 12, CLASSES)


def load_data():
    """Nodes of four classes, linked to their own class nine times out of ten."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, NODES)
    same = labels[:, None] == labels[None, :]
    adj = (rng.random((NODES, NODES)) < np.where(same, 0.09, 0.01)).astype(np.float32)
    adj = np.maximum(np.maximum(adj, adj.T), np.eye(NODES, dtype=np.float32))
    adj /= adj.sum(1, keepdims=True)
    indices = torch.from_numpy(np.vstack(np.nonzero(adj)).astype(np.int64))
    values = torch.from_numpy(adj[np.nonzero(adj)])
    adj = torch.sparse_coo_tensor(indices, values, torch.Size([NODES, NODES]))
    features = rng.standard_normal((NODES, FEATURES)) + np.eye(CLASSES, FEATURES)[labels]
    return adj, torch.FloatTensor(features), torch.LongTensor(labels)


def accuracy(output, labels):
    preds = output.max(1)[1].type_as(labels)
    return preds.eq(labels).double().sum() / len(labels)


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    adj, features, labels = (t.to(args.device) for t in load_data())
    idx_train = torch.arange(60, device=args.device)
    idx_val = torch.LongTensor(range(60, NODES)).to(args.device)
    model = build_model().to(args.device)
    if args.init:
        model.load_state_dict(torch.load(args.init))
    print(model)
    optimizer = optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
    losses = []
    for epoch in range(args.epochs):
        model.train()
        optimizer.zero_grad()
        output = model(features, adj)
        loss_train = F.nll_loss(output[idx_train], labels[idx_train])
        loss_train.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            output = model(features, adj)
            loss_val = F.nll_loss(output[idx_val], labels[idx_val])
        print(
            f"Epoch: {epoch:04d} loss_train: {loss_train.item():.4f} "
            f"acc_val: {accuracy(output[idx_val], labels[idx_val]).item():.4f}"
        )
        losses += [loss_train.item(), loss_val.item()]
    return losses


if __name__ == "__main__":
    main()
