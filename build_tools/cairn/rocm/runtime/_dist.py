"""What this SDK consists of, which part of it is installed, and which GPUs this machine has."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

FAMILY_VARIABLE = "ROCM_SDK_TARGET_FAMILY"
CHOSEN = "_chosen_family.txt"
_HERE = Path(__file__).parent
TOPOLOGY = Path("/sys/class/kfd/kfd/topology/nodes")
_VERSION = re.compile(r"^gfx_target_version (\d+)$", re.MULTILINE)


class RocmSdkError(RuntimeError):
    """The SDK is incomplete, or asked for something it does not have."""


@functools.cache
def load() -> Mapping[str, Any]:
    """The description the packager wrote."""
    data: Mapping[str, Any] = json.loads((_HERE / "_dist.json").read_text(encoding="utf-8"))
    return data


def choose_family(environ: Mapping[str, str], installed: Iterable[str]) -> str:
    """The target family to install for: the one asked for, that of the GPU found, the default.

    Raises:
        RocmSdkError: this SDK does not have the one asked for.
    """
    # A family's own name counts, each target of one (ROCM_SDK_TARGET_FAMILY=gfx942 is gfx94X-dcgpu), and that
    # of a smaller family whose targets one has.
    families: Mapping[str, list[str]] = load()["families"]
    requested = environ.get(FAMILY_VARIABLE)
    if requested:
        requested = str(load().get("groups", {}).get(requested, requested))
    for name in [requested] if requested else installed:
        for family, targets in families.items():
            if name == family or name in targets:
                return family
    if requested:
        raise RocmSdkError(f"{FAMILY_VARIABLE}={requested} is not in this SDK; it has {', '.join(families)}")
    return str(load()["default_family"])


def family() -> str:
    """The family in use: the one asked for now, or the one chosen when this was installed."""
    if FAMILY_VARIABLE in os.environ:
        return choose_family(os.environ, ())
    chosen = _HERE / CHOSEN
    if chosen.is_file():
        return chosen.read_text(encoding="utf-8").strip()
    return choose_family(os.environ, found_targets())


def folder(component: str) -> Path | None:
    """The folder of an installed package (`core`, `libraries`); None where it is not installed."""
    key = f"libraries/{family()}" if component == "libraries" else component
    name = load()["folders"].get(key)
    spec = importlib.util.find_spec(name) if name else None
    return Path(spec.origin).parent if spec and spec.origin else None


def names_of_gpus() -> Path | None:
    """The file `amdgpu.ids` of libdrm; None where this SDK has none."""
    root = folder("core")
    path = None if root is None else root / "share" / "libdrm" / "amdgpu.ids"
    return path if path is not None and path.is_file() else None


def library(shortname: str) -> Path:
    """Where a library is.

    Raises:
        RocmSdkError: an unknown name, or its package is not installed.
    """
    libraries: Mapping[str, list[str]] = load()["libraries"]
    if shortname not in libraries:
        raise RocmSdkError(f"unknown ROCm library {shortname!r}; this SDK has {', '.join(sorted(libraries))}")
    component, path = libraries[shortname]
    root = folder(component)
    if root is None:
        raise RocmSdkError(
            f"the ROCm library {shortname!r} is not installed; "
            f"pip install 'rocm[{component}]=={load()['version']}'"
        )
    if not (root / path).is_file():
        raise RocmSdkError(f"{root / path} is missing; install rocm-sdk-{component} again")
    return root / path


def requirements(chosen: str) -> dict[str, list[str]]:
    """Extra to what it requires for a family; the empty extra is what is always required."""
    extras = load()["extras"]
    return {
        "": load()["requires"],
        "devel": extras["devel"],
        "libraries": extras["libraries"][chosen],
        "profiler": extras["profiler"],
        **load().get("devices", {}),
    }


def found_targets(topology: Path = TOPOLOGY) -> list[str]:
    """Targets of the GPUs by what the kernel driver says, each once, in its order: no ROCm is needed to ask.

    Source: Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c (`gfx_target_version`; 0 for a CPU).
    """
    # By length first, so that node 10 follows node 9.
    nodes = sorted(topology.glob("*/properties"), key=lambda path: (len(path.parent.name), path.parent.name))
    versions = (int(match[1]) for node in nodes if (match := _VERSION.search(_text(node))))
    return list(dict.fromkeys(target_of(version) for version in versions if version))


def target_of(version: int) -> str:
    """A `gfx_target_version` as a target: 90402 is gfx942, 90010 gfx90a, 110000 gfx1100."""
    # Decimal digits: two for the step, two for the minor version, the rest for the major one; in names hex.
    major, minor, step = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{step:x}"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
