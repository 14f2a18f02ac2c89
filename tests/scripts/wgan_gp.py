"""A Wasserstein GAN with gradient penalty: the critic's gradient is differentiated again."""

import argparse

import numpy as np
import torch
from torch import autograd, nn
from torch.nn.utils import spectral_norm


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.start = nn.Linear(8, 16 * 4 * 4)
        self.net = nn.Sequential(
            nn.ConvTranspose2d(16, 8, 4, 2, 1),
            nn.InstanceNorm2d(8, affine=True),
            nn.ReLU(True),
            nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False),
            nn.Conv2d(8, 1, 3, 1, 1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.net(self.start(z).view(-1, 16, 4, 4))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            spectral_norm(nn.Conv2d(1, 8, 4, 2, 1)),
            nn.LeakyReLU(0.2),
            nn.Conv2d(8, 16, 4, 2, 1),
            nn.GroupNorm(4, 16),
            nn.SiLU(),
            nn.AvgPool2d(2),
            nn.Flatten(1),
            nn.LayerNorm(64),
            nn.Softplus(),
            nn.Linear(64, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)


def build_model():
    return nn.ModuleDict({"generator": Generator(), "critic": Critic()})


def gradient_penalty(critic, real, fake, share):
    between = (share * real + (1 - share) * fake).requires_grad_()
    score = critic(between)
    (slope,) = autograd.grad(score, between, torch.ones_like(score), create_graph=True)
    return ((slope.flatten(start_dim=1).norm(2, dim=1) - 1) ** 2).mean()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    device = torch.device(args.device)
    rng = np.random.default_rng(0)

    def normal(*shape):
        return torch.from_numpy(rng.standard_normal(shape).astype(np.float32)).to(device)

    model = build_model().to(device)
    if args.init:
        model.load_state_dict(torch.load(args.init, map_location=device))
    generator, critic = model["generator"], model["critic"]
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.9), eps=1e-4)
    of_critic = torch.optim.RMSprop(critic.parameters(), lr=1e-3, centered=True, eps=1e-4)
    losses = []
    for _ in range(args.steps):
        for p in critic.parameters():
            p.requires_grad_(True)
        for _ in range(2):
            critic.zero_grad()
            real = torch.tanh(normal(8, 1, 16, 16))
            with torch.no_grad():
                fake = generator(normal(8, 8))
            share = torch.from_numpy(rng.random((8, 1, 1, 1), dtype=np.float32)).to(device)
            penalty = gradient_penalty(critic, real, fake, share.expand_as(real))
            loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
            loss.backward()
            of_critic.step()
            losses.append(loss.item())
        for p in critic.parameters():
            p.requires_grad_(False)
        of_generator.zero_grad()
        loss = -critic(generator(normal(8, 8))).mean()
        loss.backward()
        of_generator.step()
        losses.append(loss.data.item())
    print(f"critic {losses[-2]:.4f} generator {losses[-1]:.4f}")
    return losses


if __name__ == "__main__":
    main()
