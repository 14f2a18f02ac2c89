"""Tags for sequences of different lengths: a bidirectional GRU on packed sequences."""

import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

VOCAB, TAGS, PAD = 30, 4, 0


class Sentences(Dataset):
    """A word's tag depends on the word and on the one after it."""

    def __init__(self, count, seed=0):
        rng = np.random.default_rng(seed)
        self.data = []
        for length in rng.integers(3, 12, size=count):
            words = rng.integers(1, VOCAB, size=length)
            tags = (words + np.append(words[1:], 0)) % TAGS
            self.data.append((torch.from_numpy(words), torch.from_numpy(tags)))

    def __len__(self):
        return len(self.data)

    def __getitem__(self, idx):
        return self.data[idx]


def collate_fn(batch):
    words, tags = zip(*batch)
    lengths = torch.tensor([len(w) for w in words])
    words = pad_sequence(words, batch_first=True, padding_value=PAD)
    tags = pad_sequence(tags, batch_first=True, padding_value=-100)
    return words, tags, lengths


class Tagger(nn.Module):
    def __init__(self, emb=12, hidden=16):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, emb, padding_idx=PAD)
        self.gru = nn.GRU(emb, hidden, num_layers=1, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * hidden, TAGS)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(
            self.embedding(x), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        output, hidden = self.gru(packed)
        output, _ = pad_packed_sequence(output, batch_first=True)
        return self.fc(output), torch.cat([hidden[-2], hidden[-1]], dim=1)


def build_model():
    return Tagger()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    loader = DataLoader(Sentences(120), batch_size=12, collate_fn=collate_fn, shuffle=False)
    model = build_model().to(args.device)
    if args.init:
        model.load_state_dict(torch.load(args.init))
    criterion = nn.CrossEntropyLoss(ignore_index=-100)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for epoch in range(args.epochs):
        correct, total = 0, 0
        for words, tags, lengths in loader:
            words, tags = words.to(args.device), tags.to(args.device)
            optimizer.zero_grad()
            logits, _ = model(words, lengths)
            loss = criterion(logits.view(-1, TAGS), tags.view(-1))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            optimizer.step()
            losses.append(loss.item())
            mask = tags != -100
            correct += (logits.argmax(-1)[mask] == tags[mask]).sum().item()
            total += mask.sum().item()
        print(f"epoch {epoch + 1} loss {losses[-1]:.4f} accuracy {correct / total:.3f}")
    model.eval()
    with torch.no_grad():
        words, tags, lengths = collate_fn(Sentences(40, seed=1).data)
        logits, final = model(words.to(args.device), lengths)
        losses.append(criterion(logits.permute(0, 2, 1), tags.to(args.device)).item())
        losses.append(final.norm(dim=1).mean().item())
    return losses


if __name__ == "__main__":
    main()
