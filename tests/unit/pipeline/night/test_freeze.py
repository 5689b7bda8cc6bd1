"""A night begins with something to build, of one line, and goes on with what it began with."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cairn import datafile
from cairn.errors import CairnError, NetworkError, StoreError, UsageError
from cairn.pipeline.night import freeze as freezing
from cairn.pipeline.night import needs, plan, shards, standing
from cairn.pipeline.night.freeze import freeze
from cairn.pipeline.night.needs import FreezeRequest
from cairn.pipeline.night.plan import NightPlan, NightRun
from cairn.release.audit.audit import audit
from cairn.release.index.generation import FileEntry, ProjectState, now
from cairn.release.index.snapshot import Change
from cairn.release.publish import mirror_lock
from cairn.release.publish.mirror_lock import LockedFile, MirrorLock
from cairn.stack import Sdk
from cairn.store.memory import MemoryStore
from helpers.night import FROZEN, leg_of, plan_of
from helpers.release import commit
from helpers.trust import rooted


@pytest.fixture
def request_(run: NightRun, tmp_path: Path) -> FreezeRequest:
    legs, work = run.plan.legs, tmp_path / "work"
    return FreezeRequest(night="8", stack=run.stack, legs=legs, work_dir=work, release="release", like="7")


def test_the_manifest_of_an_earlier_night_is_taken_again(run: NightRun, request_: FreezeRequest) -> None:
    made = freeze(run.store, request_)
    assert made.manifest_sha256 == run.plan.manifest_sha256
    assert plan.read(run.store, "8") == plan.read(run.store, "latest") == made
    assert plan.read(run.store, "latest", line="main") == made
    with pytest.raises(StoreError, match="has no night of nightly"):
        plan.read(run.store, "latest", line="nightly")


def test_a_dry_run_begins_nothing_and_what_is_there_goes_on(run: NightRun, request_: FreezeRequest) -> None:
    freeze(run.store, request_, dry_run=True)
    assert plan.find(run.store, "8") is None
    again = dataclasses.replace(request_, night="7", legs=(leg_of("gfx110X-all"),))
    assert freeze(run.store, again) == run.plan


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"legs": ()}, "the matrix is empty"),
        ({"legs": (leg_of("gfx94X-dcgpu"), leg_of("gfx94X-dcgpu"))}, "a leg twice"),
        ({"legs": (leg_of("gfx94X-dcgpu", line="nightly"),)}, "is of the line nightly"),
        ({"legs": (leg_of("gfx94X-dcgpu", python="3.12"),)}, "and not for 3.12"),
        ({"night": "../7"}, "cannot name a night"),
        ({"night": "7", "release": "nightly"}, "line main, to release, and not of"),
        ({"release": "nightyl"}, "'nightyl' is not a channel"),
        ({"image": "ghcr.io/me/build:latest"}, "is not named by its digest"),
        ({"image": "ghcr.io/me/build@sha256:latest"}, "is not named by its digest"),
        ({"image": f"a@sha256:{'0' * 64}\nto=release"}, "is not named by its digest"),
    ],
)
def test_what_cannot_become_a_night_is_refused(
    run: NightRun, request_: FreezeRequest, changes: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        freeze(run.store, dataclasses.replace(request_, **changes))  # type: ignore[arg-type]
    assert plan.find(run.store, "8") is None


def test_a_release_is_of_the_sdk_that_it_names(run: NightRun, request_: FreezeRequest) -> None:
    stack = msgspec.structs.replace(run.stack, sdk=Sdk())
    named = dataclasses.replace(request_, stack=stack, rocm_version="7.10.0")
    made = freeze(run.store, named)
    assert plan.manifest_of(run.store, made).sdk_version == "7.10.0"
    assert made.manifest_sha256 != run.plan.manifest_sha256
    # Nothing of the night is one of its sets: each leg is built again.
    release = dataclasses.replace(run, plan=made)
    assert [standing.look(release, leg).state for leg in made.legs] == ["missing"] * 2


def test_a_night_that_was_killed_as_it_began_goes_on(run: NightRun, request_: FreezeRequest) -> None:
    other = msgspec.structs.replace(FROZEN, toolchain={"image": "a"})
    run.store.write("nights/8/manifest.json", other.canonical())
    assert freeze(run.store, request_).manifest_sha256 == other.digest()


@pytest.mark.parametrize(
    ("channel", "version", "reason"),
    [
        ("staging", "2.9.0", "staging/gfx94X-dcgpu has torch 2.9.0 from the manifest eeeeeeeeeeee"),
        ("release", "2.9.0", "release/gfx94X-dcgpu has torch 2.9.0 from the manifest eeeeeeeeeeee"),
        ("release", "2.9.1", "release/gfx94X-dcgpu: torch 2.9.0 sorts below 2.9.1"),
    ],
)
def test_versions_that_could_not_be_published_are_refused_before_the_builds(
    run: NightRun, request_: FreezeRequest, channel: str, version: str, reason: str
) -> None:
    """Otherwise the night is refused at staging, or at the gate, after hours of building."""
    torch = msgspec.structs.replace(FROZEN.projects[0], version="2.9.0")
    frozen = msgspec.structs.replace(FROZEN, projects=(torch,))
    earlier = msgspec.structs.replace(run.plan, night="6", manifest_sha256=frozen.digest())
    plan.create(run.store, earlier, frozen)
    request = dataclasses.replace(request_, like="6", legs=run.plan.legs[:1])
    name = f"torch-{version}-cp311-cp311-linux_x86_64.whl"
    file = FileEntry(filename=name, sha256="a" * 64, size=1, version=version, build="e" * 64)
    index = run.index(run.plan.legs[0], channel)

    def hold(file: FileEntry) -> None:
        state = ProjectState(name="torch", files=()).with_files((file,))
        commit(index, "publish", lambda _now: Change(projects={"torch": state}))

    hold(file)
    with pytest.raises(StoreError, match="could not be published") as refused:
        freeze(run.store, request)
    assert reason in str(refused.value)
    assert plan.find(run.store, "8") is None
    # One family's version is no reason against the others, nor one in a channel that its sets do not go to.
    lines: list[str] = []
    freeze(run.store, dataclasses.replace(request_, like="6", night="9"), say=lines.append)
    assert any(f"{run.plan.legs[0].name} will not get through: {reason}" in line for line in lines)
    if channel == "release":
        elsewhere = leg_of("gfx94X-dcgpu", test_runs_on=())
        freeze(run.store, dataclasses.replace(request, night="10", legs=(elsewhere,)))
    # What the same manifest gave may be there: a night that goes on, or has more legs.
    hold(msgspec.structs.replace(file, build=frozen.digest()))
    assert freeze(run.store, request).night == "8"


def test_a_build_for_all_families_takes_no_index_of_one(run: NightRun, request_: FreezeRequest) -> None:
    stack = msgspec.structs.replace(run.stack, sdk=Sdk())
    legs = tuple(leg_of(name, build="main-py3.99", split=True) for name in ("gfx94X-dcgpu", "gfx110X-all"))
    urls = "https://example.org/{family}/"
    request = dataclasses.replace(request_, stack=stack, legs=legs, rocm_index_url=urls)
    with pytest.raises(UsageError, match=r"is the index of one family, and main Python 3.99 linux_x86_64, 2"):
        needs.version_of_sdk(request, lambda _line: None)


def test_the_lists_that_suites_read_are_frozen_once_and_missed(
    run: NightRun, request_: FreezeRequest, tmp_path: Path
) -> None:
    content, file = b'{"test_a (__main__.TestA)": ["1", "https://example.org/1", []]}', tmp_path / "a.json"
    file.write_bytes(content)
    suite = Path(run.stack.folder) / "suite.toml"
    with suite.open("a") as toml:
        toml.write(f'lists.DISABLED = {{ format = "condensed", url = "{file.as_uri()}" }}\n')
    leg = leg_of("gfx94X-dcgpu", suites=("default",))
    request = dataclasses.replace(request_, legs=(leg,))
    made = freeze(run.store, request)
    digest = hashlib.sha256(content).hexdigest()
    key = f"nights/8/lists/{digest}.json"
    assert (made.lists, run.store.read(key).data) == ({file.as_uri(): digest}, content)
    assert shards.lists_of(dataclasses.replace(run, plan=made)) == {file.as_uri(): content}
    # The manifest is the earlier night's: wheels are not built again for a list.
    assert made.manifest_sha256 == run.plan.manifest_sha256

    def said() -> list[str]:
        return [problem.said for problem in audit(run.store).problems if "lists" in problem.where]

    file.unlink()
    assert freeze(run.store, request) == made  # goes on with what it has
    assert said() == []
    run.store.write(key, b"{}")
    assert said() == [f"{key} was changed: it has sha256 {hashlib.sha256(b'{}').hexdigest()}, not {digest}"]
    with pytest.raises(StoreError, match="was changed"):
        shards.lists_of(dataclasses.replace(run, plan=made))
    run.store.delete(key)
    assert said() == [f"{key} is missing, which nights/8/night.json names: restore it from a copy"]
    night = run.store.read("nights/8/night.json").data
    for text in (b"null", night.replace(b'"lists": {', b'"lists": "", "a": {')):
        run.store.write("nights/8/night.json", text)
        (problem,) = (one for one in audit(run.store).problems if one.where == "nights/8/night.json")
        assert "nights/8/night.json names no lists of tests" in problem.said
    run.store.write("nights/8/night.json", night)
    # Nothing begins without the list, but a night whose legs run no suite.
    with pytest.raises(NetworkError, match="there is no list DISABLED at file:"):
        freeze(run.store, dataclasses.replace(request, night="9"))
    assert plan.find(run.store, "9") is None
    assert not freeze(run.store, dataclasses.replace(request_, night="9")).lists


class BegunMeanwhile(MemoryStore):
    """A store in which somebody else begins the night between the look at it and the writing of it."""

    other: NightPlan | None = None

    def write_if(self, key: str, data: bytes, **options: Any) -> Any:
        other, self.other = self.other, None
        if other is not None:
            plan.create(self, other, FROZEN)
        return super().write_if(key, data, **options)


def test_of_two_who_begin_a_night_the_second_goes_on_with_that_of_the_first(
    run: NightRun, request_: FreezeRequest
) -> None:
    store = BegunMeanwhile()
    plan.create(store, run.plan, FROZEN)
    store.other = msgspec.structs.replace(run.plan, night="8")
    assert freeze(store, request_).frozen == run.plan.frozen
    store.other = msgspec.structs.replace(run.plan, night="9", release="nightly")
    with pytest.raises(UsageError, match="to nightly, and not of"):
        freeze(store, dataclasses.replace(request_, night="9"))


@pytest.mark.parametrize(
    "changes", [{"night": "9"}, {"frozen": "yesterday"}, {"frozen": "2026-01-01T00:00:00"}, {"legs": 7}]
)
def test_a_night_that_was_edited_is_none_and_holds_up_no_other(
    run: NightRun, changes: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    plain = datafile.to_plain(run.plan) | {"night": "8", "frozen": now()} | changes
    run.store.write("nights/8/night.json", json.dumps(plain).encode())
    assert plan.read(run.store, "latest") == run.plan
    assert "skipping the night 8" in capsys.readouterr().err
    with pytest.raises(CairnError):
        plan.read(run.store, "8")


def test_the_last_night_to_a_channel_is_not_the_last_of_all(run: NightRun) -> None:
    """A release waits for its reviewers, and no job of the nights may take it for one of theirs."""
    later = msgspec.structs.replace(run.plan, night="8", release="nightly", frozen=now())
    plan.create(run.store, later, FROZEN)
    assert plan.read(run.store, "latest").night == "8"
    assert plan.read(run.store, "latest", release="release").night == "7"
    with pytest.raises(StoreError, match="has no night to prerelease"):
        plan.read(run.store, "latest", release="prerelease")
    with pytest.raises(StoreError, match="has no night"):
        plan.read(run.store, "latest", stack="pytorch")


def test_a_night_of_tomorrow_is_not_taken_for_the_last_one(run: NightRun) -> None:
    """A machine's clock was wrong when it was frozen, or ours is: any night may be the one that is meant."""
    plan.create(
        run.store, msgspec.structs.replace(run.plan, night="8", frozen="2999-01-01T00:00:00Z"), FROZEN
    )
    with pytest.raises(
        StoreError, match="night, 8, began at 2999-01-01T00:00:00Z, which is yet to come"
    ) as caught:
        plan.read(run.store, "latest")
    assert "by its id" in (caught.value.tip or "")
    assert plan.read(run.store, "7") == run.plan


def test_two_plans_are_never_one_night(run: NightRun) -> None:
    with pytest.raises(StoreError, match="has different bytes"):
        plan.create(run.store, plan_of(leg_of("gfx110X-all")), plan.manifest_of(run.store, run.plan))


def test_a_night_for_the_cpu_alone_asks_for_no_rocm(run: NightRun, request_: FreezeRequest) -> None:
    cpu, legs = leg_of("cpu"), tuple(leg_of(name, build="b", split=True) for name in ("gfx942", "gfx1100"))
    stack = msgspec.structs.replace(run.stack, sdk=Sdk())
    request = dataclasses.replace(request_, stack=stack, legs=(cpu,))
    for url in ("", "https://example.org/{family}/"):
        alone = dataclasses.replace(request, rocm_index_url=url)
        assert needs.version_of_sdk(alone, lambda _line: None) is None
    # The manifest is for the other legs of the trigger, too.
    beside_others = dataclasses.replace(alone, others=(cpu, *legs))
    with pytest.raises(UsageError, match="is the index of one family"):
        needs.version_of_sdk(beside_others, lambda _line: None)


def test_what_the_mirror_lock_lacks_of_requirements_is_named_for_each_place(
    run: NightRun, request_: FreezeRequest
) -> None:
    requires = ("numpy==2.1", "pywin32==312; sys_platform == 'win32'", "torch=={version:torch}", "six==1.17")
    project = msgspec.structs.replace(run.stack.projects[0], requires=requires)
    stack = msgspec.structs.replace(run.stack, projects=(project,))
    legs = tuple(leg_of("gfx94X-dcgpu", python=python) for python in ("3.11", "3.12"))
    request = dataclasses.replace(request_, stack=stack, legs=legs, like="")
    names = ("numpy-2.1-cp311-cp311-manylinux_2_28_x86_64.whl", "six-1.16-py2.py3-none-any.whl")
    files = tuple(
        LockedFile(name=name.split("-")[0], version=name.split("-")[1], file_name=name, sha256="0" * 64)
        for name in names
    )
    lock = MirrorLock(stack=stack.name, pythons=("3.11", "3.12"), platforms=("linux_x86_64",), files=files)
    mirror_lock.write(mirror_lock.path_of(stack), lock)
    texts = [str(problem).partition(" has no file ")[2] for problem in needs.lacking(run.store, request)]
    assert [text for text in texts if text] == [
        "for numpy==2.1, for Python 3.12 on linux_x86_64",
        "for six==1.17, for Python 3.11 on linux_x86_64 and Python 3.12 on linux_x86_64",
    ]


@pytest.mark.parametrize("damage", [b"{", None], ids=["damaged", "gone"])
def test_an_earlier_night_that_lost_its_manifest_holds_up_no_other(
    run: NightRun, request_: FreezeRequest, damage: bytes | None
) -> None:
    anew = dataclasses.replace(request_, like="")
    assert freezing._or_earlier(run.store, anew, FROZEN, lambda _line: None) == FROZEN
    key = "nights/7/manifest.json"
    run.store.delete(key) if damage is None else run.store.write(key, damage)
    assert freezing._or_earlier(run.store, anew, FROZEN, lambda _line: None) == FROZEN


def test_a_night_goes_on_with_the_refs_it_began_with_however_they_are_written(
    run: NightRun, request_: FreezeRequest
) -> None:
    own = run.stack.projects[0]
    origin = "https://example.org/own.git"
    projects = (msgspec.structs.replace(own, origin=msgspec.structs.replace(own.origin, url=origin)),)
    stack = msgspec.structs.replace(run.stack, projects=projects)
    begun = msgspec.structs.replace(run.plan, release="dev", refs=(f"{own.name}=mine",))
    for written in ("mine", f"{origin}@mine", "https://me:secret@example.org/own@mine"):
        again = dataclasses.replace(
            request_, stack=stack, like="", release="dev", refs=f"{own.name}={written}"
        )
        freezing._refuse_other(run.store, begun, again)
    with pytest.raises(UsageError, match="the night 7 is of main, torch=mine"):
        freezing._refuse_other(
            run.store, begun, dataclasses.replace(again, refs=f"{own.name}=https://example.org/a@mine")
        )


def test_a_night_that_was_killed_as_it_began_is_not_of_the_refs_of_the_next(
    run: NightRun, request_: FreezeRequest
) -> None:
    own = FROZEN.projects[0]
    chosen = msgspec.structs.replace(own, hashtag="mine")
    begun = msgspec.structs.replace(FROZEN, projects=(chosen, *FROZEN.projects[1:]), off_line=(own.name,))
    run.store.write("nights/8/manifest.json", begun.canonical())
    mine = f"{own.name}={own.origin}@mine"
    request = dataclasses.replace(request_, like="", release="dev", refs=f"{own.name}=another")
    with pytest.raises(UsageError, match=f"the night 8 is of main, {mine}"):
        freeze(run.store, request)
    assert freeze(run.store, dataclasses.replace(request, refs=mine)).refs == (mine,)


class FirstAt(MemoryStore):
    """A store in which another run begins the same night, as ours has written its manifest."""

    first: NightPlan | None = None

    def write_if(self, key: str, data: bytes, **options: Any) -> bool:
        first, self.first = self.first, None
        if first is not None and key.endswith("/night.json"):
            super().write_if(key, datafile.dumps(first).encode(), etag=None)
            first = None
        self.first = first
        return super().write_if(key, data, **options)


def test_of_two_who_begin_a_night_by_different_manifests_the_first_keeps_its_own(
    run: NightRun, request_: FreezeRequest
) -> None:
    store, theirs = FirstAt(), msgspec.structs.replace(FROZEN, toolchain={"image": "theirs"})
    rooted(store)
    plan.create(store, run.plan, FROZEN)
    store.write("nights/8/manifest.json", theirs.canonical())
    store.first = msgspec.structs.replace(run.plan, night="8", manifest_sha256=theirs.digest())
    with pytest.raises(UsageError, match="8 does not say whose night it is"):
        freeze(store, dataclasses.replace(request_, like=run.plan.sealed_id))
    assert plan.manifest_of(store, plan.read(store, "8")) == theirs


class Killed(BaseException):
    """Stands for the end of the process that freezes."""


class KilledAt(MemoryStore):
    """A store whose writer is killed at one of its writes: before it, or once it is done."""

    def __init__(self, objects: dict[str, bytes], number: int, *, after: bool) -> None:
        super().__init__()
        self.objects.update(objects)
        self.left, self.after = number, after

    def write_if(self, key: str, data: bytes, **options: Any) -> bool:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Killed(key)
        is_written = super().write_if(key, data, **options)
        if self.left == 0:
            raise Killed(key)
        return is_written

    def write(self, key: str, data: bytes, **options: Any) -> None:
        self.write_if(key, data, etag=None) or super().write(key, data, **options)


@pytest.mark.parametrize("is_rooted", [False, True], ids=["by nobody", "by a root"])
def test_a_night_that_was_killed_at_any_write_as_it_began_is_begun_again_by_its_id(
    run: NightRun, request_: FreezeRequest, *, is_rooted: bool
) -> None:
    store = run.store
    assert isinstance(store, MemoryStore)
    if is_rooted:
        rooted(store)
    moved = msgspec.structs.replace(FROZEN, toolchain={"image": "another"})
    of_moved = msgspec.structs.replace(run.plan, night="6", manifest_sha256=moved.digest())
    plan.create(store, of_moved, moved)
    request, before = dataclasses.replace(request_, like=run.plan.sealed_id), dict(store.objects)
    ends = set[str]()
    for after in (False, True):
        for number in itertools.count(1):
            killed = KilledAt(before, number, after=after)
            try:
                freeze(killed, request)
            except Killed as end:
                ends.add(str(end))
                for again in (request, dataclasses.replace(request, like=of_moved.sealed_id)):
                    rest = MemoryStore()
                    rest.objects.update(killed.objects)
                    if again is request or not (after and "night.json" in str(end)):
                        made = freeze(rest, again)
                        assert plan.read(rest, made.sealed_id) == made
                        assert plan.manifest_of(rest, made).digest() == made.manifest_sha256
                    elif not is_rooted:
                        assert plan.manifest_of(rest, freeze(rest, again)) == FROZEN
                    else:  # who knows by whom it was begun?
                        with pytest.raises(UsageError, match="8 does not say whose night it is"):
                            freeze(rest, again)
                continue
            break
    assert {"nights/8/manifest.json", "nights/8/night.json"} <= ends
