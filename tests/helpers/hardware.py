"""Machines with GPUs, as the kernel's files and the makers' programs show them; written by us."""

from __future__ import annotations

import json
import shlex
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cairn.testing.gpus.attest import Attestation, attest

GIB = 1 << 30
MI300X, RX7900, RAPHAEL = 90402, 110000, 100306  # what the kernel calls gfx942, gfx1100, gfx1036
INSTINCT = "AMD Instinct MI300X"


def kernel_nodes(folder: Path, *versions: int | None) -> Path:
    """What the kernel says of a machine with a CPU and these GPUs; nothing of one that it hides (None)."""
    for number, version in enumerate((0, *versions)):
        node = folder / "nodes" / str(number)
        node.mkdir(parents=True)
        if version is not None:
            text = f"simd_count 4\ngfx_target_version {version}\nvendor_id 1\n"
            (node / "properties").write_text(text, encoding="ascii")
    return folder / "nodes"


class Machine:
    """A folder that stands for `/sys`, and one for the PATH."""

    def __init__(self, folder: Path) -> None:
        self.sysfs, self.programs = folder / "sys", folder / "bin"
        self.nodes = self.sysfs / "class/kfd/kfd/topology/nodes"
        self.nodes.mkdir(parents=True)
        self.programs.mkdir()
        self.node(0, 0)
        self._folder = folder

    def file(self, path: str, text: str) -> None:
        """A file of the kernel's."""
        place = self.sysfs / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")

    def node(self, number: int, version: int, *, place: int = 0, gib: int = 0, unique: int = 0) -> None:
        """A processor; `place` is bus, device and function as 8, 5 and 3 bits."""
        folder = f"class/kfd/kfd/topology/nodes/{number}"
        lines = {"gfx_target_version": version, "location_id": place, "domain": 0, "unique_id": unique}
        self.file(f"{folder}/properties", "".join(f"{name} {value}\n" for name, value in lines.items()))
        self.file(f"{folder}/mem_banks/0/properties", f"heap_type 1\nsize_in_bytes {gib * GIB}\nflags 0\n")

    def program(self, name: str, output: str | bytes, *, then: str = "") -> Path:
        """A program that prints this."""
        data = output.encode() if isinstance(output, str) else output
        said = self.programs / f"{name}.txt"
        said.write_bytes(data)
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n/bin/cat {shlex.quote(str(said))}\n{then}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def rocminfo(self, *agents: tuple[int, str]) -> None:
        """It lists these nodes, after a CPU."""
        self.program("rocminfo", rocminfo(*agents))

    def amd_smi(self, *listed: Mapping[str, Any]) -> None:
        """It lists these GPUs."""
        self.program("amd-smi", json.dumps(list(listed)))

    def torch(self, *seen: tuple[str, str, int], hip: str | None = "7.1", cuda: str | None = None) -> Path:
        """An interpreter whose torch sees GPUs of these architectures, names and GiB."""
        where = self._folder / "env"
        venv.create(where, with_pip=False, symlinks=True)
        package = next(where.glob("lib/python*/site-packages")) / "torch"
        package.mkdir()
        (package / "__init__.py").write_text(torch_module(*seen, hip=hip, cuda=cuda), encoding="utf-8")
        return where / "bin" / "python"

    def attest(self, python: Path | None = None, **variables: str) -> Attestation:
        """What is found out about it."""
        return attest(
            {"PATH": str(self.programs), **variables},
            python=python,
            log=self._folder / "log",
            nodes=self.nodes,
            sysfs=self.sysfs,
        )


_TORCH = """\
import types
print("a banner that some builds print")
version = types.SimpleNamespace(hip={hip!r}, cuda={cuda!r})
_SEEN = {seen!r}
def _properties(index):
    target, name, gib = _SEEN[index]
    return types.SimpleNamespace(gcnArchName=target, name=name, total_memory=gib << 30)
cuda = types.SimpleNamespace(
    is_available=lambda: bool(_SEEN), device_count=lambda: len(_SEEN), get_device_properties=_properties
)
"""


def torch_module(*seen: tuple[str, str, int], hip: str | None = "7.1", cuda: str | None = None) -> str:
    """A torch that sees GPUs of these architectures, names and GiB."""
    return _TORCH.format(hip=hip, cuda=cuda, seen=seen)


def smi(target: str, bdf: str, **more: Any) -> dict[str, Any]:
    """A GPU as `amd-smi static --json` has it."""
    return {
        "gpu": 0,
        "asic": {"market_name": INSTINCT, "vendor_id": "0x1002", "target_graphics_version": target},
        "bus": {"bdf": bdf, "max_pcie_width": 16},
        "driver": {"name": "amdgpu", "version": "6.12.12"},
        "vram": {"type": "HBM3", "size": {"value": 196592, "unit": "MB"}},
        "partition": {"accelerator_partition": "SPX", "memory_partition": "NPS1", "partition_id": 0},
        **more,
    }


def rocminfo(*agents: tuple[int, str]) -> str:
    """What `rocminfo` prints of these nodes, after a CPU."""
    text = f"ROCk module is loaded\n{'=' * 10}\nHSA Agents\n{'=' * 10}\n{_agent(1, 0, 'EPYC', 'CPU')}"
    names: Sequence[str] = [_agent(at, node, name, "GPU") for at, (node, name) in enumerate(agents, start=2)]
    return text + "".join(names) + "*** Done ***\n"


def _agent(number: int, node: int, name: str, kind: str) -> str:
    return f"""\
*******
Agent {number}
*******
  Name:                    {name}
  Uuid:                    {kind}-XX
  Marketing Name:          {INSTINCT}
  Device Type:             {kind}
  BDFID:                   3072
  Internal Node ID:        {node}
  Pool Info:
    Pool 1
      Segment:                 GLOBAL; FLAGS: COARSE GRAINED
      Size:                    201310208(0xbffc000) KB
  ISA Info:
    ISA 1
      Name:                    amdgcn-amd-amdhsa--{name}:sramecc+:xnack-
"""


# A torch for what `cairn install` asks of it at its end: a GPU, a matrix, and a product of it.
TORCH = """\
import os
VERSION = __version__ = "{version}"
class Ones:
    def __init__(self, *size, device): self.device = device
    def __matmul__(self, other): return self
    def sum(self):
        if os.environ.get("USER") == "nokernel":
            raise RuntimeError("HIP error: no kernel image is available")
        return 512.0**3
ones = Ones
class cuda:
    is_available = staticmethod(lambda: os.environ.get("USER") != "nogpu")
    device_count = staticmethod(lambda: 2)
    def get_device_properties(index):
        class Properties: name = "RX 7900 XTX"; gcnArchName = ("gfx1036", "gfx1100")[index]
        return Properties
"""
