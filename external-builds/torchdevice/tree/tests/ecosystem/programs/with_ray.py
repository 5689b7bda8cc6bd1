"""Ray Train: a worker with a GPU, whose process has torchdevice enabled by Ray's hook for new processes."""

import os
import sys
import tempfile
from pathlib import Path

import ray
import ray.train
import ray.train.torch
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from torch.utils.data import DataLoader, TensorDataset

device, mode = sys.argv[1:3]


def enable() -> None:
    if mode != "off":
        import torchdevice

        torchdevice.enable("cpu", strict=mode == "strict")


def loop(config: dict) -> None:
    torch.manual_seed(0)
    x = torch.randn(32, 8)
    loader = ray.train.torch.prepare_data_loader(DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), 8))
    model = ray.train.torch.prepare_model(torch.nn.Linear(8, 1))
    assert ray.train.torch.get_device().type == next(model.parameters()).device.type
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(3):
        for inputs, targets in loader:
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    ray.train.report({"loss": loss.item()})
    Path(config["file"]).write_text(f"{loss.item():.6f}")


ray.init(
    num_cpus=2,
    num_gpus=int(device == "cuda"),
    include_dashboard=False,
    log_to_driver=False,
    runtime_env={
        "worker_process_setup_hook": enable,
        "env_vars": {"PYTHONPATH": os.environ.get("PYTHONPATH", "")},
    },
)
with tempfile.TemporaryDirectory() as folder:
    file = f"{folder}/loss"
    trainer = TorchTrainer(
        loop,
        train_loop_config={"file": file},
        scaling_config=ScalingConfig(num_workers=1, use_gpu=device == "cuda"),
        run_config=RunConfig(storage_path=folder),
    )
    trainer.fit()
    print("VALUE", Path(file).read_text())
ray.shutdown()
