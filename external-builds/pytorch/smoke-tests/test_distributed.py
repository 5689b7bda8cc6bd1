"""torch.distributed in one process: gloo between two ranks on the CPU, NCCL (on ROCm RCCL) on a GPU."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

TIMEOUT = timedelta(seconds=60)


@pytest.fixture
def one_rank(gpu: torch.device, tmp_path: Path) -> Iterator[torch.device]:
    """The GPU, as the only rank of a group."""
    if not dist.is_available() or not dist.is_nccl_available():
        # RCCL is there for Linux alone.
        assert torch.version.hip is None or not Path("/proc").exists(), "a torch for ROCm without RCCL"
        pytest.skip("this torch is built without NCCL")
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("nccl", store=store, rank=0, world_size=1, timeout=TIMEOUT, device_id=gpu)
    yield gpu
    dist.destroy_process_group()


def test_two_ranks_meet_over_gloo(tmp_path: Path) -> None:
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("this torch is built without gloo")
    store = dist.FileStore(str(tmp_path / "store"), 2)

    # Two ranks in two threads: real messages, over the loop-back address, since the name of this machine
    # need not resolve.
    def rank(number: int) -> tuple[list[float], list[float], list[list[float]]]:
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
        options._timeout = TIMEOUT
        group = dist.ProcessGroupGloo(store, number, 2, options)
        total, sent = torch.tensor([1.0, 10.0]) * (number + 1), torch.full((3,), float(number))
        group.allreduce([total]).wait()
        group.broadcast(sent, 1).wait()
        gathered = [torch.zeros(2) for _ in range(2)]
        group.allgather([gathered], [torch.tensor([number, 7.0])]).wait()
        group.barrier().wait()
        return total.tolist(), sent.tolist(), [part.tolist() for part in gathered]

    with ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(rank, range(2)))
    assert ends == [([3.0, 30.0], [1.0] * 3, [[0.0, 7.0], [1.0, 7.0]])] * 2


def test_collectives_on_the_gpu(one_rank: torch.device) -> None:
    x = torch.arange(1 << 16, device=one_rank, dtype=torch.float32)
    total = x.clone()
    dist.all_reduce(total)
    assert torch.equal(total, x)
    gathered = torch.empty_like(x)
    dist.all_gather_into_tensor(gathered, x)
    assert torch.equal(gathered, x)
    scattered = torch.empty_like(x)
    dist.reduce_scatter_tensor(scattered, x, op=dist.ReduceOp.MAX)
    assert torch.equal(scattered, x)
    dist.broadcast(x, src=0)
    dist.barrier()
    assert torch.equal(x.cpu(), torch.arange(1 << 16, dtype=torch.float32))
