"""Says at import that a host wheel lacks the code for a GPU of this machine, and what installs that.

Without that code, or with that of an earlier version, which an upgrade of the host wheel alone leaves behind,
a wheel imports and its host code runs; the first kernel fails with an error that names no reason
(`hipErrorInvalidImage`).

It is copied into host wheels as `_rocm_device_check.py`, byte for byte; nothing in Cairn calls it. It
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
_INFO = ".dist-info"
_SPLIT = "cairn-split.json"  # in that folder of every host wheel
_PLACEHOLDER = "@GFXARCH@"
# With these ROCm's runtime takes archives from elsewhere, so that those beside the library say nothing.
_ELSEWHERE = ("ROCM_KPACK_PATH", "ROCM_KPACK_PATH_PREFIX")
_FORCED = "ROCM_BOOTSTRAP_FORCE_GFX_ARCH"
_MISSING, _VERSION, _BUILD = "not installed", "of a different version", "of a different build"
_LINKED = "out of reach behind the installer's links"


def check(own: str, build: str, archives: Sequence[str], generic: Mapping[str, Sequence[str]]) -> None:
    """Write one line to stderr where code for a GPU of this machine can be installed, and is not.

    Args:
        own: the project that is imported, as its dist-info folder has it.
        build: what its archives call the build that its libraries are of.
        archives: where these are, counted from site-packages, with `@GFXARCH@` for the target.
        generic: the generic targets, each with the processors that run its code.
    """
    if os.environ.get(VARIABLE) == "0" or any(name in os.environ for name in _ELSEWHERE) or _in_worker():
        return
    gpus = _from_kernel()
    if not gpus and not os.environ.get(_FORCED):
        return
    hosts = _hosts(Path(__file__).parent.parent, own, build, archives)
    lacking = _lacking(hosts, generic, gpus)
    if lacking or os.environ.get(_FORCED):
        told = _from_bootstrap()
        if told is not None:
            gpus, lacking = told, _lacking(hosts, generic, told)
    line = _line(lacking, hosts.get(own), generic, gpus) if lacking else ""
    if line and sys.stderr is not None:
        sys.stderr.write(f"{line} ({VARIABLE}=0 hides this line)\n")


def _in_worker() -> bool:
    """Whether this process is one of many that `multiprocessing` or torchrun started: the first says it."""
    if os.environ.get("LOCAL_RANK", "0") != "0":
        return True
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
            own = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
            found.append(_overridden(node.parent.name, own))
    return _visible(found)


def _overridden(node: str, target: str) -> str:
    """What a GPU passes for, where its user has the runtime load the code for a similar one.

    Source: ROCm/rocm-systems, libhsakmt's topology.c.
    """
    asked = os.environ.get(f"HSA_OVERRIDE_GFX_VERSION_{node}") or os.environ.get("HSA_OVERRIDE_GFX_VERSION")
    match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", asked or "")
    return f"gfx{int(match[1])}{int(match[2]):x}{int(match[3]):x}" if match else target


def _from_bootstrap() -> list[str] | None:
    """The same by `rocm-bootstrap`, whose variables overrule the kernel; None where it cannot be asked.

    It is asked only when something is lacking: it takes longer to load than all of this, and where the kernel
    lists no GPU it starts a program.
    """
    try:
        gpus = importlib.import_module("rocm_bootstrap").detect_gpus()
        found = sorted((int(gpu.node_id), str(gpu.target.name)) for gpu in gpus)
    except Exception:  # noqa: BLE001 - it is not installed, does not know the GPU, or may not read a node
        return None
    if os.environ.get(_FORCED):
        return list(dict.fromkeys(target for _, target in found))
    return _visible([_overridden(str(node), target) for node, target in found])


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


class _Host:
    """A host wheel that is installed.

    Attributes:
        name: its project.
        version: its version.
        stem: the names of its device wheels, up to the processor.
        offered: the processors that it has an extra for.
        there: the processors whose code is installed, each with what is wrong with that, or nothing.
    """

    def __init__(self, site: Path, folder: str, folders: Iterable[str]) -> None:
        text = site.joinpath(folder + _INFO, "METADATA").read_text(encoding="utf-8", errors="replace")
        headers = text.partition("\n\n")[0]
        self.name, self.version = (
            match[1] if (match := re.search(rf"^{key}: *(\S+)", headers, re.MULTILINE)) else ""
            for key in ("Name", "Version")
        )
        devices = re.findall(r"^Requires-Dist: *(\S+-device-)(gfx[\w-]+) *==", headers, re.MULTILINE)
        self.stem = devices[0][0] if devices else f"{self.name}-device-"
        self.offered = list(dict.fromkeys(processor for _, processor in devices))
        self.there: dict[str, str] = {}
        start, version = _escaped(self.stem), folder.rpartition("-")[2]
        for other in folders:
            name, _, its_version = other.rpartition("-")
            if _escaped(name).startswith(f"{start}gfx"):
                processor = _escaped(name)[len(start) :].replace("_", "-")
                self.there[processor] = "" if its_version == version else _VERSION

    def look(self, site: Path, build: str, archives: Iterable[str]) -> None:
        """Go by the archives themselves: they are what the runtime reads, whatever version is installed."""
        found: dict[str, str] = {}
        # It counts from where a library lies in the end: of links (uv's --link-mode symlink), in a cache that
        # has a folder for each wheel. This file came with the library.
        real = Path(os.path.realpath(__file__)).parent.parent
        for path in archives:
            before, _, behind = path.rpartition("/")[2].partition(_PLACEHOLDER)
            for file in site.joinpath(path).parent.glob(f"{before}gfx*{behind}"):
                # All features of a processor come together: which of them run is not a matter of installing.
                processor = file.name[len(before) : -len(behind)].partition(":")[0]
                wrong = "" if _is_of(build, file) else self.there.get(processor) or _BUILD
                linked = not real.joinpath(path).with_name(file.name).exists()
                wrong = _LINKED if linked else wrong
                found[processor] = found.get(processor) or wrong
        self.there = found

    def used(self, gpu: str, generic: Mapping[str, Sequence[str]]) -> str:
        """The processor whose code the runtime takes for a GPU: the first that is there, right or wrong."""
        return next((name for name in _serving(gpu, generic) if name in self.there), "")


def _escaped(name: str) -> str:
    return re.sub("[-_.]+", "_", name).lower()


def _is_of(build: str, archive: Path) -> bool:
    """Whether the table of a kpack archive has names of that build, such as `lib/libx.so@<build>#0`."""
    with archive.open("rb") as file:
        # u64 at byte 8: where the table begins, which ends with the file.
        file.seek(int.from_bytes(file.read(16)[8:], "little"))
        return f"@{build}#".encode() in file.read()


def _hosts(site: Path, own: str, build: str, archives: Sequence[str]) -> dict[str, _Host]:
    """The host wheels in site-packages, by their names in dist-info folders."""
    # Plain strings: with hundreds of packages there, paths take five times as long.
    with os.scandir(site) as entries:
        names = [entry.name for entry in entries]
    folders = sorted(name[: -len(_INFO)] for name in names if name.endswith(_INFO))
    here = [name for name in folders if os.access(f"{site}/{name}{_INFO}/{_SPLIT}", os.F_OK)]
    found = {name.partition("-")[0]: _Host(site, name, folders) for name in here}
    if own in found:
        found[own].look(site, build, archives)
    return found


def _lacking(
    hosts: Mapping[str, _Host], generic: Mapping[str, Sequence[str]], gpus: Iterable[str]
) -> list[tuple[_Host, dict[str, str]]]:
    """The host wheels without the code for some GPUs, and each of these with what is wrong."""
    found = []
    for host in hosts.values():
        wrong = {gpu: host.there.get(host.used(gpu, generic), _MISSING) for gpu in gpus}
        if any(wrong.values()):
            found.append((host, {gpu: why for gpu, why in wrong.items() if why}))
    return found


def _serving(gpu: str, generic: Mapping[str, Sequence[str]]) -> list[str]:
    """The processors whose code a GPU runs, its own first."""
    processor = gpu.partition(":")[0]
    return [processor, *(name for name, members in generic.items() if processor in members)]


def _line(
    lacking: Iterable[tuple[_Host, Mapping[str, str]]],
    own: _Host | None,
    generic: Mapping[str, Sequence[str]],
    gpus: Sequence[str],
) -> str:
    """What to say; nothing where no extra of these wheels helps, and the wheel has code for another GPU."""
    wanted: dict[str, str] = {}
    served: list[str] = []
    reasons: set[str] = set()
    stale: list[str] = []
    fails = "may fail"  # libraries that did not change from one version to the next find their code
    without = ""
    for host, wrong in lacking:
        helping = {}
        for gpu, why in wrong.items():
            offered = next((name for name in _serving(gpu, generic) if name in host.offered), None)
            if offered is not None:
                helping[gpu] = f"device-{offered}"
                reasons.add(why)
                fails = "will fail" if host is own or why != _VERSION else fails
                # What an earlier version had under the GPU's own name hides what a generic one brings now.
                used = host.used(gpu, generic)
                stale += [f"{host.stem}{used}"] if used and used not in host.offered else []
        if helping:
            wanted[host.name] = f'"{host.name}[{",".join(dict.fromkeys(helping.values()))}]=={host.version}"'
            served += helping
        elif host is own and len(wrong) == len(gpus):
            # A wheel variant offers nothing, and has the code for one processor itself.
            others = host.offered or [name for name, why in host.there.items() if not why]
            there = f"only for {_all(others)}" if others else "nor for any other GPU"
            without = f"{host.name} {host.version} has no code for {_all(wrong)}, {there}"
    if not wanted:
        return without
    gpus, again = _all(dict.fromkeys(served)), "--force-reinstall " if reasons & {_BUILD, _LINKED} else ""
    if reasons == {_MISSING}:
        said = f"no code for {gpus} is installed"
    else:
        code = "code" if _MISSING in reasons else "installed code"
        said = f"the {code} for {gpus} is {' or '.join(sorted(reasons))}"
    remove = f"pip uninstall {' '.join(dict.fromkeys(stale))} && " if stale else ""
    return (
        f"{_all(wanted)}: {said}, and kernels {fails} there; add it from the same index: "
        f"{remove}pip install {again}{' '.join(wanted.values())}"
    )


def _all(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
