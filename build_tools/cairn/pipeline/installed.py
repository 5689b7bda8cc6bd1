"""Check an environment after an installation: announced versions and extras are there, and torch computes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from cairn import isolation, process, requirements
from cairn.errors import CairnError, PrerequisiteError, ProcessError
from cairn.output import Progress
from cairn.release.pages.targets_file import Offer, Pick

_LOOK = "`cairn doctor --for install` says what keeps programs from it"
_PROOF_TIMEOUT = 600.0  # seconds: the first call to a driver compiles, and torch may lie on a slow disk
_MARK = "cairn-proof:"
# Ones, so that each sum is known; a kernel that is missing for a GPU raises when the result is read.
_PROOF = f"""\
import json, sys
import torch
names = {{"cpu": "the CPU"}} if sys.argv[1] == "cpu" else {{}}
for index in range(torch.cuda.device_count() if not names and torch.cuda.is_available() else 0):
    seen = torch.cuda.get_device_properties(index)
    target = getattr(seen, "gcnArchName", "").partition(":")[0]
    if target in sys.argv[1].split(","):
        names[f"cuda:{{index}}"] = f"{{seen.name}} ({{target}})"
for device in names:
    ones = torch.ones(512, 512, device=device)
    if float((ones @ ones).sum()) != 512.0**3:
        sys.exit(f"{{device}} multiplies matrices wrong")
print({_MARK!r} + json.dumps([str(torch.__version__), list(names.values())]))
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
        works: it did, on each GPU that torch sees, or on the CPU where it is for that.
        text: what computed, or what went wrong, in one sentence.
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
    """Have what was installed multiply matrices, on every GPU that it sees; torch alone can be asked.

    Args:
        pick: what was installed.
        python: where.
        on_line: receives each line of its output.
    """
    names = [word.partition("[")[0].partition("=")[0] for word in pick.offer.packages]
    if "torch" not in names:
        return Proof(works=True, text=f"installed: {', '.join(names)}")
    try:
        with isolation.own_home() as home:
            completed = process.run(
                [python, "-I", "-c", _PROOF, ",".join(pick.targets)],
                env=isolation.variables(isolation.Isolation.TEST, home),
                on_line=on_line,
                timeout=_PROOF_TIMEOUT,
                hidden=isolation.credential_files(),
            )
        (line,) = (one for one in completed.output.splitlines() if one.startswith(_MARK))
        version, computed = json.loads(line.removeprefix(_MARK))
    except (CairnError, ValueError) as error:
        lines = error.output.strip().splitlines() if isinstance(error, ProcessError) else []
        reason = lines[-1] if lines else error
        return Proof(works=False, text=f"torch was installed and does not compute: {reason}", tip=_LOOK)
    if not computed:
        problem = f"torch {version} was installed and sees no GPU of {' or '.join(pick.targets)}"
        return Proof(works=False, text=problem, tip=_LOOK)
    return Proof(
        works=True, text=f"it works: torch {version} has multiplied matrices on {', '.join(computed)}"
    )
