"""Several processes' programs, in one: wrappers that move what they are given, and tensors in shards."""

from __future__ import annotations

import pytest

PROGRAM = """
import sys, tempfile, torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

device = torch.device("cuda", torch.cuda.current_device())
torch.manual_seed(0)
with tempfile.NamedTemporaryFile() as file:
    dist.init_process_group("nccl", init_method=f"file://{file.name}", rank=0, world_size=1, device_id=device)
    data, plain = torch.randn(6, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    expected = plain(data)
    expected.sum().backward()
    def copied():
        made = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
        made.load_state_dict(plain.state_dict())
        return made.cuda()
    def check(result, gradient):
        gradient = gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient
        assert result.device == gradient.device == device, (result.device, gradient.device)
        torch.testing.assert_close(result.cpu(), expected)
        torch.testing.assert_close(gradient.cpu(), plain[0].weight.grad)
    module = copied()
    result = nn.parallel.DistributedDataParallel(module, device_ids=[0])(data)  # from the CPU, as on a GPU
    result.sum().backward()
    check(result, module[0].weight.grad)
    ZeroRedundancyOptimizer(module.parameters(), torch.optim.Adam).step()
    module = copied()
    for layer in (module[0], module[2], module): fully_shard(layer)
    result = module(data.cuda())
    result.sum().backward()
    check(result, module[0].weight.grad)
    torch.optim.AdamW(module.parameters()).step()
    assert module[0].weight.device == module[0].weight.to_local().device == device
    mesh = init_device_mesh("cuda", (1,))
    assert mesh.device_type == device.type
    x = distribute_tensor(torch.ones(4, 4, device="cuda"), mesh, [Shard(0)])
    for y in (x, x @ x, x + x, x.to_local(), x.redistribute(mesh, [Replicate()]), x.full_tensor()):
        assert y.device == device, y.device
    module = copied()
    parallelize_module(module, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    result = module(data.cuda())
    result.sum().backward()
    check(result, module[0].weight.grad)
    try: x.to_local() + torch.ones(4, 4)
    except RuntimeError as error: found = str(error)
    else: found = ""
    assert ("Expected all tensors to be on the same device" in found) == (sys.argv[1] == "strict"), found
    dist.destroy_process_group()
print("ok")
"""


@pytest.mark.parametrize("mode", ["redirect", "strict"])
def test_what_moves_and_what_is_in_shards(run, mode: str) -> None:
    strictly = {"strict": ("--strict",)}.get(mode, ())
    assert run(PROGRAM, "-m", "torchdevice", *strictly, "SCRIPT", mode).endswith("ok\n")
