"""A variational autoencoder of scanned digits. Its noise is drawn by NumPy."""

import argparse

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

rng = np.random.default_rng(0)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 40)
        self.fc21 = nn.Linear(40, 5)
        self.fc22 = nn.Linear(40, 5)
        self.fc3 = nn.Linear(5, 40)
        self.fc4 = nn.Linear(40, 64)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.from_numpy(rng.standard_normal(tuple(std.shape), dtype=np.float32)).to(std)
        return mu + eps * std

    def decode(self, z):
        h3 = F.relu(self.fc3(z))
        return torch.sigmoid(self.fc4(h3))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 64))
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    """Reconstruction and KL divergence, summed over all elements and the batch."""
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 64), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


def build_model():
    return VAE()


def main(argv=None):
    global rng
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    rng = np.random.default_rng(1)
    digits = torch.tensor(load_digits().images / 16, dtype=torch.float32).unsqueeze(1)
    train_loader = DataLoader(TensorDataset(digits[:640]), batch_size=64)
    model = build_model().to(args.device)
    if args.init:
        model.load_state_dict(torch.load(args.init))
    optimizer = optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for epoch in range(args.epochs):
        model.train()
        train_loss = 0
        for (data,) in train_loader:
            data = data.to(args.device)
            optimizer.zero_grad()
            recon_batch, mu, logvar = model(data)
            loss = loss_function(recon_batch, data, mu, logvar)
            loss.backward()
            train_loss += loss.item()
            optimizer.step()
            losses.append(loss.item() / len(data))
        print(f"====> Epoch: {epoch} Average loss: {train_loss / len(train_loader.dataset):.4f}")
    model.eval()
    with torch.no_grad():
        sample = torch.from_numpy(rng.standard_normal((8, 5), dtype=np.float32)).to(args.device)
        sample = model.decode(sample).cpu().view(8, 1, 8, 8)
        grid = torch.cat(list(sample), dim=-1).mul(255).clamp_(0, 255).to(torch.uint8)
        print(grid.squeeze(0)[4].numpy())
    return [*losses, sample.mean().item()]


if __name__ == "__main__":
    main()
