"""Proximal policy optimization with generalized advantages, over a pole that wants to fall."""

import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical, Normal
from torch.distributions.kl import kl_divergence


class Poles:
    """Several poles at once, pushed left or right, and harder or softer."""

    def __init__(self, number, rng):
        self.rng = rng
        self.state = rng.uniform(-0.1, 0.1, (number, 2))

    def step(self, push):
        angle, speed = self.state.T
        speed = speed + 0.3 * np.sin(angle) + 0.1 * push
        self.state = np.stack([angle + 0.2 * speed, speed], 1)
        done = np.abs(self.state[:, 0]) > 0.6
        self.state[done] = self.rng.uniform(-0.1, 0.1, (int(done.sum()), 2))
        return self.state.astype(np.float32), 1.0 - np.abs(angle), done


def layer_init(layer, std=2**0.5, bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(
            layer_init(nn.Linear(2, 16)), nn.Tanh(), layer_init(nn.Linear(16, 1), std=1.0)
        )
        self.body = nn.Sequential(layer_init(nn.Linear(2, 16)), nn.Tanh())
        self.actor = layer_init(nn.Linear(16, 2), std=0.01)
        self.mean = layer_init(nn.Linear(16, 1), std=0.01)
        self.logstd = nn.Parameter(torch.zeros(1, 1))

    def get_value(self, x):
        return self.critic(x)

    def policies(self, x):
        h = self.body(x)
        mean = self.mean(h)
        return Categorical(logits=self.actor(h)), Normal(
            mean, torch.exp(self.logstd.expand_as(mean))
        )

    def get_action_and_value(self, x, side, force):
        which, strength = self.policies(x)
        logprob = which.log_prob(side) + strength.log_prob(force).sum(1)
        return logprob, which.entropy() + strength.entropy().sum(1), self.critic(x)


def build_model():
    return Agent()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=2)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    device, rng = torch.device(args.device), np.random.default_rng(0)
    agent = build_model().to(device)
    if args.init:
        agent.load_state_dict(torch.load(args.init))
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-3, eps=1e-5)
    steps, envs, gamma, lam, clip = 12, 4, 0.99, 0.95, 0.2
    poles = Poles(envs, rng)
    next_obs, next_done = torch.Tensor(poles.state).to(device), torch.zeros(envs).to(device)
    losses = []
    for update in range(args.updates):
        optimizer.param_groups[0]["lr"] = (1.0 - update / args.updates) * 2.5e-3
        obs = torch.zeros((steps, envs, 2)).to(device)
        sides = torch.zeros((steps, envs), dtype=torch.long).to(device)
        forces = torch.zeros((steps, envs, 1)).to(device)
        logprobs, rewards = (torch.zeros((steps, envs)).to(device) for _ in range(2))
        dones, values = torch.zeros_like(rewards), torch.zeros_like(rewards)
        for step in range(steps):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                which, strength = agent.policies(next_obs)
                draw = torch.from_numpy(rng.random((envs, 1), dtype=np.float32)).to(device)
                side = (draw > which.probs.cumsum(-1)).sum(-1).clamp(max=1)
                noise = torch.from_numpy(rng.standard_normal((envs, 1), dtype=np.float32))
                force = strength.mean + strength.stddev * noise.to(device)
                logprob, _, value = agent.get_action_and_value(next_obs, side, force)
                values[step] = value.flatten()
            sides[step], forces[step], logprobs[step] = side, force, logprob
            push = (2.0 * side - 1) * (1 + 0.2 * force.squeeze(1))
            seen, reward, done = poles.step(push.cpu().numpy())
            rewards[step] = torch.tensor(reward).to(device).view(-1)
            next_obs, next_done = torch.Tensor(seen).to(device), torch.Tensor(done).to(device)
        with torch.no_grad():
            next_value = agent.get_value(next_obs).reshape(1, -1)
            advantages = torch.zeros_like(rewards).to(device)
            lastgaelam = 0
            for t in reversed(range(steps)):
                nonterminal = 1.0 - (next_done if t == steps - 1 else dones[t + 1])
                nextvalues = next_value if t == steps - 1 else values[t + 1]
                delta = rewards[t] + gamma * nextvalues * nonterminal - values[t]
                advantages[t] = lastgaelam = delta + gamma * lam * nonterminal * lastgaelam
            returns = advantages + values
            before = agent.policies(obs.reshape(-1, 2))
        b_obs, b_forces = obs.reshape(-1, 2), forces.reshape(-1, 1)
        b = [t.reshape(-1) for t in (sides, logprobs, advantages, returns, values)]
        for inds in np.array_split(rng.permutation(steps * envs), 3):
            b_sides, b_logprobs, mb_advantages, b_returns, b_values = (t[inds] for t in b)
            newlogprob, entropy, newvalue = agent.get_action_and_value(
                b_obs[inds], b_sides, b_forces[inds]
            )
            logratio = newlogprob - b_logprobs
            ratio = logratio.exp()
            with torch.no_grad():
                approx_kl = ((ratio - 1) - logratio).mean()
            mb_advantages = (mb_advantages - mb_advantages.mean()) / (mb_advantages.std() + 1e-8)
            pg_loss1 = -mb_advantages * ratio
            pg_loss2 = -mb_advantages * torch.clamp(ratio, 1 - clip, 1 + clip)
            pg_loss = torch.max(pg_loss1, pg_loss2).mean()
            newvalue = newvalue.view(-1)
            v_clipped = b_values + torch.clamp(newvalue - b_values, -clip, clip)
            v_loss = torch.max((newvalue - b_returns) ** 2, (v_clipped - b_returns) ** 2)
            loss = pg_loss - 0.01 * entropy.mean() + 0.5 * 0.5 * v_loss.mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
            losses += [loss.item(), approx_kl.item()]
        now = agent.policies(b_obs)
        losses += [kl_divergence(old, new).mean().item() for old, new in zip(before, now)]
    return losses


if __name__ == "__main__":
    print(main())
