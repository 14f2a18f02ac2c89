"""Vector quantization with straight-through gradients and codes that follow moving averages."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits


class VectorQuantizerEMA(nn.Module):
    def __init__(self, num_embeddings=16, dim=4, commitment=0.25, decay=0.9, epsilon=1e-5):
        super().__init__()
        self.num_embeddings, self.commitment = num_embeddings, commitment
        self.decay, self.epsilon = decay, epsilon
        embed = torch.randn(num_embeddings, dim)
        self.register_buffer("embedding", embed)
        self.register_buffer("cluster_size", torch.zeros(num_embeddings))
        self.register_buffer("embed_avg", embed.clone())

    def forward(self, inputs):
        inputs = inputs.permute(0, 2, 3, 1).contiguous()
        shape = inputs.shape
        flat = inputs.view(-1, shape[-1])
        distances = (
            torch.sum(flat**2, dim=1, keepdim=True)
            + torch.sum(self.embedding**2, dim=1)
            - 2 * torch.matmul(flat, self.embedding.t())
        )
        indices = torch.argmin(distances, dim=1).unsqueeze(1)
        encodings = torch.zeros(indices.shape[0], self.num_embeddings, device=inputs.device)
        encodings.scatter_(1, indices, 1)
        quantized = torch.matmul(encodings, self.embedding).view(shape)
        if self.training:
            self.cluster_size.data.mul_(self.decay).add_(encodings.sum(0), alpha=1 - self.decay)
            embed_sum = encodings.t() @ flat.detach()
            self.embed_avg.data.mul_(self.decay).add_(embed_sum, alpha=1 - self.decay)
            n = self.cluster_size.sum()
            cluster_size = (
                (self.cluster_size + self.epsilon) / (n + self.num_embeddings * self.epsilon) * n
            )
            self.embedding.data.copy_(self.embed_avg / cluster_size.unsqueeze(1))
        e_latent_loss = F.mse_loss(quantized.detach(), inputs)
        quantized = inputs + (quantized - inputs).detach()
        avg_probs = torch.mean(encodings, dim=0)
        perplexity = torch.exp(-torch.sum(avg_probs * torch.log(avg_probs + 1e-10)))
        return self.commitment * e_latent_loss, quantized.permute(0, 3, 1, 2), perplexity


class VectorQuantizer(nn.Module):
    """The codes are parameters here, and learn from a loss of their own."""

    def __init__(self, num_embeddings=16, dim=4, beta=0.25):
        super().__init__()
        self.beta = beta
        self.embedding = nn.Embedding(num_embeddings, dim)
        self.embedding.weight.data.uniform_(-1.0 / num_embeddings, 1.0 / num_embeddings)

    def forward(self, z):
        z = z.permute(0, 2, 3, 1)
        d = torch.cdist(z.reshape(-1, z.size(-1)), self.embedding.weight)
        z_q = self.embedding(d.argmin(1)).view(z.shape)
        loss = self.beta * ((z_q.detach() - z) ** 2).mean() + ((z_q - z.detach()) ** 2).mean()
        z_q = z + (z_q - z).detach()
        return loss, z_q.permute(0, 3, 1, 2).contiguous(), d.min(1)[0].mean()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 4, 2, 1), nn.ReLU(inplace=True), nn.Conv2d(8, 4, 3, 1, 1)
        )
        self.vq = VectorQuantizerEMA()
        self.between = nn.Conv2d(4, 4, 1)
        self.vq2 = VectorQuantizer()
        self.decoder = nn.Sequential(nn.ReLU(), nn.ConvTranspose2d(4, 1, 4, 2, 1))

    def forward(self, x):
        loss, quantized, perplexity = self.vq(self.encoder(x))
        loss2, quantized, distance = self.vq2(self.between(quantized))
        return loss + loss2, self.decoder(quantized), perplexity, distance


def build_model():
    return Model()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    device = torch.device(args.device)
    digits = torch.tensor(load_digits().images / 16 - 0.5, dtype=torch.float32)[:, None]
    variance = digits.var().to(device)
    model = build_model().to(device)
    if args.init:
        model.load_state_dict(torch.load(args.init, map_location=device))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, amsgrad=False)
    losses = []
    for step in range(args.steps):
        data = digits[step * 16 : (step + 1) * 16].to(device)
        optimizer.zero_grad()
        vq_loss, data_recon, perplexity, distance = model(data)
        loss = F.mse_loss(data_recon, data) / variance + vq_loss
        loss.backward()
        optimizer.step()
        losses += [loss.item(), perplexity.item(), distance.item()]
    return losses + model.vq.cluster_size.tolist()


if __name__ == "__main__":
    print(main())
