"""torch.distributed: the ways in which processes speak to each other, on this machine."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

from .harness import Answer, NotMeasurableError, require, runs

_RANK = """
import importlib, sys
sys.path.append(sys.argv[1])
importlib.import_module(sys.argv[2]).rank_one(sys.argv[3])
"""
_WAIT = 60  # seconds


@runs("host")
def gloo(answer: Answer) -> None:
    """Two processes add their tensors, and send each other some."""
    with answer.check("gloo is built in"):
        require(dist.is_available() and dist.is_gloo_available(), "it is not")
    with tempfile.TemporaryDirectory() as folder:
        if sys.platform == "linux":  # the loop-back device: the name of this machine need not resolve
            os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        place = Path(__file__).parent
        command = [sys.executable, "-I", "-c", _RANK, str(place.parent), f"{place.name}.distributed", folder]
        peer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            with answer.check("two processes meet"):
                _meet("gloo", folder, rank=0, size=2)
            with answer.check("sum over both"):
                x = torch.tensor([1.0, 2.0])
                dist.all_reduce(x)
                require(x.tolist() == [11.0, 22.0], "a wrong sum")
            with answer.check("sending"):
                dist.send(torch.tensor([3.0]), dst=1)
                y = torch.zeros(1)
                dist.recv(y, src=1)
                require(y.item() == 4, "a different value came back")
            with answer.optional("with the GPU"):
                if not torch.cuda.is_available():
                    raise NotMeasurableError("no GPU")
                z = torch.ones(4, device="cuda")
                dist.all_reduce(z)
                require((z == 2).all(), "a wrong sum")
        finally:
            peer.kill()
            peer.communicate()


def rank_one(folder: str) -> None:
    """The second process of two."""
    _meet("gloo", folder, rank=1, size=2)
    dist.all_reduce(torch.tensor([10.0, 20.0]))
    x = torch.zeros(1)
    dist.recv(x, src=0)
    dist.send(x + 1, dst=0)
    if torch.cuda.is_available():
        dist.all_reduce(torch.ones(4, device="cuda"))


@runs("gpu")
def nccl(answer: Answer) -> None:
    """The collectives of NCCL, on ROCm RCCL: over all GPUs of this process where it has several."""
    from torch.cuda import nccl as library

    with answer.check("nccl is built in"):
        require(dist.is_available() and dist.is_nccl_available(), "it is not")
        answer.fact(".".join(map(str, library.version())))
    with tempfile.TemporaryDirectory() as folder:
        with answer.check("a group of one process"):
            _meet("nccl", folder, rank=0, size=1)
            x = torch.arange(8, device="cuda", dtype=torch.float32)
            dist.all_reduce(x)
            gathered = [torch.empty_like(x)]
            dist.all_gather(gathered, x)
            require(
                torch.equal(gathered[0], torch.arange(8, device="cuda", dtype=torch.float32)), "a wrong sum"
            )
            dist.destroy_process_group()
        with answer.optional("between GPUs"):
            count = torch.cuda.device_count()
            if count == 1:
                raise NotMeasurableError("one GPU")
            tensors = [torch.full((64,), float(i + 1), device=f"cuda:{i}") for i in range(count)]
            library.all_reduce(tensors)
            total = count * (count + 1) / 2
            require(all((tensor == total).all() for tensor in tensors), "a wrong sum")


@runs("host")
def built_in(answer: Answer, name: str) -> None:
    """Whether a backend is part of this torch."""
    with answer.check(f"{name} is built in"):
        require(dist.is_available(), "torch.distributed is not built in")
        require(getattr(dist, f"is_{name}_available")(), "it is not")


@runs("host")
def tensorpipe(answer: Answer) -> None:
    """A remote call through TensorPipe, from this process to itself."""
    if importlib.util.find_spec("numpy") is None:
        raise NotMeasurableError(
            "numpy is not installed, without which torch sends no tensor by a remote call"
        )
    with answer.check("tensorpipe is built in"):
        from torch.distributed import rpc

        require(rpc.is_available(), "torch.distributed.rpc is not built in")
    if sys.platform == "linux":
        os.environ["TP_SOCKET_IFNAME"] = "lo"
    with tempfile.TemporaryDirectory() as folder, answer.check("a remote call"):
        address = (Path(folder) / "store").as_uri()
        options = rpc.TensorPipeRpcBackendOptions(init_method=address, rpc_timeout=_WAIT)
        rpc.init_rpc("only", rank=0, world_size=1, rpc_backend_options=options)
        result = rpc.rpc_sync("only", torch.add, args=(torch.ones(2), 3))
        require(result.tolist() == [4.0, 4.0], "a wrong result")
        rpc.shutdown()


def _meet(backend: str, folder: str, *, rank: int, size: int) -> None:
    from datetime import timedelta

    store = dist.FileStore(str(Path(folder) / "store"), size)
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=_WAIT)
    )
