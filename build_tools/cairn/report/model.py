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
        ok: whether it succeeded.
        detail: one line, such as `from the cache`.
    """

    name: str
    start: float
    end: float
    ok: bool = True
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
    skips: tuple[Skip, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Demand:
    """One demand of the gate, how it stands in a word or two, and why."""

    number: int
    name: str
    status: str
    reason: str


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
        pip_line: the command that installs the set.
        notes: sentences that must not be overlooked.
        commits: one for each project.
        stages: in any order.
        wheels: those of the set.
        tests: one for each test record.
        demands: of the gate, in its order.
    """

    title: str
    stack: str
    line: str
    set_id: str
    generated: str
    verdict: str
    pip_line: str
    notes: tuple[str, ...] = ()
    commits: tuple[Commit, ...] = ()
    stages: tuple[Stage, ...] = ()
    wheels: tuple[Wheel, ...] = ()
    tests: tuple[TestRun, ...] = ()
    demands: tuple[Demand, ...] = ()
