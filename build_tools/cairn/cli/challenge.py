"""`cairn challenge`: build a released set again, and say whether the wheels are the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.build.build_options import compile_jobs
from cairn.cli import common_options as common
from cairn.cli import signing
from cairn.cli.answer import Answer, Note, Piece, Table, Warn
from cairn.cli.binder import command
from cairn.options import option
from cairn.output import console
from cairn.output.wording import count, short_id

if TYPE_CHECKING:
    from cairn.pipeline.challenge import Challenge, Prepared
    from cairn.release.rebuilds import Rebuild, RebuiltWheel, StoredRebuild

_SHOWN = 10  # members of a wheel


@dataclass(frozen=True, kw_only=True)
class ChallengeSet(signing.SignOptions, common.OptionalStack, common.StoreOptions):
    """Options of `cairn challenge`.

    The set is built from its manifest in a folder of its own, no wheel is taken from a cache, and each wheel
    is compared byte by byte. What differs is named with its cause: time, path, order, compiler. With a key
    the verdict is signed and put beside the set, where the gate and the pages find it. Exit code 7 says that
    a wheel differs. Without --stack, the stack that the set was frozen with is written from the store into
    the work folder, also with --dry-run.

        cairn challenge 3f9a0c --store ./store --work-dir /tmp/challenge
    """

    set_id: str = common.set_argument()
    index: str = common.index("release")
    rocm_index_url: str = option(
        "index of ROCm packages (default: the manifest's, else the store's staging channel); {family} stands "
        "for the family",
        metavar="URL",
        convert=converters.place,
        default="",
    )
    who: str | None = option("whom to ask (default: your user name)", convert=converters.nonempty)
    work_dir: Path = common.work_dir(Path("challenge"))
    jobs: int = compile_jobs()
    dry_run: bool = common.dry_run()


def _challenge(request: ChallengeSet) -> Answer:
    from cairn import datafile
    from cairn.errors import WheelError
    from cairn.pipeline import challenge
    from cairn.release import rebuilds
    from cairn.release.index import generation, keys
    from cairn.release.index.reading import read_current
    from cairn.release.index.snapshot import Index, whole_id

    store, signer = request.open_existing_store(), request.signer()
    set_id = whole_id(common.set_id_of(request.set_id), read_current(Index(store, request.index)))
    family, work_dir = keys.scope_of(request.index), request.work_dir.absolute()
    stack = request.load_stack()
    if stack is None:
        stack = challenge.frozen_stack(store, set_id, work_dir, line=request.line)
        console.current().info(f"the frozen stack: --stack {stack.folder}")
    job = challenge.Challenge(
        store=store,
        set_id=set_id,
        stack=stack,
        index=f"staging/{family}" if family else "staging",
        rocm_index_url=request.rocm_index_url,
        work_dir=work_dir,
        jobs=request.jobs,
    )
    prepared = challenge.prepare(job)
    challenge.demand_packing(prepared)
    if request.dry_run:
        return _plan(job, prepared)
    for name, (frozen, here) in prepared.toolchain.items():
        console.current().warn(f"{name} is {here} here, and was {frozen} when the manifest was frozen")
    rebuild = challenge.run(job, prepared, rebuilder=request.who or generation.who())
    stored, late = rebuilds.keep(store, prepared.wheel_set, rebuild, signer) if signer else (None, None)
    verdict = job.work_dir / challenge.VERDICT
    wheels = []
    for wheel in rebuild.wheels:
        fields = datafile.to_plain(wheel)
        wheels.append({"file": fields.pop("file_name"), "identical": wheel.is_identical, **fields})
    plain = {
        "set": set_id,
        "identical": rebuild.is_identical,
        "wheels": wheels,
        "rebuilder": rebuild.rebuilder,
        "toolchain": {name: {"manifest": a, "here": b} for name, (a, b) in prepared.toolchain.items()},
        "verdict": verdict,
        "kept": stored.digest if stored else None,
        "key": stored.key_id if stored else None,
    }
    error = WheelError(
        f"the set {short_id(set_id)} did not come out the same: {'; '.join(rebuilds.sentences(rebuild))}",
        tip=f"the wheels are in {job.work_dir / 'wheels'}; cairn diff shows more",
    )
    text = [*_text(rebuild, stored), *([Warn(late)] if late else [])]
    return Answer(plain, text, error=None if rebuild.is_identical else error)


def _plan(request: Challenge, prepared: Prepared) -> Answer:
    frozen = prepared.frozen
    rows = [(project.name, project.origin, project.hashtag, project.commit) for project in frozen.projects]
    plain = {
        "set": request.set_id,
        "python": prepared.python.version,
        "rocm_sdk": frozen.sdk_version,
        "projects": [dict(zip(("name", "origin", "hashtag", "commit"), row, strict=True)) for row in rows],
        "work_dir": request.work_dir,
        "dry_run": True,
    }
    first = (
        f"would build {count(frozen.projects, 'project')} of {short_id(request.set_id)} in {request.work_dir}"
    )
    return Answer(plain, [first, Table(("project", "origin", "hashtag", "commit"), rows)])


def _text(rebuild: Rebuild, stored: StoredRebuild | None) -> Iterator[Piece]:
    for wheel in rebuild.wheels:
        if wheel.is_identical:
            yield "done", f"{wheel.file_name} is identical"
        else:
            yield from _differing(wheel)
    if rebuild.is_identical:
        yield f"rebuilt identically by {rebuild.rebuilder}: {count(rebuild.wheels, 'wheel')}"
    if stored is None:
        yield Note("the verdict is not signed, and was not put beside the set: name a key with --sign-key")
    else:
        yield f"the verdict {short_id(stored.digest)} of {stored.by} is signed, and lies beside the set"


def _differing(wheel: RebuiltWheel) -> Iterator[Piece]:
    yield "failed", f"{wheel.file_name} {'differs' if wheel.rebuilt else 'did not come out'}"
    if wheel.same_inputs is False:
        yield "    its inputs were others: sources, settings, tools or what it is built against"
    for difference in wheel.differences[:_SHOWN]:
        yield f"    {difference.member}: {', '.join(difference.causes)}: {difference.example}"
    if len(wheel.differences) > _SHOWN:
        yield f"    and {len(wheel.differences) - _SHOWN} members more: see --json"


COMMANDS = {"challenge": command(ChallengeSet, _challenge, needs="release")}
