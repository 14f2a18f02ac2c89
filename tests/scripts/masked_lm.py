"""A masked language model: nn.TransformerEncoder, padding, tied weights, warm-up."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

PAD, MASK, WORDS = 0, 1, 24


class Embeddings(nn.Module):
    def __init__(self, dim, length=16):
        super().__init__()
        self.word_embeddings = nn.Embedding(WORDS, dim, padding_idx=PAD)
        self.position_embeddings = nn.Embedding(length, dim)
        self.token_type_embeddings = nn.Embedding(2, dim)
        self.LayerNorm = nn.LayerNorm(dim, eps=1e-12)
        self.register_buffer("position_ids", torch.arange(length).expand((1, -1)), persistent=False)

    def forward(self, ids, types):
        positions = self.position_ids[:, : ids.size(1)]
        x = self.word_embeddings(ids) + self.token_type_embeddings(types)
        return self.LayerNorm(x + self.position_embeddings(positions))


class MaskedLM(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.embeddings = Embeddings(dim)
        layer = nn.TransformerEncoderLayer(
            dim, 4, 2 * dim, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(
            layer, num_layers=2, norm=nn.LayerNorm(dim), enable_nested_tensor=False
        )
        self.pooler = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, 2))
        self.transform = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim))
        self.decoder = nn.Linear(dim, WORDS, bias=False)
        self.bias = nn.Parameter(torch.zeros(WORDS))
        self.apply(self._init_weights)
        self.decoder.weight = self.embeddings.word_embeddings.weight

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            module.weight.data.normal_(mean=0.0, std=0.1)
            if getattr(module, "padding_idx", None) is not None:
                module.weight.data[module.padding_idx].zero_()
        elif isinstance(module, nn.LayerNorm):
            module.bias.data.zero_()
            module.weight.data.fill_(1.0)

    def forward(self, ids, types, labels=None, order=None):
        attention_mask = ids.ne(PAD)
        h = self.encoder(self.embeddings(ids, types), src_key_padding_mask=~attention_mask)
        logits = self.decoder(self.transform(h)) + self.bias
        pooled = self.pooler(h[:, 0])
        loss = None
        if labels is not None:
            loss_fct = nn.CrossEntropyLoss()  # -100 is ignored
            loss = loss_fct(logits.view(-1, WORDS), labels.view(-1))
            loss = loss + loss_fct(pooled.view(-1, 2), order.view(-1))
        return loss, logits


def mask_tokens(ids, rng):
    labels = ids.clone()
    chosen = torch.from_numpy(rng.random(ids.shape) < 0.3) & (ids != PAD)
    chosen[:, 1] = True
    labels[~chosen] = -100
    replaced = torch.from_numpy(rng.random(ids.shape) < 0.8) & chosen
    ids = ids.masked_fill(replaced, MASK)
    other = chosen & ~replaced & torch.from_numpy(rng.random(ids.shape) < 0.5)
    words = torch.from_numpy(rng.integers(2, WORDS, ids.shape))
    ids[other] = words[other]
    return ids, labels


def build_model():
    return MaskedLM()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    device, rng = args.device, np.random.default_rng(0)
    model = build_model().to(device)
    if args.init:
        model.load_state_dict(torch.load(args.init), strict=True)
    no_decay = ["bias", "norm", "LayerNorm.weight"]
    named = list(model.named_parameters())
    groups = [
        {
            "params": [p for n, p in named if not any(nd in n for nd in no_decay)],
            "weight_decay": 0.01,
        },
        {"params": [p for n, p in named if any(nd in n for nd in no_decay)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=3e-3, eps=1e-6)
    scheduler = LambdaLR(
        optimizer, lambda s: s / 4 if s < 4 else max(0.0, (args.steps - s) / (args.steps - 4))
    )
    losses = []
    for _ in range(args.steps):
        lengths = rng.integers(5, 13, 6)
        ids = torch.full((6, 12), PAD, dtype=torch.long)
        for i, n in enumerate(lengths):
            ids[i, :n] = torch.from_numpy((2 + rng.integers(0, 5) + 2 * np.arange(n)) % WORDS)
        types = (torch.arange(12) >= 6).long().expand_as(ids)
        masked, labels = mask_tokens(ids, rng)
        order = torch.from_numpy(rng.integers(0, 2, 6))
        batch = (t.to(device) for t in (masked, types, labels, order))
        loss, _ = model(*batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        model.zero_grad()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        _, logits = model(ids.to(device), types.to(device))
        probs, _ = logits[ids.to(device) != PAD].softmax(-1).topk(3)
    return [*losses, probs.sum(-1).mean().item()]


if __name__ == "__main__":
    print(main())
