"""Programs and processes: torchrun, ranks that train together, tensors that processes share."""

import multiprocessing
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch.distributed as dist

# Each rank has another part of the data: only together do they come to the whole gradient, and to one model.
RANK = """
import os, sys
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
assert (world, os.environ["LOCAL_RANK"]) == (2, str(rank))
model = nn.Linear(1, 1, bias=False)
nn.init.constant_(model.weight, float(rank))  # what rank 0 has counts
parallel = DistributedDataParallel(model)
optimizer = torch.optim.SGD(parallel.parameters(), lr=0.5)
(parallel(torch.tensor([[1.0 + rank]])) * (1 + rank)).sum().backward()
optimizer.step()  # the gradients are 1 and 4, their mean is 2.5
everyone = [None] * world
dist.all_gather_object(everyone, round(model.weight.item(), 6))
open(os.path.join(sys.argv[1], f"rank{rank}"), "w").write(repr(everyone))
dist.destroy_process_group()
"""

# Each rank holds a half of each weight, and steps as one that holds all of them would.
SHARDED_RANK = """
import os, sys
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
model = nn.Linear(2, 2, bias=False)
with torch.no_grad():
    model.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
mesh = dist.init_device_mesh("cpu", (2,))
fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
out = model(torch.tensor([[1.0 + rank, 0.0]]))
out.sum().backward()
optimizer.step()  # the gradients of the first column are 1 and 2, their mean is 1.5
said = out.tolist(), model.weight.to_local().tolist(), model.weight.full_tensor().tolist()
open(os.path.join(sys.argv[1], f"rank{rank}"), "w").write(repr(said))
dist.destroy_process_group()
"""


SHARE = """
import torch

def fill(given):
    given.get().fill_(7)

for strategy in sorted(torch.multiprocessing.get_all_sharing_strategies()):
    torch.multiprocessing.set_sharing_strategy(strategy)
    context = torch.multiprocessing.get_context("fork")
    given = context.SimpleQueue()
    child = context.Process(target=fill, args=(given,))
    child.start()
    shared = torch.zeros(1000)
    given.put(shared)
    child.join()
    assert child.exitcode == 0, strategy
    assert shared.sum().item() == 7000, strategy
"""


def need_gloo() -> None:
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("this torch is built without gloo")


@pytest.fixture
def variables() -> dict[str, str]:
    """Those of this process, for ranks that find each other on this machine, and take one core each."""
    # The name of this machine need not resolve.
    interface = (
        {} if sys.platform == "win32" else {"GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo"}
    )
    return {
        **os.environ,
        **interface,
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "HIP_VISIBLE_DEVICES": "",
    }


def run_two_ranks(folder: Path, text: str, variables: dict[str, str]) -> list[str]:
    """What each of two ranks, started by torchrun, writes into its file."""
    (folder / "rank.py").write_text(text, encoding="utf-8")
    # In the environment that has this torch; where there is only its package, its module is the program.
    program = shutil.which("torchrun", path=str(Path(sys.executable).parent))
    started = [program] if program else [sys.executable, "-m", "torch.distributed.run"]
    options = [
        "--nproc-per-node=2",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=127.0.0.1:0",
        "--local-addr=127.0.0.1",
    ]
    done = subprocess.run(
        [*started, *options, str(folder / "rank.py"), str(folder)],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return [(folder / f"rank{rank}").read_text(encoding="utf-8") for rank in range(2)]


def test_torchrun_starts_ranks_that_train_one_model(tmp_path: Path, variables: dict[str, str]) -> None:
    need_gloo()
    assert run_two_ranks(tmp_path, RANK, variables) == ["[-1.25, -1.25]"] * 2


def test_ranks_that_share_the_weights_train_one_model(tmp_path: Path, variables: dict[str, str]) -> None:
    need_gloo()
    whole = [[0.25, 2.0], [2.25, 4.0]]
    assert run_two_ranks(tmp_path, SHARDED_RANK, variables) == [
        repr(([[1.0, 3.0]], whole[:1], whole)),
        repr(([[2.0, 6.0]], whole[1:], whole)),
    ]


@pytest.mark.parametrize("script", ["torchrun", "torchfrtrace"])
def test_programs_of_the_wheel_lead_somewhere(script: str) -> None:
    found = [entry for entry in metadata.distribution("torch").entry_points if entry.name == script]
    if script != "torchrun" and not found:
        pytest.skip(f"this torch has no {script}")
    if not dist.is_available():
        pytest.skip("this torch is built without distributed")
    assert callable(found[0].load())


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system has no fork")
def test_processes_share_tensors(tmp_path: Path, variables: dict[str, str]) -> None:
    # By file descriptors, and by the names that torch_shm_manager keeps; it outlives us for a while, so that
    # it must not hold a pipe of ours.
    (tmp_path / "share.py").write_text(SHARE, encoding="utf-8")
    with (tmp_path / "log").open("wb") as log:
        done = subprocess.run(
            [sys.executable, "share.py"],
            cwd=tmp_path,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, (tmp_path / "log").read_text(encoding="utf-8")[-2000:]
