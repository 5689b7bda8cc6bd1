"""Says at import that a host wheel lacks the code for a GPU of this machine, and what installs that.

Without that code a wheel imports and its host code runs; the first kernel fails with an error that names no
reason (`hipErrorInvalidImage`).

`import_hook` copies this file into host wheels as `_rocm_device_check.py`; nothing in Cairn calls it. It
needs the standard library alone, and Python 3.10. All it does on a machine without a GPU is to ask whether
the driver's device is there.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

VARIABLE = "CAIRN_DEVICE_HINT"
"""With this variable at 0 nothing is looked at, and nothing said."""

_DEVICE = Path("/dev/kfd")  # no process computes on a GPU that may not open it
_NODES = Path("/sys/class/kfd/kfd/topology/nodes")
_SPLIT = "cairn-split.json"  # in the dist-info folder of every host wheel
_PLACEHOLDER = "@GFXARCH@"
# With these ROCm's runtime takes archives from elsewhere, so that those beside the library say nothing.
_ELSEWHERE = ("ROCM_KPACK_PATH", "ROCM_KPACK_PATH_PREFIX")
_FORCED = "ROCM_BOOTSTRAP_FORCE_GFX_ARCH"


def check(own: str, archives: Sequence[str], generic: Mapping[str, Sequence[str]]) -> None:
    """Write one line to stderr where code for a GPU of this machine can be installed, and is not.

    Args:
        own: the project that is imported, as its dist-info folder has it.
        archives: where its archives are, counted from site-packages, with `@GFXARCH@` for the target.
        generic: the generic targets that it has code for, each with the processors that run that.
    """
    if os.environ.get(VARIABLE) == "0" or any(name in os.environ for name in _ELSEWHERE) or _in_worker():
        return
    site = Path(__file__).parent.parent
    gpus = _from_kernel()
    lacking = _lacking(site, own, archives, generic, gpus)
    if lacking or os.environ.get(_FORCED):
        told = _from_bootstrap()
        if told is not None:
            gpus, lacking = told, _lacking(site, own, archives, generic, told)
    line = _line(lacking, own, generic, gpus) if lacking else ""
    if line and sys.stderr is not None:
        sys.stderr.write(f"{line} ({VARIABLE}=0 hides this line)\n")


def _in_worker() -> bool:
    """Whether this process is one of many that `multiprocessing` started: the first has said it."""
    module = sys.modules.get("multiprocessing.process")
    if module is None:
        return False
    # While a worker that was spawned imports what its parent had imported, it does not know its parent yet:
    # it has its name, or (the server of `forkserver`) a mark that it must not start processes itself.
    process = module.current_process()
    return process.name != "MainProcess" or getattr(process, "_inheriting", False)


def _from_kernel() -> list[str]:
    """The targets of the GPUs that this process may use, by what the kernel driver says.

    Source: Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c (`gfx_target_version`; 0 for a CPU).
    """
    if not os.access(_DEVICE, os.R_OK | os.W_OK):
        return []
    found = []
    # By length first, so that node 10 follows node 9.
    for node in sorted(_NODES.glob("*/properties"), key=lambda path: (len(path.parent.name), path)):
        try:
            text = node.read_text(encoding="ascii", errors="replace")
        except OSError:  # a container may not read the nodes that are not its own
            continue
        match = re.search(r"^gfx_target_version (\d+)$", text, re.MULTILINE)
        version = int(match[1]) if match else 0
        if version:
            # Decimal digits: two for the step, two for the minor version, the rest for the major one.
            found.append(f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}")
    return _visible(found)


def _from_bootstrap() -> list[str] | None:
    """The same by `rocm-bootstrap`, whose variables overrule the kernel; None where it cannot be asked.

    It is asked only when something is lacking: it takes longer to load than all of this, and where the kernel
    lists no GPU it starts a program.
    """
    try:
        gpus = importlib.import_module("rocm_bootstrap").detect_gpus()
        found = [str(gpu.target.name) for gpu in sorted(gpus, key=lambda gpu: int(gpu.node_id))]
    except Exception:  # noqa: BLE001 - it is not installed, does not know the GPU, or may not read a node
        return None
    return list(dict.fromkeys(found)) if os.environ.get(_FORCED) else _visible(found)


def _visible(gpus: list[str]) -> list[str]:
    """Those that the variables of ROCr and HIP leave, each once; a UUID in one hides nothing from us."""
    hip = "HIP_VISIBLE_DEVICES" if os.environ.get("HIP_VISIBLE_DEVICES") else "CUDA_VISIBLE_DEVICES"
    for variable in ("ROCR_VISIBLE_DEVICES", hip):
        words = [word.strip() for word in os.environ.get(variable, "GPU-all").split(",")]
        if any(word.startswith("GPU-") for word in words):
            continue
        left = []
        for word in words:
            if not word.isdecimal() or int(word) >= len(gpus):
                break  # it ends the list, as the runtimes have it
            left.append(gpus[int(word)])
        gpus = left
    return list(dict.fromkeys(gpus))


def _lacking(
    site: Path, own: str, archives: Sequence[str], generic: Mapping[str, Sequence[str]], gpus: Iterable[str]
) -> dict[Path, list[str]]:
    """The dist-info folders of host wheels, each with the GPUs whose code is not installed for it."""
    if not gpus:
        return {}
    there: dict[str, set[str]] = {own: set()}
    for path in archives:
        before, _, behind = path.rpartition("/")[2].partition(_PLACEHOLDER)
        for file in site.joinpath(path).parent.glob(f"{before}gfx*{behind}"):
            # All features of a processor come together: which of them run is not a matter of installing.
            there[own].add(file.name[len(before) : -len(behind)].partition(":")[0])
    # Plain strings: with hundreds of packages there, paths take five times as long.
    folders = sorted(entry.name for entry in os.scandir(site) if entry.name.endswith(".dist-info"))
    hosts = {
        name: name.partition("-")[0] for name in folders if os.access(f"{site}/{name}/{_SPLIT}", os.F_OK)
    }
    for project in hosts.values():
        if project != own:
            # Of others only their names are known here: demo_device_gfx942-1.0.dist-info.
            mark = re.compile(rf"(?:.*_)?{re.escape(project)}_device_(gfx[0-9a-z_]+)-.*")
            matches = map(mark.fullmatch, folders)
            there[project] = {match[1].replace("_", "-") for match in matches if match}
    lacking = {
        name: [gpu for gpu in gpus if there[project].isdisjoint(_serving(gpu, generic))]
        for name, project in hosts.items()
    }
    return {site / name: missing for name, missing in lacking.items() if missing}


def _serving(gpu: str, generic: Mapping[str, Sequence[str]]) -> list[str]:
    """The processors whose code a GPU runs, its own first."""
    processor = gpu.partition(":")[0]
    return [processor, *(name for name, members in generic.items() if processor in members)]


def _line(
    lacking: Mapping[Path, Sequence[str]], own: str, generic: Mapping[str, Sequence[str]], gpus: Sequence[str]
) -> str:
    """What to say; nothing where no extra of these wheels helps, and the wheel has code for another GPU."""
    from importlib import metadata  # noqa: PLC0415 - it takes longer to load than all else here

    wanted: dict[str, str] = {}
    served: list[str] = []
    without = ""
    for folder, missing in lacking.items():
        about = metadata.Distribution.at(folder)
        name, extras = about.metadata["Name"], about.metadata.get_all("Provides-Extra") or []
        helping = {}
        for gpu in missing:
            offered = [extra for one in _serving(gpu, generic) if (extra := f"device-{one}") in extras]
            if offered:
                helping[gpu] = offered[0]
        if helping:
            wanted[name] = f'"{name}[{",".join(dict.fromkeys(helping.values()))}]=={about.version}"'
            served += helping
        elif folder.name.partition("-")[0] == own and len(missing) == len(gpus):
            there = [extra.partition("-")[2] for extra in extras if extra.startswith("device-gfx")]
            without = f"{name} {about.version} has no code for {_all(missing)}, only for {_all(there)}"
    if not wanted:
        return without
    gpus, words = _all(dict.fromkeys(served)), " ".join(wanted.values())
    return (
        f"{_all(wanted)}: no code for {gpus} is installed, and kernels will fail there; "
        f"add it from the same index: pip install {words}"
    )


def _all(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
