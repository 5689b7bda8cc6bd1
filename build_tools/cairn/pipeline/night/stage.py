"""Publish the sets of a night to staging, from the artifacts of its build jobs.

Build jobs run upstream's code and may not write to an index: they upload files, which one job that runs none
of that code checks and publishes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import structs

from cairn import datafile
from cairn.errors import CairnError, StoreError, UsageError, WheelError
from cairn.matrix.legs import Leg
from cairn.output import Progress, github, silent, wording
from cairn.output.console import size
from cairn.pipeline import staging
from cairn.pipeline.night import plan
from cairn.pipeline.night.build import SDK_FOLDER, set_folder
from cairn.pipeline.night.plan import NightPlan, NightRun, StepNote
from cairn.pipeline.night.versions import sdk_url
from cairn.pipeline.staging import SET_FILE
from cairn.release.index import keys
from cairn.release.index.generation import now
from cairn.release.publish.compatibility import Platform
from cairn.wheels import build_statement, wheelset
from cairn.wheels.interface.read import read_interface
from cairn.wheels.wheelset import BUILDER_FILE, WheelSet

NOTE_FILE = "step.json"
"""Beside the wheels of a build: how it ended, also where it failed."""

_ARTIFACT = re.compile(r"wheels-(?P<build>.+)-(?P<attempt>[0-9]{1,5})")


class StagedLeg(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of staging a leg.

    Attributes:
        leg: which.
        set_id: its set, or None.
        reason: why it has none; empty for one that has.
        kept: whether it was staged before.
        measures: of its wheels, by the names in `trends.MEASURES`; and `sdk_size`, the bytes of the ROCm SDK
            that came into the store with it.
    """

    leg: Leg
    set_id: str | None = None
    reason: str = ""
    kept: bool = False
    measures: Mapping[str, float] = msgspec.field(default_factory=dict)

    def __str__(self) -> str:
        """What was staged, in words: `set 0a1b2c3d4e5f, and 3.4 GB of the ROCm SDK`."""
        sdk = round(self.measures.get("sdk_size", 0))
        return f"set {wording.short_id(str(self.set_id))}" + (
            f", and {size(sdk)} of the ROCm SDK" if sdk else ""
        )


def artifact_name(build: str, attempt: int) -> str:
    """Return the name of the artifact with the wheels of a build; each attempt has its own."""
    return f"wheels-{build}-{attempt}"


def stage_night(run: NightRun, artifacts: Path, *, say: Progress = silent) -> tuple[StagedLeg, ...]:
    """Stage the built sets; a leg that cannot be staged does not stop the others.

    Args:
        run: the night.
        artifacts: a folder with a folder for each artifact (`artifact_name`), or what is in the only one; it
            may be missing.
        say: progress callback.
    """
    artifacts_by_build = _artifacts(artifacts)
    results = []
    for leg in run.legs:
        folders = artifacts_by_build.get(leg.build_id, {})
        say(leg.name)
        started = now()
        result = _try_to_stage(run, leg, [folders[attempt] for attempt in sorted(folders)])
        if not run.dry_run:
            _keep_notes(run, leg, folders)
            # Where nothing was built, the build alone has something to say.
            if not result.kept and any(_has_set(folder, leg) for folder in folders.values()):
                reason = result.reason or str(result)
                good = result.set_id is not None
                note = plan.step_note(run, leg, "stage", started, good=good, reason=reason)
                plan.note(run.store, structs.replace(note, measures=result.measures))
        results.append(result)
    return tuple(results)


def _try_to_stage(run: NightRun, leg: Leg, folders: Sequence[Path]) -> StagedLeg:
    try:
        staged = plan.set_of(run.index(leg, run.plan.staging), run.plan, leg)
        if staged is not None:
            return StagedLeg(leg=leg, set_id=staged.set_id, kept=True)
        whole = [folder for folder in folders if _has_set(folder, leg)]
        if not whole:
            return StagedLeg(leg=leg, reason="no wheels were built")
        wheel_set, sdk_size = _stage(run, leg, whole[-1])
        wheels = [whole[-1] / wheel.file_name for wheel in wheel_set.wheels]
        measures = {
            **measured(wheels, for_cpu=wheel_set.for_cpu),
            **({"sdk_size": sdk_size} if sdk_size else {}),
        }
        return StagedLeg(leg=leg, set_id=wheel_set.id, measures=measures)
    except (CairnError, OSError) as error:
        tip = error.tip if isinstance(error, CairnError) else None
        return StagedLeg(leg=leg, reason="; ".join(filter(None, (str(error), tip))))


def _has_set(folder: Path, leg: Leg) -> bool:
    return (set_folder(folder, leg) / SET_FILE).is_file()


def _stage(run: NightRun, leg: Leg, folder: Path) -> tuple[WheelSet, int]:
    """Publish the set of a leg and its dependencies; also return how many bytes of them the SDK added."""
    stack, index = run.stack, plan.index_of(leg, run.plan.staging)
    wheel_set = wheelset.read(set_folder(folder, leg) / SET_FILE)
    _refuse_other_set(wheel_set, run.plan, leg)
    names = [wheel.file_name for wheel in wheel_set.wheels]
    if absent := [name for name in names if name != Path(name).name or not (folder / name).is_file()]:
        raise UsageError(f"{folder.name} has no file {absent[0]!r}", tip="build the leg again")
    place = set_folder(folder, leg) / SET_FILE
    sdk = build_statement.decode(build_statement.beside(place), name=BUILDER_FILE).sdk
    sdk_keys = [keys.file_key(sha256, name) for name, sha256 in sdk.items()]
    absent = [key for key in sdk_keys if not run.store.exists(key)]
    if stack.makes_sdk and not run.dry_run:
        staging.publish_sdk(run.store, index, sorted((folder / SDK_FOLDER).glob("*")))
    frozen = plan.frozen(run)
    from_index = None if wheel_set.for_cpu else frozen.rocm_index_url
    sealed = staging.stage_set(
        run.store,
        index,
        set_folder(folder, leg),
        [folder / name for name in names],
        stack=stack,
        platform=Platform(python=leg.python, tag=leg.platform),
        manifest=frozen.canonical(),
        attester=run.attester,
        sdk_url=sdk_url(from_index, run.plan.build(leg.build_id)) if from_index else "",
        dry_run=run.dry_run,
    )
    return sealed, sum(info.size for key in absent if (info := run.store.stat(key)) is not None)


def measured(wheels: Iterable[Path], *, for_cpu: bool) -> dict[str, float]:
    """Measure the wheels of a set; nothing where one cannot be read, which is for the gate to say."""
    measures = dict.fromkeys(("wheel_size", "installed_size", "kernels"), 0)
    try:
        for wheel in wheels:
            read = read_interface(wheel, python=False)
            measures["wheel_size"] += read.size
            measures["installed_size"] += read.unpacked_size
            measures["kernels"] += len({(kernel.name, kernel.target) for kernel in read.kernels})
    except WheelError:
        return {}
    return {name: value for name, value in measures.items() if name != "kernels" or not for_cpu}


def _refuse_other_set(wheel_set: WheelSet, night: NightPlan, leg: Leg) -> None:
    """Refuse a set that is not the one expected: any job may upload anything under any name."""
    differences = [
        f"{property_name} {is_}, and not {expected}"
        for property_name, is_, expected in (
            ("manifest", wheel_set.manifest_sha256[:12], night.manifest_sha256[:12]),
            ("stack", wheel_set.stack, night.stack),
            ("line", wheel_set.line, night.line),
            ("Python", wheel_set.python, leg.python),
            ("platform", wheel_set.platform, leg.platform),
            ("targets", ", ".join(sorted(wheel_set.targets)), ", ".join(sorted(plan.targets_of(leg)))),
        )
        if is_ != expected
    ]
    if wheel_set.set_id is not None:
        differences.append("sealed already, by somebody else")
    if differences:
        raise StoreError(
            f"the set of {leg.name} is not what the night expects: it is of {'; '.join(differences)}",
            tip="build the leg again",
        )


def _artifacts(folder: Path) -> dict[str, dict[int, Path]]:
    """Return the folders of each build, by attempt."""
    if (folder / NOTE_FILE).is_file():
        # actions/download-artifact makes a folder for each artifact, but not where there is one alone
        # (`artifacts.length === 1` in its download-artifact.ts). Whose it is, it says itself; what it may
        # stage depends on its set.json in any case.
        try:
            note = datafile.read(folder / NOTE_FILE, StepNote)
        except UsageError:
            return {}
        return {} if github.is_to_come(note.attempt) else {note.leg: {note.attempt: folder}}
    folders: dict[str, dict[int, Path]] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        match = _ARTIFACT.fullmatch(path.name)
        # Any job can upload anything under any name; but no build has left what is of an attempt to come.
        if match is not None and path.is_dir() and not github.is_to_come(int(match["attempt"])):
            folders.setdefault(match["build"], {})[int(match["attempt"])] = path
    return folders


def _keep_notes(run: NightRun, leg: Leg, folders: dict[int, Path]) -> None:
    """Store what the builds of this leg say of themselves, as notes of the leg."""
    others = [
        sibling.family
        for sibling in run.plan.legs
        if sibling.build_id == leg.build_id and sibling.id != leg.id
    ]
    for attempt, folder in folders.items():
        try:
            note = datafile.read(folder / NOTE_FILE, StepNote)
        except UsageError:
            continue
        of_build = (run.plan.night, leg.build_id, "build", attempt)
        if (note.night, note.leg, note.stage, note.attempt) == of_build:
            reason = note.reason
            if others and not note.good:
                reason = f"{reason} (the same build makes the wheels of {', '.join(others)})"
            plan.note(run.store, structs.replace(note, leg=leg.id, reason=reason))
