"""What promotion demands of a set. The default is no: what is missing, skipped or cancelled does not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import Version

from cairn.errors import CairnError
from cairn.formats.zip.reader import Archive
from cairn.release.gate import evidence, install_check
from cairn.release.gate.audit import file_problems
from cairn.release.gate.evidence import Bypass
from cairn.release.gate.judgement import Demand, GateReport
from cairn.release.index import keys, write
from cairn.release.index.generation import FileRef, StagedSet, now
from cairn.release.index.snapshot import Channel, Snapshot
from cairn.release.publish.rules import name_clashes, sorting_below
from cairn.release.publish.wheel_set import read_set
from cairn.release.serve.server import serving
from cairn.store.folder import LocalStore
from cairn.testing.record import TestRecord
from cairn.wheels.contents import providers
from cairn.wheels.metadata import wheel_info
from cairn.wheels.verify import Expectation, verify
from cairn.wheels.wheelset import SetWheel, WheelSet

_TESTED = "tested on hardware of each target"  # the one demand that a bypass may stand in for


@dataclass(frozen=True, kw_only=True)
class _Case:
    store: LocalStore
    source: Snapshot
    target: Snapshot
    staged: StagedSet
    wheel_set: WheelSet
    records: Sequence[TestRecord]
    bypass: Bypass | None
    python: Path | None

    def path(self, ref: FileRef) -> Path:
        return self.store.path / keys.file_key(ref.sha256, ref.filename)


def check(  # noqa: PLR0913 - each is one independent piece of evidence
    store: LocalStore,
    set_id: str,
    *,
    source: str = "staging",
    target: str = "release",
    records: Sequence[TestRecord] = (),
    bypass: Bypass | None = None,
    python: Path | None = None,
) -> GateReport:
    """Judge a set that is in `source` and wants to go to `target`; nothing is changed.

    Args:
        store: where both channels live.
        set_id: the set.
        source: the channel that has it.
        target: the channel that is to have it.
        records: what was tested.
        bypass: a named user's word in place of a record.
        python: the interpreter to install with; None is ours.

    Raises:
        StoreError: `source` has no such set.
    """
    before = Channel(store, source).load()
    case = _Case(
        store=store,
        source=before,
        target=Channel(store, target).load(),
        staged=before.set(set_id),
        wheel_set=read_set(store, source, set_id),
        records=records,
        bypass=bypass,
        python=python,
    )
    return GateReport(
        set_id=set_id,
        judged=now(),
        demands=tuple(_judged(case)),
        untested=evidence.untested(case.wheel_set, records),
    )


def _judged(case: _Case) -> Iterator[Demand]:
    wheel_set, records = case.wheel_set, case.records
    # What is demanded, who looks for problems, and what to say where there are none.
    demands: Sequence[tuple[str, Callable[[_Case], Sequence[str]], str]] = (
        ("every wheel passes verify", _findings, "no finding"),
        (_TESTED, lambda c: evidence.problems(c.wheel_set, c.records), evidence.why(wheel_set, records)),
        ("pip and uv install it, every extra, from its own index alone", _uninstallable, "both did"),
        ("versions sort above what is there", lambda c: sorting_below(c.target, c.staged.wheels), "they do"),
        ("no name has other bytes", lambda c: name_clashes(c.target, c.staged.closure), "none has"),
        ("the set is complete", _incomplete, "every file is there with its sha256"),
    )
    for number, (name, judge, good) in enumerate(demands, start=1):
        try:
            problems = judge(case)
        except (CairnError, OSError) as error:
            problems = (str(error),)  # what cannot be judged does not hold
        # A bypass stands for tests that could not run, and the pages then say untested. Where tests of these
        # very bytes failed, no word helps.
        may_bypass = name == _TESTED and not evidence.failures(wheel_set, records)
        bypass = case.bypass if problems and may_bypass else None
        yield Demand(
            number=number,
            name=name,
            outcome="met" if not problems else "bypassed" if bypass else "not met",
            reason="; ".join(problems) or good,
            bypass=bypass,
        )


def _findings(case: _Case) -> tuple[str, ...]:
    shipped: set[str] = set()  # the shared libraries in the wheels of the closure, by file name
    for ref in case.staged.closure:
        if ref.filename.endswith(".whl"):
            with Archive.open(case.path(ref)) as archive:
                shipped |= providers.library_names(archive)
    base = Expectation(
        targets=None,
        siblings={wheel.distribution: wheel.version for wheel in case.wheel_set.wheels},
        provided_libraries=tuple(sorted(shipped)),
        python=case.wheel_set.python,
        forbidden_strings=(),
    )
    problems = []
    for wheel in case.wheel_set.wheels:
        expected = replace(
            base,
            # set.json says what was found when the set was made: a wheel without device code stays one.
            targets=case.wheel_set.targets if wheel.targets else ("cpu",),
            require_device_code=bool(wheel.targets),
        )
        for finding in verify(case.path(_ref(wheel)), expected):
            where = f" ({finding.member})" if finding.member else ""
            problems.append(f"{wheel.file_name}{where}: {finding.reason}")
    return tuple(problems)


def _uninstallable(case: _Case) -> tuple[str, ...]:
    requirements = []
    for wheel in case.wheel_set.wheels:
        extras = ",".join(wheel_info.read(case.path(_ref(wheel))).extras)
        requirements.append(f"{wheel.distribution}{f'[{extras}]' if extras else ''}=={wheel.version}")
    wanted = {(wheel.distribution, Version(wheel.version)) for wheel in case.wheel_set.wheels}
    problems = []
    with serving(case.store.path) as server:
        url = keys.index_url(server.url, case.source.channel.name, case.staged.set_id)
        for installer in ("pip", "uv"):
            done = install_check.install(
                installer,
                requirements,
                index_url=url,
                python=case.python,
                # The `rocm` sdist chooses its libraries for this, where there is no GPU to ask.
                environment={"ROCM_SDK_TARGET_FAMILY": case.wheel_set.family},
            )
            if done.problem:
                problems.append(f"{installer}: {done.problem}")
            elif not wanted <= done.versions:
                problems.append(f"{installer} installed something else: {', '.join(done.installed)}")
    return tuple(problems)


def _incomplete(case: _Case) -> tuple[str, ...]:
    listed = {_ref(wheel) for wheel in case.wheel_set.wheels}
    problems = [
        f"{ref.filename} is in only one of set.json and the index" for ref in listed ^ set(case.staged.wheels)
    ]
    for ref in case.staged.closure:
        entry = write.entry_of(case.source, ref)
        problems.extend(file_problems(case.store, entry, hashes=True))
    return tuple(problems)


def _ref(wheel: SetWheel) -> FileRef:
    return FileRef(filename=wheel.file_name, sha256=wheel.sha256)
