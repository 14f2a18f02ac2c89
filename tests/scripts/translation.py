"""Translation with nn.Transformer: masks for the future and for padding, greedy decoding."""

import argparse
import math

import numpy as np
import torch
import torch.nn as nn
from torch import Tensor
from torch.nn import Transformer
from torch.nn.utils.rnn import pad_sequence

UNK_IDX, PAD_IDX, BOS_IDX, EOS_IDX = 0, 1, 2, 3
VOCAB, EMB = 20, 16


class PositionalEncoding(nn.Module):
    def __init__(self, emb_size: int, maxlen: int = 50):
        super().__init__()
        den = torch.exp(-torch.arange(0, emb_size, 2) * math.log(10000) / emb_size)
        pos = torch.arange(0, maxlen).reshape(maxlen, 1)
        pos_embedding = torch.zeros((maxlen, emb_size))
        pos_embedding[:, 0::2] = torch.sin(pos * den)
        pos_embedding[:, 1::2] = torch.cos(pos * den)
        self.register_buffer("pos_embedding", pos_embedding.unsqueeze(-2))

    def forward(self, token_embedding: Tensor):
        return token_embedding + self.pos_embedding[: token_embedding.size(0), :]


class TokenEmbedding(nn.Module):
    def __init__(self, vocab_size: int, emb_size):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, emb_size)
        self.emb_size = emb_size

    def forward(self, tokens: Tensor):
        return self.embedding(tokens.long()) * math.sqrt(self.emb_size)


class Seq2SeqTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer = Transformer(
            d_model=EMB,
            nhead=2,
            num_encoder_layers=1,
            num_decoder_layers=1,
            dim_feedforward=32,
            dropout=0.0,
        )
        self.generator = nn.Linear(EMB, VOCAB)
        self.src_tok_emb = TokenEmbedding(VOCAB, EMB)
        self.tgt_tok_emb = TokenEmbedding(VOCAB, EMB)
        self.positional_encoding = PositionalEncoding(EMB)

    def forward(
        self,
        src,
        trg,
        src_mask,
        tgt_mask,
        src_padding_mask,
        tgt_padding_mask,
        memory_key_padding_mask,
    ):
        src_emb = self.positional_encoding(self.src_tok_emb(src))
        tgt_emb = self.positional_encoding(self.tgt_tok_emb(trg))
        outs = self.transformer(
            src_emb,
            tgt_emb,
            src_mask,
            tgt_mask,
            None,
            src_padding_mask,
            tgt_padding_mask,
            memory_key_padding_mask,
        )
        return self.generator(outs)

    def encode(self, src, src_mask):
        return self.transformer.encoder(self.positional_encoding(self.src_tok_emb(src)), src_mask)

    def decode(self, tgt, memory, tgt_mask):
        tgt = self.positional_encoding(self.tgt_tok_emb(tgt))
        return self.transformer.decoder(tgt, memory, tgt_mask)


def build_model():
    model = Seq2SeqTransformer()
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.xavier_uniform_(p)
    return model


def generate_square_subsequent_mask(sz, device):
    mask = (torch.triu(torch.ones((sz, sz), device=device)) == 1).transpose(0, 1)
    return mask.float().masked_fill(mask == 0, float("-inf")).masked_fill(mask == 1, 0.0)


def create_mask(src, tgt, device):
    tgt_mask = generate_square_subsequent_mask(tgt.shape[0], device)
    tgt_mask = torch.isinf(tgt_mask)
    src_mask = torch.zeros((src.shape[0], src.shape[0]), device=device).type(torch.bool)
    return (src_mask, tgt_mask, (src == PAD_IDX).transpose(0, 1), (tgt == PAD_IDX).transpose(0, 1))


def sentences(rng, count):
    """The translation of a sentence is the sentence read backwards, each word the next one."""
    src_batch, tgt_batch = [], []
    for length in rng.integers(3, 8, count):
        words = rng.integers(4, VOCAB - 1, length)
        for batch, s in (src_batch, words), (tgt_batch, words[::-1] + 1):
            batch.append(
                torch.cat(
                    (torch.tensor([BOS_IDX]), torch.tensor(s.copy()), torch.tensor([EOS_IDX]))
                )
            )
    return (
        pad_sequence(src_batch, padding_value=PAD_IDX),
        pad_sequence(tgt_batch, padding_value=PAD_IDX),
    )


@torch.no_grad()
def greedy_decode(model, src, max_len, device):
    src_mask = torch.zeros(src.size(0), src.size(0), device=device).type(torch.bool)
    memory = model.encode(src, src_mask)
    ys = torch.ones(1, 1).fill_(BOS_IDX).type(torch.long).to(device)
    for _ in range(max_len - 1):
        tgt_mask = generate_square_subsequent_mask(ys.size(0), device).type(torch.bool)
        out = model.decode(ys, memory, tgt_mask).transpose(0, 1)
        _, next_word = torch.max(model.generator(out[:, -1]), dim=1)
        next_word = next_word.item()
        ys = torch.cat([ys, torch.ones(1, 1).type_as(src.data).fill_(next_word)], dim=0)
        if next_word == EOS_IDX:
            break
    return ys.flatten().tolist()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    device, rng = args.device, np.random.default_rng(0)
    model = build_model().to(device)
    if args.init:
        model.load_state_dict(torch.load(args.init))
    loss_fn = torch.nn.CrossEntropyLoss(ignore_index=PAD_IDX, label_smoothing=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98), eps=1e-9)
    losses = []
    model.train()
    for step in range(args.steps):
        src, tgt = (t.to(device) for t in sentences(rng, 8))
        tgt_input = tgt[:-1, :]
        src_mask, tgt_mask, src_pad, tgt_pad = create_mask(src, tgt_input, device)
        logits = model(src, tgt_input, src_mask, tgt_mask, src_pad, tgt_pad, src_pad)
        optimizer.zero_grad()
        tgt_out = tgt[1:, :]
        loss = loss_fn(logits.reshape(-1, logits.shape[-1]), tgt_out.reshape(-1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        print(f"step {step} loss {losses[-1]:.4f}")
    model.eval()
    src, _ = sentences(rng, 1)
    return losses + greedy_decode(model, src.to(device), 8, device)


if __name__ == "__main__":
    main()
