"""timm: a small vision transformer with its optimizer, Mixup, label smoothing and a moving average."""

import sys

import torch

# The torchvision of this torch is not on PyPI; timm needs two of another's operators to be declared, no more.
library = torch.library.Library("torchvision", "DEF")
library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import timm  # noqa: E402
from timm.data import Mixup  # noqa: E402
from timm.loss import SoftTargetCrossEntropy  # noqa: E402
from timm.optim import create_optimizer_v2  # noqa: E402
from timm.utils import ModelEmaV3, accuracy  # noqa: E402

device = torch.device(sys.argv[1])
timm.utils.random_seed(0)
model = timm.create_model("vit_tiny_patch16_224", num_classes=4, img_size=32, depth=2).to(device)
average = ModelEmaV3(model, decay=0.9)
optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
mixup = Mixup(mixup_alpha=0.2, num_classes=4, label_smoothing=0.1)
for _ in range(3):
    images = torch.randn(8, 3, 32, 32).to(device, non_blocking=True)
    labels = torch.randint(0, 4, (8,)).to(device, non_blocking=True)
    if device.type == "cpu":  # its targets are made on CUDA unless told otherwise
        mixup.device = "cpu"
    mixed, targets = mixup(images, labels)
    loss = SoftTargetCrossEntropy()(model(mixed), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    average.update(model)
model.eval()
(top,) = accuracy(average.module(images), labels)
print(f"VALUE {loss.item():.6f} {top.item():.2f}")
