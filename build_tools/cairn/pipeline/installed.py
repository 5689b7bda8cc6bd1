"""Check an environment after an installation: announced versions and extras are there, and torch computes."""

from __future__ import annotations

import contextlib
import json
import secrets
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from cairn import isolation, process, requirements, simple_index, venv
from cairn.errors import CairnError, NetworkError, PrerequisiteError, ProcessError
from cairn.output import Progress, wording
from cairn.release.index.generation import version_of
from cairn.release.pages.targets_file import Offer, Pick
from cairn.release.publish.compatibility import Platform
from cairn.simple_index import IndexFile
from cairn.web import WholeFileError
from cairn.wheels import published
from cairn.wheels.metadata import record, wheel_info
from cairn.wheels.metadata.record import RecordRow

LOOK = "`cairn doctor --for install` says what keeps programs from it"
_PROOF_TIMEOUT = 600.0  # seconds: the first call to a driver compiles, and torch may lie on a slow disk
# Ones, so that each sum is known; a kernel that is missing for a GPU raises when the result is read. The
# token is taken away before anything of a wheel runs, so that an import cannot print the answer.
_PROOF = """\
import importlib, importlib.metadata, json, sys
token, targets, *distributions = sys.argv[1:]
del sys.argv[1:]
imported = {}
for distribution in distributions:
    paths = [file.parts for file in importlib.metadata.files(distribution) or ()]
    tops = {parts[0] for parts in paths if len(parts) > 1 and parts[1].startswith("__init__.")}
    modules = (parts[0] for parts in paths if len(parts) == 1 and parts[0].endswith((".py", ".so", ".pyd")))
    tops |= {name.partition(".")[0] for name in modules}
    imported[distribution] = sorted(name for name in tops if name.isidentifier())
    for name in imported[distribution]:
        importlib.import_module(name)
answer = {"imported": imported, "torch": None, "devices": []}
if "torch" in distributions:
    import torch
    names = {"cpu": "the CPU"} if targets == "cpu" else {}
    for index in range(torch.cuda.device_count() if not names and torch.cuda.is_available() else 0):
        seen = torch.cuda.get_device_properties(index)
        target = getattr(seen, "gcnArchName", "").partition(":")[0]
        if target in targets.split(","):
            names[f"cuda:{index}"] = f"{seen.name} ({target})"
    for device in names:
        ones = torch.ones(512, 512, device=device)
        if float((ones @ ones).sum()) != 512.0**3:
            sys.exit(f"{device} multiplies matrices wrong")
    answer |= {"torch": str(torch.__version__), "devices": list(names.values())}
print(token + json.dumps(answer))
"""
# What an environment says of distributions: the version, what it was installed from unless that was an index,
# and each file with its hash (RECORD) and its size on disk, None where it is gone.
_PRESENT = """\
import importlib.metadata, json, os, sys
present = {}
for name in sys.argv[1:]:
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        continue
    rows = {}
    for file in distribution.files or ():
        try:
            size = os.stat(file.locate()).st_size
        except OSError:
            size = None
        rows[str(file)] = [f"{file.hash.mode}={file.hash.value}" if file.hash else None, size]
    try:
        origin = json.loads(distribution.read_text("direct_url.json") or "{}").get("url")
    except (ValueError, AttributeError):
        origin = "a place that direct_url.json does not tell"
    present[name] = {"version": distribution.version, "origin": origin, "rows": rows}
print(json.dumps(present))
"""
# Of the dist-info folder, where an installer keeps what it did (PEP 376, 610).
_REWRITTEN = ("INSTALLER", "REQUESTED", "direct_url.json")
_FRESH = "install into a new environment, or uninstall these packages there and repeat the command"


def require_extras(output: str) -> None:
    """Refuse the output of an installer that warned of an extra: it then exits with 0 all the same.

    pip warns "does not provide the extra", uv "does not have an extra named".

    Raises:
        PrerequisiteError: it has such a warning.
    """
    for line in output.splitlines():
        if "does not provide the extra" in line or "does not have an extra named" in line:
            raise PrerequisiteError(f"not all of it was installed: {line.strip()}", tip=_FRESH)


def require_announced(offer: Offer, index_url: str, python: Path) -> dict[str, int | None]:
    """Refuse an environment that has something else than the wheels of the offer.

    Installers leave what meets a requirement: `==2.9.0` is met by 2.9.0+cu128 as well (PEP 440, version
    matching), and by other bytes of the same version. So versions are compared, and the files, by their
    hashes in RECORD and their sizes on disk, with the RECORD of the wheel, which is read where it lies.

    Args:
        offer: what was announced.
        index_url: the index that it was installed from.
        python: the interpreter of the environment.

    Returns:
        Distribution to the number of its files; None where the index does not offer its wheel in parts, so
        that nothing but the version was compared.

    Raises:
        PrerequisiteError: it names each package that is different, or is missing.
        NetworkError: the index does not answer any more.
    """
    names = [canonicalize_name(requirements.requirement(word).name) for word in offer.packages]
    announced = {str(name): offer.versions[name] for name in names if name in offer.versions}
    present = _present(python, announced)
    counts: dict[str, int | None] = {}
    wrong = []
    for name, version in announced.items():
        if name not in present:
            wrong.append(f"{name} is missing, not {version}")
        elif present[name]["version"] != version:
            wrong.append(f"{name} {present[name]['version']}, not {version}")
        else:
            wheels = _wheels_of(offer, index_url, name, version)
            compared = _compare_files(wheels, name, present[name]["rows"])
            counts[name] = compared and compared[0]
            origin = f", installed from {present[name]['origin']}" if present[name]["origin"] else ""
            if compared and (compared[1] or not compared[0]):
                count, different = compared
                few = f"{len(different)} of {count} files are not those of its wheel"
                wrong.append(
                    f"{name} {version}{origin}: {few} ({wording.some(different, shown=2) or 'none'})"
                )
    if wrong:
        uninstall = (venv.uv_program(), "pip", "uninstall", "--python", str(python), *announced)
        raise PrerequisiteError(
            f"installed is not what was announced: {'; '.join(wrong)}",
            tip="install into a new environment, or uninstall these packages and repeat the command: "
            + shlex.join(uninstall),
        )
    return counts


def _present(python: Path, names: Iterable[str]) -> dict[str, Any]:
    # What was just installed may run code whenever its interpreter starts (.pth files, sitecustomize).
    with isolation.own_home() as home:
        completed = process.run(
            [python, "-I", "-c", _PRESENT, *names],
            env=isolation.variables(isolation.Isolation.TEST, home),
        )
    try:
        present: dict[str, Any] = json.loads(completed.output.strip().splitlines()[-1])
    except (ValueError, IndexError, TypeError) as error:
        raise PrerequisiteError(f"{python} does not say what is installed", tip=_FRESH) from error
    return present


def _wheels_of(offer: Offer, index_url: str, name: str, version: str) -> list[IndexFile]:
    """The wheels of a version that fit; an index may have several, such as for two versions of glibc."""
    place = Platform(python=offer.python, tag=offer.platform)
    wheels = []
    for file in simple_index.files(index_url, name, may_lack=False):
        with contextlib.suppress(CairnError, ValueError):  # no file of a distribution
            if version_of(file.name) == version and place.takes(file.name, file.requires_python):
                wheels.append(file)
    if not wheels:
        raise NetworkError(f"{index_url} has no wheel of {name} {version} any more", tip=_FRESH)
    return wheels


def _compare_files(
    wheels: Iterable[IndexFile], name: str, present: Mapping[str, object]
) -> tuple[int, list[str]] | None:
    """Return how many files the wheel that is most like the installed files has, and which are different.

    None where the index does not offer a wheel in parts.
    """
    compared = []
    for wheel in wheels:
        if (rows := _rows_of_wheel(wheel, name)) is None:
            return None
        different = [
            row.path for row in rows if present.get(row.path) != [f"{row.algorithm}={row.digest}", row.size]
        ]
        compared.append((len(rows), different))
        if rows and not different:
            break
    return min(compared, key=lambda pair: len(pair[1]) or not pair[0])


def _rows_of_wheel(wheel: IndexFile, name: str) -> list[RecordRow] | None:
    """The rows of a wheel's RECORD that are installed as they are; None where it is not offered in parts."""
    try:
        with published.opening(wheel) as archive:
            folder = wheel_info.find_dist_info(archive, name)
            rows = record.parse_record(archive.read(f"{folder}/RECORD").decode())
            sizes = {member.name: member.size for member in archive.members}
    except WholeFileError:
        return None
    # Installers write RECORD and some files more anew, and move what lies in the data folder (PEP 427).
    moved = f"{folder.removesuffix('.dist-info')}.data/"
    rewritten = {f"{folder}/{file}" for file in _REWRITTEN}
    return [
        row._replace(size=sizes.get(row.path) if row.size is None else row.size)  # RECORD may leave it out
        for row in rows
        if row.algorithm and row.path not in rewritten and not row.path.startswith(moved)
    ]


def prove(pick: Pick, python: Path, *, on_line: Progress | None) -> tuple[bool, str]:
    """Import what was installed, and have torch multiply matrices on every GPU that it sees.

    Returns whether it works, on each GPU or on the CPU, and a sentence about what was computed or went wrong.

    Args:
        pick: what was installed.
        python: where.
        on_line: receives each line of its output.
    """
    names = [str(canonicalize_name(requirements.requirement(word).name)) for word in pick.offer.packages]
    token = secrets.token_hex(16)
    try:
        with isolation.own_home() as home:
            completed = process.run(
                [python, "-I", "-c", _PROOF, token, ",".join(pick.targets), *names],
                env=isolation.variables(isolation.Isolation.TEST, home),
                on_line=on_line,
                timeout=_PROOF_TIMEOUT,
            )
        (line,) = (line for line in completed.output.splitlines() if line.startswith(token))
        answer = json.loads(line.removeprefix(token))
    except (CairnError, ValueError) as error:
        lines = error.output.strip().splitlines() if isinstance(error, ProcessError) else []
        reason = lines[-1] if lines else error
        return False, f"it was installed and does not work: {reason}"
    version, devices = answer["torch"], answer["devices"]
    if version and not devices:
        return False, f"torch {version} was installed and sees no GPU of {' or '.join(pick.targets)}"
    computed = [f"torch {version} has multiplied matrices on {', '.join(devices)}"] if version else []
    imported = [name for name, modules in answer["imported"].items() if modules and name != "torch"]
    silent = [name for name, modules in answer["imported"].items() if not modules]
    computed += [f"imported: {', '.join(imported)}"] if imported else []
    computed += [f"no module to import: {', '.join(silent)}"] if silent else []
    return True, f"it works: {'; '.join(computed)}"
