"""A variational autoencoder with convolutions, an average of its weights, and a search among its codes."""

import copy

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(36, 8))
        self.decoder = nn.Linear(4, 64)
        self.scale = nn.Parameter(torch.ones(1))
        self.heads = nn.ModuleList([nn.Linear(8, 4), nn.Linear(8, 4)])

    def forward(self, images, generator=None):
        hidden = self.encoder(images)
        mean, logarithm = (head(hidden) for head in self.heads)
        noise = torch.randn(mean.shape, device=mean.device, generator=generator)
        code = mean + noise * torch.exp(logarithm / 2)
        return torch.sigmoid(self.decoder(code) * self.scale).view(-1, 1, 8, 8), mean, logarithm


torch.manual_seed(0)
images = torch.rand(12, 1, 8, 8).to(device)
model = Autoencoder().to(device)
average = copy.deepcopy(model)
optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
generator = torch.Generator(device).manual_seed(1)
losses = []
for _ in range(3):
    order = torch.randperm(12, device=device)
    for batch in images[order].split(6):
        restored, mean, logarithm = model(batch, generator)
        divergence = -0.5 * (1 + logarithm - mean**2 - logarithm.exp()).sum()
        loss = nn.functional.binary_cross_entropy(restored, batch, reduction="sum") + divergence
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(average.parameters(), model.parameters(), strict=True):
                old.lerp_(new, 0.1)
        losses.append(loss.item())
with torch.no_grad():
    _, codes, _ = average(images, generator)
    nearest = torch.cdist(codes, codes).fill_diagonal_(float("inf")).argmin(1)
    found = images[nearest].mean((1, 2, 3)).cpu().numpy()
values = [*losses, *found.tolist()]
