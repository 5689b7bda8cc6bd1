"""Other processes and threads: workers come up enabled."""

from __future__ import annotations

import pytest

CHILD = """
import multiprocessing, sys, torch, torchdevice

def use(queue):
    x = torch.ones(2, device="cuda:1").cuda()
    queue.put((torch.cuda.is_available(), torch.cuda.device_count(), x.device.type, float(x.sum())))

class Data(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, index): return torch.full((1,), float(index), device="cuda")

def main(method):
    torchdevice.enable("cpu", count=2)
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=use, args=(queue,))
    child.start()
    assert queue.get(timeout=60) == (True, 2, "cpu", 2.0)
    child.join()
    options = {"num_workers": 1, "multiprocessing_context": method, "pin_memory": True}
    loader = torch.utils.data.DataLoader(Data(), **options)
    assert [float(batch) for batch in loader] == [0, 1, 2, 3]
    torchdevice.disable()
    child = context.Process(target=see_off, args=(queue,))
    child.start()
    assert queue.get(timeout=60) is None
    child.join()

def see_off(queue):
    queue.put(torchdevice.status())

if __name__ == "__main__":
    main(sys.argv[1])
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_come_up_enabled(run, method: str) -> None:
    run(CHILD, "SCRIPT", method)


def test_a_child_that_cannot_find_torchdevice_by_itself(run, tmp_path) -> None:
    """The parent put it on the path; the child's own modules say cuda when they are imported."""
    (tmp_path / "model.py").write_text(
        "import torch\nWEIGHT = torch.ones(2, device='cuda')\ndef use(): print(WEIGHT.sum())\n"
    )
    code = (
        "import sys, os, multiprocessing\n"
        "if __name__ == '__main__':\n"
        "    sys.path.insert(0, os.environ.pop('SOURCE'))\n"
        "    import torchdevice; torchdevice.enable('cpu')\n"
        "    import model\n"
        "    child = multiprocessing.get_context('spawn').Process(target=model.use)\n"
        "    child.start(); child.join(); assert child.exitcode == 0\n"
    )
    from conftest import SOURCE

    assert "tensor(2.)" in run(code, PYTHONPATH="", SOURCE=str(SOURCE))


DISTRIBUTED = """
import torch, torchdevice
import torch.distributed as dist, torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

def work(rank, file):
    torch.cuda.set_device(rank)
    assert dist.is_nccl_available() and dist.is_backend_available("nccl")
    where = torch.device(f"cuda:{rank}")
    dist.init_process_group("nccl", init_method=f"file://{file}", rank=rank, world_size=2, device_id=where)
    assert dist.get_backend() == "gloo"
    x = torch.full((2,), float(rank + 1), device=f"cuda:{rank}")
    dist.all_reduce(x)
    assert x.tolist() == [3, 3]
    dist.barrier(device_ids=[rank])
    group = dist.new_group([0, 1], backend="nccl")
    dist.broadcast(x, 0, group=group)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(2, 1).cuda(rank), device_ids=[rank], output_device=rank)
    model(x.expand(rank + 1, 2)).sum().backward()
    assert model.module.weight.grad.tolist() == [[4.5, 4.5]]
    dist.destroy_process_group()

if __name__ == "__main__":
    import tempfile, os
    torchdevice.enable("cpu", count=2)
    mp.spawn(work, args=(os.path.join(tempfile.mkdtemp(), "rendezvous"),), nprocs=2)
    print("reduced")
"""


def test_distributed_programs_for_nccl(run) -> None:
    assert "reduced" in run(DISTRIBUTED)


def test_a_fork_while_another_thread_enables(run) -> None:
    run(
        "import os, threading, torchdevice\n"
        "from torchdevice import redirect\n"
        "def hold():\n"
        "    with redirect._changing: held.set(); release.wait(30)\n"
        "held, release = threading.Event(), threading.Event()\n"
        "threading.Thread(target=hold).start(); held.wait()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    torchdevice.enable('cpu'); os._exit(7)\n"
        "release.set()\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
    )
