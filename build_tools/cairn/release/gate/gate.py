"""What promotion demands of a set. The default is no: what is missing, skipped or cancelled does not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import Version

from cairn.errors import CairnError
from cairn.formats.zip.reader import Archive
from cairn.release.gate import evidence, install_check
from cairn.release.gate.evidence import Bypass
from cairn.release.gate.judgement import Demand, GateReport
from cairn.release.index import keys
from cairn.release.index.generation import FileRef, now
from cairn.release.index.snapshot import Snapshot, refs_of
from cairn.release.publish.rules import file_problems, sorting_below
from cairn.release.publish.set_resolution import resolve_set
from cairn.release.records import KeptRecord
from cairn.release.serve.server import serving
from cairn.store import transfer
from cairn.store.protocol import Store, sha256_of
from cairn.wheels.contents import providers
from cairn.wheels.metadata import wheel_info
from cairn.wheels.verify import Expectation, verify
from cairn.wheels.wheelset import SetWheel, WheelSet

_TESTED = "tested on hardware of each target"  # the one demand that a bypass may stand in for


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the gate judges.

    Attributes:
        source: the index that has the set.
        target: the index that is to have it.
        after: `target` as it will be.
        wheel_set: the set.
        records: every test record of it.
        bypass: a named user's word in place of a passed record.
        python: the interpreter to install with; None is ours.
    """

    source: Snapshot
    target: Snapshot
    after: Snapshot
    wheel_set: WheelSet
    records: Sequence[KeptRecord] = ()
    bypass: Bypass | None = None
    python: Path | None = None

    @property
    def store(self) -> Store:
        """Where both indexes live."""
        return self.source.index.store


def check(case: Case) -> GateReport:
    """Judge a set; nothing is changed."""
    records = [kept.record for kept in case.records]
    return GateReport(
        set_id=case.wheel_set.id,
        judged=now(),
        demands=tuple(_judged(case)),
        untested=evidence.untested(case.wheel_set, records),
    )


def _judged(case: Case) -> Iterator[Demand]:
    wheel_set, records = case.wheel_set, [kept.record for kept in case.records]
    # What is demanded, who looks for problems, and what to say where there are none.
    demands: Sequence[tuple[str, Callable[[Case], Sequence[str]], str]] = (
        ("every file passes verify", _findings, "no finding"),
        (_TESTED, lambda c: evidence.problems(c.wheel_set, records), evidence.why(wheel_set, records)),
        ("pip and uv install it, every extra, from the index as it will be", _uninstallable, "they do"),
        (
            "versions sort above what is there",
            lambda c: sorting_below(c.target, [_ref(wheel) for wheel in c.wheel_set.wheels]),
            "they do",
        ),
        ("no version is of another build", _other_builds, "none is"),
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


def _findings(case: Case) -> tuple[str, ...]:
    problems = []
    wheels = [ref for ref in refs_of(case.wheel_set) if ref.filename.endswith(".whl")]
    with transfer.as_files(case.store, [keys.file_key(ref.sha256, ref.filename) for ref in wheels]) as paths:
        here = {path.name: path for path in paths.values()}
        shipped: set[str] = set()  # the shared libraries in the wheels of the closure, by file name
        for path in here.values():
            with Archive.open(path) as archive:
                shipped |= providers.library_names(archive)
        base = Expectation(
            targets=None,
            siblings={wheel.distribution: wheel.version for wheel in case.wheel_set.wheels},
            provided_libraries=tuple(sorted(shipped)),
            python=case.wheel_set.python,
            forbidden_strings=(),
        )
        for wheel in case.wheel_set.wheels:
            expected = replace(
                base,
                # set.json says what was found when the set was made: a wheel without device code stays one.
                targets=case.wheel_set.targets if wheel.targets else ("cpu",),
                require_device_code=bool(wheel.targets),
            )
            for finding in verify(here[wheel.file_name], expected):
                where = f" ({finding.member})" if finding.member else ""
                problems.append(f"{wheel.file_name}{where}: {finding.reason}")
    return tuple(problems)


def _uninstallable(case: Case) -> tuple[str, ...]:
    requirements = []
    for wheel in case.wheel_set.wheels:
        with case.store.as_file(keys.file_key(wheel.sha256, wheel.file_name)) as path:
            extras = ",".join(wheel_info.read(path).extras)
        requirements.append(f"{wheel.distribution}{f'[{extras}]' if extras else ''}=={wheel.version}")
    wanted = {(wheel.distribution, Version(wheel.version)) for wheel in case.wheel_set.wheels}
    problems = list(resolve_set(case.after, case.wheel_set).problems)
    with serving(case.store) as server:
        url = keys.set_url(server.url, case.wheel_set.id)
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


def _other_builds(case: Case) -> tuple[str, ...]:
    return file_problems(case.target, [case.source.entry(ref) for ref in refs_of(case.wheel_set)])


def _incomplete(case: Case) -> tuple[str, ...]:
    problems = []
    for file in case.wheel_set.files:
        entry = case.source.entry(FileRef(filename=file.file_name, sha256=file.sha256))
        if (entry.metadata_sha256, entry.requires_python) != (file.metadata_sha256, file.requires_python):
            problems.append(
                f"{file.file_name}: set.json and {case.source.index.name} say different things of it"
            )
        with case.store.open(keys.file_key(file.sha256, file.file_name)) as stream:
            if sha256_of(stream) != file.sha256:
                problems.append(f"{file.file_name} was changed in the store")
    return tuple(problems)


def _ref(wheel: SetWheel) -> FileRef:
    return FileRef(filename=wheel.file_name, sha256=wheel.sha256)
