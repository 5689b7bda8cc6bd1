"""Check an environment after an installation: announced versions and extras are there, and torch computes."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from cairn import isolation, process, requirements
from cairn.errors import CairnError, PrerequisiteError, ProcessError
from cairn.output import Progress
from cairn.release.pages.targets_file import Offer, Pick

_LOOK = "`cairn doctor --for install` says what keeps programs from it"
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
_VERSIONS = """\
import importlib.metadata, json, sys
present = dict.fromkeys(sys.argv[1:])
for name in present:
    try:
        present[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(present))
"""
_FRESH = "install into a new environment, or uninstall these packages there and repeat the command"


@dataclass(frozen=True, kw_only=True)
class Proof:
    """Whether what was installed computes.

    Attributes:
        works: every package was imported, and torch computed on each GPU that it sees, or on the CPU.
        text: what was imported and computed, or what went wrong, in one sentence.
        tip: what to look at, where it does not.
    """

    works: bool
    text: str
    tip: str = ""


def require_extras(output: str) -> None:
    """Refuse the output of an installer that warned of an extra: it then exits with 0 all the same.

    pip warns "does not provide the extra", uv "does not have an extra named".

    Raises:
        PrerequisiteError: it has such a warning.
    """
    for line in output.splitlines():
        if "does not provide the extra" in line or "does not have an extra named" in line:
            raise PrerequisiteError(f"not all of it was installed: {line.strip()}", tip=_FRESH)


def require_versions(offer: Offer, python: Path) -> None:
    """Refuse an environment whose versions are not those of the offer.

    `==2.9.0` is met by 2.9.0+cu128 as well (PEP 440, version matching), which installers then leave there.

    Raises:
        PrerequisiteError: it names each package that has a different version, or is missing.
    """
    names = [canonicalize_name(requirements.requirement(word).name) for word in offer.packages]
    announced = {name: offer.versions[name] for name in names if name in offer.versions}
    # What was just installed may run code whenever its interpreter starts (.pth files, sitecustomize).
    with isolation.own_home() as home:
        completed = process.run(
            [python, "-I", "-c", _VERSIONS, *announced],
            env=isolation.variables(isolation.Isolation.TEST, home),
            hidden=isolation.credential_files(),
        )
    try:
        present = dict.fromkeys(announced) | json.loads(completed.output.strip().splitlines()[-1])
    except (ValueError, IndexError, TypeError) as error:
        raise PrerequisiteError(f"{python} does not say what is installed", tip=_FRESH) from error
    wrong = [
        f"{name} {present[name] or 'is missing'}, not {version}"
        for name, version in announced.items()
        if present[name] != version
    ]
    if wrong:
        raise PrerequisiteError(f"installed is not what was announced: {'; '.join(wrong)}", tip=_FRESH)


def prove(pick: Pick, python: Path, *, on_line: Progress | None) -> Proof:
    """Import what was installed, and have torch multiply matrices on every GPU that it sees.

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
                hidden=isolation.credential_files(),
            )
        (line,) = (line for line in completed.output.splitlines() if line.startswith(token))
        answer = json.loads(line.removeprefix(token))
    except (CairnError, ValueError) as error:
        lines = error.output.strip().splitlines() if isinstance(error, ProcessError) else []
        reason = lines[-1] if lines else error
        return Proof(works=False, text=f"it was installed and does not work: {reason}", tip=_LOOK)
    version, devices = answer["torch"], answer["devices"]
    if version and not devices:
        problem = f"torch {version} was installed and sees no GPU of {' or '.join(pick.targets)}"
        return Proof(works=False, text=problem, tip=_LOOK)
    computed = [f"torch {version} has multiplied matrices on {', '.join(devices)}"] if version else []
    imported = [name for name, modules in answer["imported"].items() if modules and name != "torch"]
    silent = [name for name, modules in answer["imported"].items() if not modules]
    computed += [f"imported: {', '.join(imported)}"] if imported else []
    computed += [f"no module to import: {', '.join(silent)}"] if silent else []
    return Proof(works=True, text=f"it works: {'; '.join(computed)}")
