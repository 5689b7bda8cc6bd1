"""A whole night in a store with a root, and somebody who can write there and meddles between its jobs.

The jobs are the commands of the workflow, each on a machine of its own, with the keys and the variables that
the workflow gives it. Whatever is changed in the store between two of them, the next ones refuse it by a
line, or the bytes of the honest build are promoted; and nobody is given anything else to install.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import itertools
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import msgspec
import pytest

from cairn.cli.main import main
from cairn.errors import CairnError
from cairn.pipeline import install
from cairn.pipeline.night import plan as plans
from cairn.release.index import keys
from cairn.release.index.snapshot import Change, Index
from cairn.release.pages.targets_file import Machine
from cairn.release.trust import anchor
from cairn.release.trust.signers import Signer
from cairn.store.folder import LocalStore
from helpers import packing, tiny_stack
from helpers.provenance import signer
from helpers.release import commit
from helpers.sdk_index import Ended
from helpers.trust import BUILDER, OFFLINE, PROMOTER, TESTER, key_file

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("night-by-a-root")]

WHOLE = bool(os.environ.get("CAIRN_TEST_ALL"))
MALLORY = signer(66)
Objects = dict[str, bytes]
_MACHINES = itertools.count()


@dataclass(kw_only=True)
class Jobs:
    """The jobs of a night, on the machines of those who release, or of somebody who would like to.

    Attributes:
        folder: of their machines.
        stack: what they build.
        store: where.
        keys: of builder, tester and promoter.
        root: what CAIRN_ROOT says.
        named: the night as its freezing names it.
        leg: its only leg.
    """

    folder: Path
    stack: Path
    store: Path
    keys: Mapping[str, Signer]
    root: str = ""
    named: str = ""
    leg: str = ""
    artifacts: Path = field(default_factory=Path)

    def types(self, *words: object, key: str = "", root: bool = False) -> Ended:
        """Run a command on a new machine, as a job of the workflow does."""
        machine = self.folder / f"machine-{next(_MACHINES)}"
        shared = Path(os.environ.get("CAIRN_TEST_CACHE", self.folder / "cache"), "build-envs")
        shared.mkdir(parents=True, exist_ok=True)
        machine.mkdir(parents=True)
        (machine / "build-envs").symlink_to(shared)
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            for name in ("CAIRN_SIGN_KEY", "CAIRN_ROOT", "CAIRN_TRUST_STORE", "CAIRN_SIGN_PRIVATE_KEY"):
                patch.delenv(name, raising=False)
            patch.setenv("CAIRN_CACHE_DIR", str(machine))
            patch.setenv("GITHUB_RUN_ID", "2")
            if key:
                patch.setenv("CAIRN_SIGN_PRIVATE_KEY", self.keys[key].pem().decode())
            if root and self.root:
                patch.setenv("CAIRN_ROOT", self.root)
            if key == "promoter":
                patch.setenv("CAIRN_TRUST_STORE", str(self.store.with_name(f"{self.store.name}-memory")))
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    code: Any = main([str(word) for word in words])
                except SystemExit as end:
                    code = end.code
        shutil.rmtree(machine, ignore_errors=True)
        return Ended(int(code or 0), out.getvalue(), err.getvalue())

    def night(self, name: str, *words: object, store: Path | None = None, **how: Any) -> Ended:
        place = ("--stack", self.stack, "--store", store or self.store, "--night", self.named or "2")
        return self.types("ci", "night", name, *place, *words, **how)

    def freeze(self) -> Ended:
        matrix = self.folder / "matrix.json"
        matrix.write_text(self.types("matrix", "--stack", self.stack, "--trigger", "nightly", "--json").out)
        ended = self.night(
            "freeze", "--matrix", matrix, "--work-dir", self.folder / "freeze", "--json", root=True
        )
        if ended.code == 0:
            self.named, self.leg = ended.answer["named"], ended.answer["legs"][0]["id"]
        return ended

    def step(self, kind: str, phase: str, folder: Path, *words: object, **how: Any) -> Ended:
        where = ("--leg", self.leg, "--output-dir", folder, "--work-dir", self.folder / "work")
        return self.night("step", kind, "--phase", phase, *where, *words, **how)

    def fetch(self, kind: str, folder: Path) -> Ended:
        return self.step(kind, "fetch", folder, root=kind == "build")

    def build(self, folder: Path, *words: object, key: str = "") -> Ended:
        self.artifacts, left = folder / "artifacts", folder / "wheels"
        ended = self.step("build", "run", folder, *words, key=key, root=True)
        if left.is_dir():
            self.artifacts.mkdir(exist_ok=True)
            left.rename(self.artifacts / f"wheels-{self.leg}-1")
        return ended

    def stage(self) -> Ended:
        return self.night("stage", "--artifacts", self.artifacts, "--json", key="builder", root=True)

    def test(self, folder: Path) -> Ended:
        ended = self.step("test", "run", folder)
        kept = self.step("test", "keep", folder, key="tester")
        return ended if ended.code else kept

    def promote(self) -> Ended:
        return self.night("promote", "--json", key="promoter", root=True)

    def objects(self) -> Objects:
        return contents(self.store)

    def put(self, objects: Objects) -> None:
        """Have the store hold these objects and no others."""
        here = self.objects()
        for key in here.keys() - objects.keys():
            (self.store / key).unlink()
        for key, data in objects.items():
            if here.get(key) != data:
                (self.store / key).parent.mkdir(parents=True, exist_ok=True)
                (self.store / key).unlink(missing_ok=True)
                (self.store / key).write_bytes(data)

    def given(self) -> str:
        """The sha256 of what a new machine is given to install, or why it installs nothing."""
        machine = Machine(gpus=("cpu",), python=tiny_stack.HERE.version, platform=tiny_stack.HERE.platform)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CAIRN_CACHE_DIR", str(self.folder / f"user-{next(_MACHINES)}"))
            try:
                with anchor.acting(root=self.root):
                    made = install.prepare(keys.index_url(self.store.as_uri(), "nightly"), machine)
                    (pick,) = made.choice.picks
                    with install.pages(made, pick) as url:
                        page = Path(url2pathname(urlsplit(url).path), "tiny", "index.html").read_text()
            except CairnError as error:
                return f"error: {error}"
        (sha256,) = set(re.findall("#sha256=([0-9a-f]{64})", page))
        return sha256


def contents(folder: Path) -> Objects:
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@dataclass(kw_only=True)
class Seen:
    """What was read of a store: objects by key, whether there or not, and listings by prefix."""

    keys: set[str] = field(default_factory=set)
    listings: set[str] = field(default_factory=set)
    listings_of_folders: set[str] = field(default_factory=set)

    def has_difference(self, now: Objects, then: Objects) -> bool:
        """Whether whoever read this would have read a different thing."""
        changed = [key for key in now.keys() | then.keys() if now.get(key) != then.get(key)]
        return (
            not self.keys.isdisjoint(changed)
            or any(key.startswith(tuple(self.listings)) for key in changed)
            or any(folders(now, prefix) != folders(then, prefix) for prefix in self.listings_of_folders)
        )


def folders(objects: Objects, prefix: str) -> set[str]:
    below = (key.removeprefix(prefix) for key in objects if key.startswith(prefix))
    return {key.partition("/")[0] for key in below if "/" in key}


@contextlib.contextmanager
def seeing(folder: Path, all_seen: Mapping[str, Seen]) -> Iterator[None]:
    """Note in each of these what is read of a store meanwhile."""
    read = {name: getattr(LocalStore, name) for name in ("_status", "list", "folders")}

    def noting(name: str) -> Callable[[LocalStore, str], Any]:
        def note(store: LocalStore, key: str) -> Any:
            for seen in all_seen.values() if store.path == folder else ():
                places = {"_status": seen.keys, "list": seen.listings, "folders": seen.listings_of_folders}
                places[name].add(key)
            return read[name](store, key)

        return note

    with pytest.MonkeyPatch.context() as patch:
        for name in read:
            patch.setattr(LocalStore, name, noting(name))
        yield


@dataclass(kw_only=True)
class Night:
    """An honest night, and one of somebody who made the same of a commit, with keys and a root, of his own.

    Attributes:
        jobs: the honest ones.
        after: the objects of the store after each job.
        memory: what promoters remember before they have promoted.
        fetched: what jobs fetched, by the job that did.
        seen: what is read after each job by the later ones, and by who installs.
        his: all objects of his store.
        wheel: the sha256 of the honest wheel.
    """

    jobs: Jobs
    after: dict[str, Objects]
    memory: Objects
    fetched: dict[str, Objects]
    seen: dict[str, Seen]
    his: Objects
    wheel: str

    def of(self, objects: Objects, folder: Path, **changes: Any) -> Jobs:
        """The honest jobs, where the store has these objects."""
        store, memory = folder / "store", folder / "store-memory"
        jobs = dataclasses.replace(self.jobs, **{"folder": folder, "store": store, **changes})
        store.mkdir(exist_ok=True)
        dataclasses.replace(jobs, store=memory).put(self.memory)
        jobs.put(objects)
        return jobs


def init(jobs: Jobs, offline: Signer) -> None:
    """Give a store a root that names the keys of these jobs."""
    public = {}
    for role, one in jobs.keys.items():
        public[role] = jobs.folder / f"{role}.pub"
        public[role].write_bytes(one.public.pem())
    roles = [word for role, path in public.items() for word in (f"--{role}", path)]
    shown = jobs.types(
        *("trust", "init", "--store", jobs.store, "--root-key", key_file(jobs.folder, offline), *roles),
        *("--sign-key", key_file(jobs.folder, jobs.keys["promoter"]), "--json"),
        key="promoter",
    )
    assert shown.code == 0, shown
    jobs.root = shown.answer["root"]


def good(ended: Ended) -> Ended:
    assert ended.code == 0, ended
    return ended


def whole(jobs: Jobs) -> Iterator[str]:
    """Run the jobs of a night; yield the name of each that has ended well."""
    good(jobs.freeze())
    yield "freeze"
    good(jobs.fetch("build", jobs.folder / "build"))
    good(jobs.build(jobs.folder / "build"))
    yield "build"
    (staged,) = good(jobs.stage()).answer
    assert staged["set"], staged
    yield "stage"
    good(jobs.fetch("test", jobs.folder / "test"))
    good(jobs.test(jobs.folder / "test"))
    yield "test"
    good(jobs.promote())
    yield "promote"


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    folder = tmp_path_factory.mktemp("night")
    honest = {"promoter": PROMOTER, "builder": BUILDER, "tester": TESTER}
    stacks = [tiny_stack.write(folder / name / "stack") for name in ("ours", "his")]
    (stacks[1] / "origin/tiny/__init__.py").write_text("ANSWER = 42\nprint('his')\n")
    tiny_stack.commit(stacks[1], "What he would like to be installed")
    jobs, his = (
        Jobs(folder=stack.parent, stack=stack, store=stack.parent / "store", keys=whose)
        for stack, whose in zip(stacks, (honest, dict.fromkeys(honest, MALLORY)), strict=True)
    )
    for one, key in ((jobs, OFFLINE[0]), (his, MALLORY)):
        one.store.mkdir()
        init(one, key)
    assert set(whole(his)) >= {"promote"}
    after, memory = {"init": jobs.objects()}, contents(jobs.folder / "store-memory")
    seen: dict[str, Seen] = {}
    with seeing(jobs.store, seen):
        for name in whole(jobs):
            after[name], seen[name] = jobs.objects(), Seen()
        wheel = jobs.given()
    fetched = {name: contents(jobs.folder / name / "night") for name in ("build", "test")}
    made = Night(
        jobs=jobs, after=after, memory=memory, fetched=fetched, seen=seen, his=his.objects(), wheel=wheel
    )
    assert made.wheel in {key.split("/")[2] for key in after["promote"] if key.startswith("files/")}
    return made


def kind(key: str) -> str:
    """What an object is: its key without digests and numbers."""
    key = re.sub("(?<=/)(locks|steps)/.*", r"\1", key)
    return re.sub(r"[0-9a-f]{64}", "*", re.sub(r"files/../|[0-9]{2,}|(?<=/)[0-9]+(?=\.)", "", key))


def attacks(night: Night, job: str) -> Iterator[tuple[str, str, Objects]]:
    """What he may have made of the store between a job and the next one: how, of which object, and the store.

    Of all objects below a folder, the key is empty.
    """
    jobs = list(night.after)
    now, before = night.after[job], night.after[jobs[jobs.index(job) - 1]]
    his = {kind(key): data for key, data in night.his.items()}
    for key, own in now.items():
        yield "deletes", key, {name: data for name, data in now.items() if name != key}
        others = (data for other, data in now.items() if kind(other) == kind(key) and data != own)
        middle = len(own) // 2  # of a digest, a name, a number
        ways = {
            "empties": b"{}",
            "edits": own[:middle] + bytes([own[middle] ^ 1]) + own[middle + 1 :],
            "exchanges for his": his.get(kind(key)),
            "sets back": before.get(key),
            "swaps for another of its kind": next(others, None),
        }
        for way, data in ways.items():
            if data not in (None, own):
                yield way, key, {**now, key: data}
    for part in ("", *sorted({key.split("/")[0] for key in night.his if "/" in key})):
        over = {key: data for key, data in night.his.items() if key.startswith(part)}
        yield f"puts his {part or 'store'} over it", "", {**now, **over}
        without = {key: data for key, data in now.items() if not key.startswith(part)}
        yield f"puts his {part or 'store'} in its place", "", {**without, **over}


def chosen(night: Night, job: str) -> Iterator[tuple[str, Objects]]:
    """All attacks; or one on each kind of object that is no page, and all on folders.

    An attack is left out where the honest jobs that follow neither read nor list what it changes: they would
    go on as they did.
    """
    ways: dict[str, list[tuple[str, Objects]]] = {}
    for way, key, objects in attacks(night, job):
        if not WHOLE and not night.seen[job].has_difference(night.after[job], objects):
            continue
        if WHOLE or keys.kind_of(key) not in ("page", "set page", "for people"):
            ways.setdefault(f"{way} {key}" if WHOLE or not key else kind(key), []).append(
                (f"{way} {key}", objects)
            )
    for number, of_kind in enumerate(ways.values()):
        yield of_kind[number % len(of_kind)]


def refused(ended: Ended) -> bool:
    """Whether a job was refused, by a line for people."""
    if ended.code == 0:
        return False
    assert "Traceback" not in ended.err
    assert re.search("^error: .", ended.err, re.MULTILINE), ended
    return True


def fetches(jobs: Jobs, kind: str, folder: Path, before: Objects) -> str:
    if refused(jobs.fetch(kind, folder)):
        return "refused"
    return "as before" if contents(folder / "night") == before else ""


def to_build(night: Night, jobs: Jobs) -> str:
    folder = jobs.folder / "build"
    outcome = fetches(jobs, "build", folder, night.fetched["build"])
    return outcome or ("refused" if refused(jobs.build(folder)) else "")


def to_stage(night: Night, jobs: Jobs) -> str:
    if refused(ended := jobs.stage()):
        return "refused"
    (leg,) = ended.answer
    assert leg["set"] or leg["reason"]
    as_before = f"sets/{leg['set']}/set.json" in night.after["stage"]
    return ("as before" if as_before else "") if leg["set"] else "refused"


def to_test(night: Night, jobs: Jobs) -> str:
    folder = jobs.folder / "test"
    outcome = fetches(jobs, "test", folder, night.fetched["test"])
    return outcome or ("refused" if refused(jobs.test(folder)) else "")


def to_promote(_: Night, jobs: Jobs) -> str:
    if refused(ended := jobs.promote()):
        return "refused"
    (leg,) = ended.answer["legs"]
    assert leg["promoted"] or leg["reason"]
    return "" if leg["promoted"] else "refused"


NEXT: dict[str, Callable[[Night, Jobs], str]] = {
    "freeze": to_build,
    "build": to_stage,
    "stage": to_test,
    "test": to_promote,
}
"""What comes after each job; "" where the night goes on, `as before` where its job has seen no difference."""


def goes_on(night: Night, jobs: Jobs, job: str) -> str:
    """Run the jobs after this one; how the night ends."""
    later = list(NEXT)
    for name in later[later.index(job) :] if job in NEXT else ():
        if outcome := NEXT[name](night, jobs):
            return outcome
    return "promoted"


@pytest.mark.parametrize("job", ["freeze", "build", "stage", "test", "promote"])
def test_whatever_he_changes_is_refused_or_the_honest_bytes_are_promoted(
    night: Night, tmp_path: Path, job: str
) -> None:
    outcomes = {}
    for number, (name, objects) in enumerate(chosen(night, job)):
        jobs = night.of(objects, tmp_path)
        jobs.folder /= str(number)
        shutil.copytree(night.jobs.folder / "work", jobs.folder / "work", symlinks=True)
        try:
            outcomes[name] = goes_on(night, jobs, job)
            given = jobs.given()
        except Exception as error:
            raise AssertionError(f"after {job} he {name}") from error
        assert given == night.wheel or given.startswith("error: "), (name, outcomes[name], given)
        assert "Traceback" not in given
        shutil.rmtree(jobs.folder)
    assert job == "promote" or set(outcomes.values()) > {"refused"}


@pytest.mark.parametrize("rooted", [True, False])
def test_a_wheel_that_he_puts_into_the_cache_of_builds_counts_only_where_nobody_signs(
    night: Night, tmp_path: Path, *, rooted: bool
) -> None:
    jobs = night.of(night.after["freeze"], tmp_path, root=night.jobs.root if rooted else "")
    if not rooted:
        shutil.rmtree(jobs.store / "metadata")
    cache = ("--cache-store", jobs.store / "cache")

    def built(name: str, *, key: str = "builder") -> tuple[str, str]:
        """Build on a new machine: the sha256 of the wheel, and what is said."""
        good(jobs.fetch("build", tmp_path / name))
        jobs.folder = tmp_path / name  # an earlier build has left its own in its tree
        ended = good(jobs.build(tmp_path / name, *cache, "--json", key=key))
        return ended.answer[0]["sha256"], ended.err

    honest, _ = built("first")
    (entry,) = (jobs.store / "cache/entries").rglob("*.json")
    (wheel,) = (jobs.store / "cache/files").rglob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        members = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}
    members["tiny/__init__.py"] = b"ANSWER = 42\nprint('his')\n"
    his = packing.pack(tmp_path / wheel.name, members)
    sha256 = hashlib.sha256(his.read_bytes()).hexdigest()
    place = jobs.store / f"cache/files/{sha256[:2]}/{sha256}/{his.name}"
    place.parent.mkdir(parents=True)
    shutil.copy(his, place)
    forged = {**json.loads(entry.read_bytes()), "sha256": sha256, "size": his.stat().st_size}
    for name, one, key in (
        ("changed", forged, "builder"),
        ("unsigned", {**forged, "signed": ""}, "builder"),
        ("without a key", forged, ""),  # which reads, and puts nothing there
    ):
        entry.write_text(json.dumps(one))
        given, err = built(name, key=key)
        if not rooted:
            assert given == sha256
            return
        assert given == honest
        assert ("is removed: " in err) == bool(key)
    assert "nothing is put into the cache of wheels: no builder's key" in err


@pytest.mark.parametrize("part", ["metadata/", ""])
def test_a_night_that_lies_there_under_its_name_is_not_frozen_again(
    night: Night, tmp_path: Path, part: str
) -> None:
    """Also where he takes away for the moment all that says that there is a root."""
    nights = {key: data for key, data in night.his.items() if key.startswith("nights/2/")}
    ours = {key: data for key, data in night.after["init"].items() if not part or not key.startswith(part)}
    jobs = night.of({**ours, **nights}, tmp_path, named="")
    assert refused(jobs.freeze())
    without = dataclasses.replace(jobs, root="")
    # Without a root his recipe alone is refused, which he could have copied: so the workflow names the root.
    assert "is not the frozen one" in without.freeze().err or not part
    assert without.freeze().code != 0


_PHASES = [
    ("step", kind, "--phase", phase, "--leg", "LEG", "--output-dir", "OUT")
    for kind in ("build", "test", "suite")
    for phase in ("fetch", "keep")
]
COMMANDS = [
    *_PHASES,
    ("stage", "--artifacts", "OUT"),
    ("step", "merge", "--output-dir", "OUT"),
    ("promote",),
]


@pytest.mark.parametrize("name", ["2", "latest"])
def test_no_command_that_signs_or_leads_to_it_goes_on_with_a_night_by_its_id(
    night: Night, tmp_path: Path, name: str
) -> None:
    jobs = night.of(night.after["test"], tmp_path, named=name)
    says = f"in a store with a root, {name} does not say whose night it is"
    place = {"LEG": jobs.leg, "OUT": tmp_path / "out"}
    for command, *words in COMMANDS:
        ended = jobs.night(command, *(place.get(word, word) for word in words))
        assert (ended.code, says in ended.err) == (2, True), (command, ended)
        assert "ID@DIGEST" in ended.err
    where = ("--store", jobs.store)
    ended = jobs.types("release", "night", name, "--stack", jobs.stack, *where, key="promoter")
    assert (ended.code, says in ended.err) == (2, True), ended
    assert jobs.objects() == night.after["test"]
    if name == "2":
        words = ("release", "yank", *where, "--reason", "his", "--night")
        assert says in jobs.types(*words, name, key="promoter").err
        other = f"2@{'0' * 64}"
        assert "was changed since it was frozen" in jobs.types(*words, other, key="promoter").err
        assert jobs.types(*words, night.jobs.named, "--dry-run", key="promoter").code == 0
    assert says not in jobs.night("report", "--dry-run").err


def test_a_set_of_another_night_that_staging_lists_as_one_of_this_is_not_promoted(
    night: Night, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "his cache"))
    jobs = night.of(night.after["test"], tmp_path)
    store = LocalStore(jobs.store)
    earlier = plans.read(store, "2")  # of which the set is signed and tested
    frozen = msgspec.structs.replace(plans.manifest_of(store, earlier), toolchain={"image": "another"})
    later = msgspec.structs.replace(earlier, night="3", manifest_sha256=frozen.digest())
    plans.create(store, later, frozen)
    (own,) = Index(store, "staging").load().sets()
    listed = msgspec.structs.replace(own, manifest_sha256=frozen.digest())
    commit(Index(store, "staging"), "stage", lambda _: Change(sets={own.set_id: listed}))
    jobs.named = later.sealed_id
    (leg,) = jobs.promote().answer["legs"]
    assert not leg["promoted"]
    assert "it is of another manifest" in leg["reason"]
