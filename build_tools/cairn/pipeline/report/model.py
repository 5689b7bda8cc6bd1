"""What a report says, as plain values; every wing can fill them, and none is known here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Commit:
    """Where one project's source came from.

    Attributes:
        project: its short name.
        origin: a URL or path, without credentials.
        hashtag: what was asked for.
        commit: what that was.
        hipify_commit: the local commit on top of it; None where nothing was hipified.
    """

    project: str
    origin: str
    hashtag: str
    commit: str
    hipify_commit: str | None = None


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One thing that was done.

    Attributes:
        name: what people read.
        start: seconds since a zero that all stages of a report share.
        end: likewise.
        mark: `done`, `failed`, `kept` from an earlier run, or `bypassed`.
        detail: one line, such as `from the cache`.
    """

    name: str
    start: float
    end: float
    mark: str = "done"
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A wheel of the set.

    Attributes:
        file_name: its file name.
        size: bytes.
        sha256: of the file.
        targets: what it has device code for; empty for none.
        seconds: what it took to build; None where it was not built in this run.
    """

    file_name: str
    size: int
    sha256: str
    targets: tuple[str, ...]
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Skip:
    """A test that did not run, and why."""

    test: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class TestRun:
    """A test record, as people read it; the fields mean what they mean there."""

    __test__ = False  # pytest would collect the name

    kind: str
    verdict: str
    reason: str
    family: str
    hardware: tuple[str, ...]
    passed: int
    failed: int
    errors: int
    skipped: int
    device_passed: int
    seconds: float
    started: str
    skips: tuple[Skip, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Demand:
    """One demand of the gate.

    Attributes:
        number: of the six.
        name: what is demanded.
        outcome: `met`, `not met` or `bypassed`.
        reason: why it is met, or why not.
        bypass: who let it through all the same, and why; empty where nobody did.
    """

    number: int
    name: str
    outcome: str
    reason: str
    bypass: str = ""


@dataclass(frozen=True, kw_only=True)
class Gate:
    """What the gate found.

    Attributes:
        judged: when, RFC 3339 in UTC.
        kept: it was in an earlier run, and the set has been released since.
        demands: in its order.
    """

    judged: str
    kept: bool
    demands: tuple[Demand, ...]


@dataclass(frozen=True, kw_only=True)
class Link:
    """Something that lies beside the report.

    Attributes:
        name: what people read.
        target: a URL, relative to the report where it is beside it.
    """

    name: str
    target: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything a report says.

    Attributes:
        title: of the page.
        stack: its name.
        line: its release line.
        set_id: of the wheels.
        generated: ISO 8601, UTC.
        verdict: one word, such as `passed`, `failed`, `promoted`.
        python: version of Python that the wheels are for.
        platform: what they run on.
        rocm_version: of the SDK; None for a set without ROCm.
        targets: what they were built for.
        untested: `untested on hardware: …`; empty for a set that was tested on all that it is for.
        install_lines: commands that install the set.
        installed: what has installed it already, a sentence; empty for nothing.
        notes: sentences that must not be overlooked.
        links: what else there is.
        commits: one for each project.
        stages: in any order.
        wheels: those of the set.
        tests: one for each test record.
        gate: what promotion demanded; None where nobody kept that.
    """

    title: str
    stack: str
    line: str
    set_id: str
    generated: str
    verdict: str
    python: str
    platform: str
    install_lines: tuple[str, ...]
    installed: str = ""
    rocm_version: str | None = None
    targets: tuple[str, ...] = ()
    untested: str = ""
    notes: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    commits: tuple[Commit, ...] = ()
    stages: tuple[Stage, ...] = ()
    wheels: tuple[Wheel, ...] = ()
    tests: tuple[TestRun, ...] = ()
    gate: Gate | None = None
