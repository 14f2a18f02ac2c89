"""A spiking network: leaky neurons whose steps have surrogate gradients."""

import argparse
import math

import numpy as np
import torch
import torch.nn as nn


class SurrogateSpike(torch.autograd.Function):
    """A step forward, the derivative of a fast sigmoid backward."""

    scale = 10.0

    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        out = torch.zeros_like(input)
        out[input > 0] = 1.0
        return out

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        grad_input = grad_output.clone()
        return grad_input / (SurrogateSpike.scale * torch.abs(input) + 1.0) ** 2


class ATan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        if x.requires_grad:
            ctx.save_for_backward(x)
            ctx.alpha = alpha
        return (x >= 0).to(x)

    @staticmethod
    def backward(ctx, grad_output):
        grad_x = None
        if ctx.needs_input_grad[0]:
            x = ctx.saved_tensors[0]
            grad_x = ctx.alpha / 2 / (1 + (math.pi / 2 * ctx.alpha * x).pow_(2)) * grad_output
        return grad_x, None


spike_fn = SurrogateSpike.apply


class LIF(nn.Module):
    def __init__(self, size, tau=2.0):
        super().__init__()
        self.w = nn.Parameter(torch.as_tensor(-math.log(tau - 1.0)).repeat(size))
        self.v = 0.0

    def reset(self):
        self.v = 0.0

    def forward(self, x):
        if isinstance(self.v, float):
            self.v = torch.zeros_like(x.data)
        self.v = self.v + (x - self.v) * self.w.sigmoid()
        spike = ATan.apply(self.v - 1.0, 2.0)
        spike_d = spike.detach()
        self.v = (1.0 - spike_d) * self.v + spike_d * 0.0
        return spike


class SNN(nn.Module):
    def __init__(self, inputs=12, hidden=20, outputs=3):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(inputs, hidden))
        self.v1 = nn.Parameter(torch.empty(hidden, hidden))
        self.w2 = nn.Parameter(torch.empty(hidden, outputs))
        nn.init.normal_(self.w1, mean=0.0, std=2.0 / np.sqrt(inputs))
        nn.init.normal_(self.v1, mean=0.0, std=1.0 / np.sqrt(hidden))
        nn.init.normal_(self.w2, mean=0.0, std=1.0 / np.sqrt(hidden))
        self.fc = nn.Linear(hidden, hidden)
        self.lif = LIF(hidden)

    def forward(self, inputs, alpha=0.8, beta=0.9):
        """Membrane of the readout and both layers' spikes, over time."""
        batch, steps, _ = inputs.shape
        self.lif.reset()
        syn = torch.zeros((batch, self.w1.shape[1]), device=inputs.device)
        mem, out = torch.zeros_like(syn), torch.zeros_like(syn)
        flt = torch.zeros((batch, self.w2.shape[1]), device=inputs.device)
        readout, spk_rec, deep = [flt], [], []
        h1_from_input = torch.einsum("abc,cd->abd", (inputs, self.w1))
        for t in range(steps):
            h1 = h1_from_input[:, t] + torch.einsum("ab,bc->ac", (out, self.v1))
            out = spike_fn(mem - 1.0)
            rst = out.detach()
            mem, syn = (beta * mem + syn) * (1.0 - rst), alpha * syn + h1
            deep_spk = self.lif(self.fc(out))
            flt = beta * flt + torch.mm(out + deep_spk, self.w2)
            readout.append(flt)
            spk_rec.append(out)
            deep.append(deep_spk)
        return torch.stack(readout, dim=1), torch.stack(spk_rec, dim=1), torch.stack(deep, dim=1)


def build_model():
    return SNN()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 24)
    rates = np.stack([np.roll(np.linspace(0.05, 0.6, 12), 4 * k) for k in labels])
    events = rng.random((24, 15, 12)) < rates[:, None]
    i = torch.LongTensor(np.stack(events.nonzero()))
    x = torch.sparse_coo_tensor(i, torch.ones(i.shape[1]), events.shape).to_dense()
    x, y = x.to(args.device), torch.tensor(labels, dtype=torch.long, device=args.device)
    model = build_model().to(args.device)
    if args.init:
        model.load_state_dict(torch.load(args.init))
    optimizer = torch.optim.Adamax(model.parameters(), lr=2e-3)
    log_softmax_fn, loss_fn = nn.LogSoftmax(dim=1), nn.NLLLoss()
    losses = []
    for _ in range(args.epochs):
        output, spikes, deep = model(x)
        m, _ = torch.max(output, 1)
        reg_loss = 2e-4 * torch.sum(spikes) / len(x) + 1e-3 * spikes.sum(1).mean(0).pow(2).mean()
        loss = loss_fn(log_softmax_fn(m), y) + reg_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        accuracy = np.mean((y == torch.max(m, 1)[1]).detach().cpu().numpy())
        losses += [loss.item(), spikes.sum().item(), deep.mean().item(), float(accuracy)]
    return losses


if __name__ == "__main__":
    print(main())
