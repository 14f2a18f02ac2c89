"""Policy gradients with a critic, on a pole that is balanced on a cart."""

import argparse
import math
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical

SavedAction = namedtuple("SavedAction", ["log_prob", "value", "entropy"])


class CartPole:
    """The equations of Barto, Sutton and Anderson (1983), by Euler's method."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.state = self.rng.uniform(-0.05, 0.05, 4)
        return self.state.astype(np.float32)

    def step(self, action):
        x, v, angle, turn = self.state
        force = 10.0 if action == 1 else -10.0
        pushed = (force + 0.05 * turn**2 * math.sin(angle)) / 1.1
        bent = (9.8 * math.sin(angle) - math.cos(angle) * pushed) / (
            0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1)
        )
        moved = pushed - 0.05 * bent * math.cos(angle) / 1.1
        self.state = np.array(
            [x + 0.02 * v, v + 0.02 * moved, angle + 0.02 * turn, turn + 0.02 * bent]
        )
        done = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.2095
        return self.state.astype(np.float32), 1.0, done


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 24)
        self.action_head = nn.Linear(24, 2)
        self.value_head = nn.Linear(24, 1)
        self.saved_actions = []
        self.rewards = []

    def forward(self, x):
        x = F.relu(self.affine1(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


def build_model():
    return Policy()


def select_action(model, state, rng, device):
    state = torch.from_numpy(state).float().to(device)
    probs, state_value = model(state)
    m = Categorical(probs)
    action = (m.probs.detach().cumsum(-1) < rng.random()).sum()  # m.sample(), by NumPy's numbers
    model.saved_actions.append(SavedAction(m.log_prob(action), state_value, m.entropy()))
    return action.item()


def finish_episode(model, optimizer, gamma):
    R = 0
    returns = deque()
    for r in model.rewards[::-1]:
        R = r + gamma * R
        returns.appendleft(R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + np.finfo(np.float32).eps.item())
    policy_losses, value_losses, entropies = [], [], []
    for (log_prob, value, entropy), R in zip(model.saved_actions, returns):
        advantage = R - value.item()
        policy_losses.append(-log_prob * advantage)
        value_losses.append(F.smooth_l1_loss(value, torch.tensor([R]).to(value.device)))
        entropies.append(entropy)
    optimizer.zero_grad()
    loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum()
    loss = loss - 0.01 * torch.stack(entropies).mean()
    loss.backward()
    optimizer.step()
    del model.rewards[:]
    del model.saved_actions[:]
    return loss.item()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    env, rng = CartPole(543), np.random.default_rng(543)
    model = build_model().to(args.device)
    if args.init:
        model.load_state_dict(torch.load(args.init))
    optimizer = optim.Adam(model.parameters(), lr=3e-2)
    running_reward, losses = 10, []
    for i_episode in range(args.episodes):
        state, ep_reward = env.reset(), 0
        for _ in range(60):
            state, reward, done = env.step(select_action(model, state, rng, args.device))
            model.rewards.append(reward)
            ep_reward += reward
            if done:
                break
        running_reward = 0.05 * ep_reward + 0.95 * running_reward
        losses += [finish_episode(model, optimizer, args.gamma), ep_reward]
        print(f"Episode {i_episode}\tLast reward: {ep_reward:.2f}\tAverage: {running_reward:.2f}")
    return losses


if __name__ == "__main__":
    main()
