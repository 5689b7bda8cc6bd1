"""Hydra: a program by `hydra.main`, whose configuration names the device and what is made on it."""

import sys
import tempfile

import hydra
import torch
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig

ConfigStore.instance().store(
    "config",
    {
        "device": "cpu",
        "model": {"_target_": "torch.nn.Linear", "in_features": 4, "out_features": 2, "device": "${device}"},
        "optimizer": {"_target_": "torch.optim.SGD", "_partial_": True, "lr": 0.1},
    },
)


@hydra.main(version_base=None, config_name="config")
def main(config: DictConfig) -> None:
    torch.manual_seed(0)
    model = hydra.utils.instantiate(config.model)
    optimizer = hydra.utils.instantiate(config.optimizer)(model.parameters())
    for _ in range(3):
        loss = model(torch.ones(8, 4).to(config.device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"VALUE {model.weight.device.type == torch.device(config.device).type} {loss.item():.6f}")


with tempfile.TemporaryDirectory() as folder:
    sys.argv = [sys.argv[0], f"device={sys.argv[1]}", f"hydra.run.dir={folder}"]
    main()
