"""Boxes and classes predicted as a set: queries attend to an image, a matching gives the loss."""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def linear_sum_assignment(cost):
    """The cheapest pairs of rows and columns; there are at most as many columns as rows."""
    from scipy.optimize import linear_sum_assignment as solve

    return solve(cost)


def box_cxcywh_to_xyxy(x):
    x_c, y_c, w, h = x.unbind(-1)
    b = [x_c - 0.5 * w, y_c - 0.5 * h, x_c + 0.5 * w, y_c + 0.5 * h]
    return torch.stack(b, dim=-1)


def generalized_box_iou(boxes1, boxes2):
    assert (boxes1[:, 2:] >= boxes1[:, :2]).all()
    area1 = (boxes1[:, 2:] - boxes1[:, :2]).prod(dim=1)
    area2 = (boxes2[:, 2:] - boxes2[:, :2]).prod(dim=1)
    lt = torch.max(boxes1[:, None, :2], boxes2[:, :2])
    rb = torch.min(boxes1[:, None, 2:], boxes2[:, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[..., 0] * wh[..., 1]
    union = area1[:, None] + area2 - inter
    lti = torch.min(boxes1[:, None, :2], boxes2[:, :2])
    rbi = torch.max(boxes1[:, None, 2:], boxes2[:, 2:])
    whi = (rbi - lti).clamp(min=0)
    area = whi[:, :, 0] * whi[:, :, 1]
    return inter / union - (area - union) / area


class Detector(nn.Module):
    def __init__(self, classes=3, hidden=16, heads=2, queries=6):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, hidden, 3, 2, 1)
        )
        self.transformer = nn.Transformer(hidden, heads, 1, 1, 32, dropout=0.0)
        self.linear_class = nn.Linear(hidden, classes + 1)
        self.linear_bbox = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 4))
        self.query_pos = nn.Parameter(torch.rand(queries, hidden))
        self.row_embed = nn.Parameter(torch.rand(10, hidden // 2))
        self.col_embed = nn.Parameter(torch.rand(10, hidden // 2))

    def forward(self, images):
        h = self.backbone(images)
        H, W = h.shape[-2:]
        pos = torch.cat(
            [
                self.col_embed[:W].unsqueeze(0).repeat(H, 1, 1),
                self.row_embed[:H].unsqueeze(1).repeat(1, W, 1),
            ],
            dim=-1,
        )
        pos = pos.flatten(0, 1).unsqueeze(1)
        src = pos + 0.1 * h.flatten(2).permute(2, 0, 1)
        queries = self.query_pos.unsqueeze(1).expand(-1, h.shape[0], -1)
        h = self.transformer(src, queries).transpose(0, 1)
        return {"pred_logits": self.linear_class(h), "pred_boxes": self.linear_bbox(h).sigmoid()}


@torch.no_grad()
def match(outputs, targets):
    bs, num_queries = outputs["pred_logits"].shape[:2]
    prob = outputs["pred_logits"].flatten(0, 1).softmax(-1)
    boxes = outputs["pred_boxes"].flatten(0, 1)
    ids = torch.cat([v["labels"] for v in targets])
    wanted = torch.cat([v["boxes"] for v in targets])
    iou = generalized_box_iou(box_cxcywh_to_xyxy(boxes), box_cxcywh_to_xyxy(wanted))
    C = 5 * torch.cdist(boxes, wanted, p=1) - prob[:, ids] - 2 * iou
    C = C.view(bs, num_queries, -1).cpu()
    sizes = [len(v["boxes"]) for v in targets]
    pairs = [linear_sum_assignment(c[i]) for i, c in enumerate(C.split(sizes, -1))]
    return [(torch.as_tensor(i, dtype=torch.int64), torch.as_tensor(j)) for i, j in pairs]


def criterion(outputs, targets, weight):
    indices = match(outputs, targets)
    batch = torch.cat([torch.full_like(src, i) for i, (src, _) in enumerate(indices)])
    idx = batch, torch.cat([src for src, _ in indices])
    logits = outputs["pred_logits"]
    labels = torch.cat([t["labels"][J.to(logits.device)] for t, (_, J) in zip(targets, indices)])
    classes = torch.full(logits.shape[:2], 3, dtype=torch.int64, device=logits.device)
    classes[idx] = labels
    loss_ce = F.cross_entropy(logits.transpose(1, 2), classes, weight)
    src = outputs["pred_boxes"][idx]
    wanted = torch.cat([t["boxes"][i.to(src.device)] for t, (_, i) in zip(targets, indices)], dim=0)
    loss_bbox = F.l1_loss(src, wanted, reduction="none").sum() / len(wanted)
    giou = generalized_box_iou(box_cxcywh_to_xyxy(src), box_cxcywh_to_xyxy(wanted))
    return loss_ce, loss_bbox, (1 - torch.diag(giou)).sum() / len(wanted)


def build_model():
    return Detector()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    device, rng = args.device, np.random.default_rng(0)
    model = build_model().to(device)
    if args.init:
        model.load_state_dict(torch.load(args.init))
    weight = torch.ones(4, device=device)
    weight[-1] = 0.1
    backbone = [p for n, p in model.named_parameters() if "backbone" in n and p.requires_grad]
    rest = [p for n, p in model.named_parameters() if "backbone" not in n and p.requires_grad]
    optimizer = torch.optim.AdamW([{"params": rest}, {"params": backbone, "lr": 1e-4}], lr=1e-3)
    losses = []
    for _ in range(args.steps):
        images = torch.zeros(3, 1, 16, 16)
        targets = []
        for i in range(3):
            n = int(rng.integers(1, 4))
            center, size = rng.uniform(0.3, 0.7, (n, 2)), rng.uniform(0.2, 0.5, (n, 2))
            labels = torch.from_numpy(rng.integers(0, 3, n))
            boxes = torch.as_tensor(np.hstack([center, size]), dtype=torch.float32)
            for box, label in zip((box_cxcywh_to_xyxy(boxes) * 16).long().tolist(), labels):
                images[i, :, box[1] : box[3], box[0] : box[2]] = label + 1.0
            targets.append({"labels": labels.to(device), "boxes": boxes.to(device)})
        loss_ce, loss_bbox, loss_giou = criterion(model(images.to(device)), targets, weight)
        loss = loss_ce + 5 * loss_bbox + 2 * loss_giou
        optimizer.zero_grad()
        loss.backward()
        total = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        losses += [loss.item(), total.item()]
    return losses


if __name__ == "__main__":
    print(main())
