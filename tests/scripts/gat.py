"""Graph attention: softmax over neighbors, by a product with gradients of its own."""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

NODES, FEATURES, CLASSES = 60, 12, 3


class SpecialSpmmFunction(torch.autograd.Function):
    """A sparse matrix times a dense one, with gradients of the entries that are there."""

    @staticmethod
    def forward(ctx, indices, values, shape, b):
        assert indices.requires_grad is False
        a = torch.sparse_coo_tensor(indices, values, shape)
        ctx.save_for_backward(a, b)
        ctx.N = shape[0]
        return torch.matmul(a, b)

    @staticmethod
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        grad_values = grad_b = None
        if ctx.needs_input_grad[1]:
            grad_a_dense = grad_output.matmul(b.t())
            edge_idx = a._indices()[0, :] * ctx.N + a._indices()[1, :]
            grad_values = grad_a_dense.view(-1)[edge_idx]
        if ctx.needs_input_grad[3]:
            grad_b = a.t().matmul(grad_output)
        return None, grad_values, None, grad_b


class SpecialSpmm(nn.Module):
    def forward(self, indices, values, shape, b):
        return SpecialSpmmFunction.apply(indices, values, shape, b)


class SpGraphAttentionLayer(nn.Module):
    def __init__(self, in_features, out_features, alpha=0.2, concat=True):
        super().__init__()
        self.concat = concat
        self.W = nn.Parameter(torch.zeros(size=(in_features, out_features)))
        nn.init.xavier_normal_(self.W.data, gain=1.414)
        self.a = nn.Parameter(torch.zeros(size=(1, 2 * out_features)))
        nn.init.xavier_normal_(self.a.data, gain=1.414)
        self.leakyrelu = nn.LeakyReLU(alpha)
        self.special_spmm = SpecialSpmm()

    def forward(self, input, adj):
        N = input.size()[0]
        edge = adj.nonzero().t()
        h = torch.mm(input, self.W)
        assert not torch.isnan(h).any()
        edge_h = torch.cat((h[edge[0, :], :], h[edge[1, :], :]), dim=1).t()
        edge_e = torch.exp(-self.leakyrelu(self.a.mm(edge_h).squeeze()))
        ones = torch.ones(size=(N, 1), device=input.device)
        e_rowsum = self.special_spmm(edge, edge_e, torch.Size([N, N]), ones)
        h_prime = self.special_spmm(edge, edge_e, torch.Size([N, N]), h)
        h_prime = h_prime.div(e_rowsum)
        return F.elu(h_prime) if self.concat else h_prime


class SpGAT(nn.Module):
    def __init__(self, nfeat, nhid, nclass, nheads):
        super().__init__()
        self.attentions = [SpGraphAttentionLayer(nfeat, nhid) for _ in range(nheads)]
        for i, attention in enumerate(self.attentions):
            self.add_module(f"attention_{i}", attention)
        self.out_att = SpGraphAttentionLayer(nhid * nheads, nclass, concat=False)

    def forward(self, x, adj):
        x = torch.cat([att(x, adj) for att in self.attentions], dim=1)
        return F.log_softmax(F.elu(self.out_att(x, adj)), dim=1)


def build_model():
    return SpGAT(FEATURES, 6, CLASSES, nheads=2)


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, NODES)
    same = labels[:, None] == labels
    adj = np.maximum(rng.random((NODES, NODES)) < np.where(same, 0.12, 0.02), np.eye(NODES))
    features = rng.standard_normal((NODES, FEATURES)) + np.eye(CLASSES, FEATURES)[labels]
    adj = torch.FloatTensor(adj).to(args.device)
    features = torch.tensor(features, dtype=torch.float).to(args.device)
    labels = torch.as_tensor(labels).to(args.device)
    idx_train, idx_val = range(40), range(40, NODES)
    model = build_model().to(args.device)
    if args.init:
        model.load_state_dict(torch.load(args.init))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    losses = []
    for epoch in range(args.epochs):
        model.train()
        optimizer.zero_grad()
        output = model(features, adj)
        loss = F.nll_loss(output[idx_train], labels[idx_train])
        loss.backward()
        optimizer.step()
        losses.append(loss.data.item())
        print(f"Epoch: {epoch + 1:04d} loss_train: {losses[-1]:.4f}")
    model.eval()
    output = model(features, adj)
    acc = (output[idx_val].max(1)[1] == labels[idx_val]).float().mean()
    print(f"validation accuracy {acc:.3f}")
    return [*losses, F.nll_loss(output[idx_val], labels[idx_val]).item()]


if __name__ == "__main__":
    main()
