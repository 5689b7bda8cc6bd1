"""What may be tried to get past the gate, and what it says; docs/reference/gate.md shows the table.

Each is tried on a set that passes without it. The set is for Windows, so that uv resolves it for real and pip
does not install it: `test_promote` has the installers.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from cairn.errors import CairnError, GateError
from cairn.formats import cyclonedx
from cairn.release import records
from cairn.release.audit.audit import audit
from cairn.release.history.yank import yank
from cairn.release.index import keys, listing, write
from cairn.release.index.generation import MIRRORED
from cairn.release.index.snapshot import Index
from cairn.release.promote import promote
from cairn.release.publish import distribution, locks, stage
from cairn.release.publish.files import offer_of, publish, publish_dists
from cairn.release.publish.mirror_lock import LockedFile, MirrorLock
from cairn.release.trust.signers import Trust
from cairn.release.weighing import Bypass
from cairn.stack import Floor, Stack
from cairn.store.memory import MemoryStore
from cairn.testing.record import Counts, TestedWheel, TestRecord
from cairn.wheels import build_statement, sbom, wheelset
from cairn.wheels.rewrite.wheel import Edit, edit_wheel
from cairn.wheels.wheelset import WheelSet
from helpers.gate import AWAY, at, data_of, host_tests, record_of, stack_of
from helpers.release import contents, make_set, make_wheel, manifest_of, put, stage_set, statement_of

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "gate.md"
V = "2.9.0+rocm7.10.0"
FAMILY, TARGETS = "gfx110X-all", ("gfx1100", "gfx1101")


@dataclass
class Scene:
    """A staged set that passes, and all with which it is promoted."""

    folder: Path
    store: MemoryStore
    wheels: list[Path]
    made: WheelSet
    stack: Stack
    records: list[bytes]
    asked: dict[str, Any] = field(default_factory=dict)
    on_step: Callable[[str], None] = lambda _step: None

    def record(self, **changes: Any) -> TestRecord:
        """A record of the set on the first target, unless `changes` say otherwise."""
        return record_of(self.made, **{"hardware": (TARGETS[0],), **changes})

    def replace_first(self, **changes: Any) -> None:
        """Change the record of the first target."""
        self.records[0] = data_of(self.record(**changes))

    def put_by_hand(self, record: TestRecord) -> str:
        """Write a record beside the set as it is, past `records.add`; its key."""
        data = data_of(record)
        key = keys.set_key(self.made.id, f"records/{hashlib.sha256(data).hexdigest()}.json")
        self.store.write(key, data)
        return key

    def key_of(self, project: str) -> str:
        """The key of a file of the set."""
        name, sha256 = next((n, s) for n, s in self.made.sha256s.items() if n.startswith(f"{project}-"))
        return keys.file_key(sha256, name)

    def offered(self, *wheels: Path) -> None:
        """Have `release` offer wheels of another build."""
        dists = [distribution.read(path) for path in wheels]
        publish_dists(Index(self.store, "release"), dists, "promote", build="f" * 64)

    def promote(self) -> None:
        """Through the gate."""
        given = [records.NewRecord(data=data) for data in self.records]
        values = {"stack": self.stack, "records": given, "on_step": self.on_step, **self.asked}
        promote(self.store, self.made.id, **values)


def mirrored(store: MemoryStore, *wheels: Path) -> None:
    dists = [distribution.read(path) for path in wheels]
    publish_dists(Index(store, "staging"), dists, "mirror", build=MIRRORED)


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, MemoryStore, WheelSet]:
    """The wheels, the store and the set: of each, a test has a copy."""
    folder, store = tmp_path_factory.mktemp("staged"), MemoryStore()
    mirrored(store, make_wheel(folder, "numpy", "2.0"), make_wheel(folder, "filelock", "3.20.0"))
    wheels = [
        make_wheel(folder, "torch", V, requires=["numpy", 'filelock; extra == "locks"'], extras=["locks"]),
        make_wheel(folder, "torchvision", V, requires=[f"torch=={V}"]),
    ]
    made = stage_set(store, "staging", make_set(wheels, family=FAMILY, targets=TARGETS, **AWAY), wheels)
    return folder, store, made


@pytest.fixture
def scene(staged: tuple[Path, MemoryStore, WheelSet], tmp_path: Path) -> Scene:
    folder, before, made = staged
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    store = MemoryStore(before.objects)
    wheels = [next(tmp_path.glob(f"{name}-*.whl")) for name in ("torch", "torchvision")]
    floors = {"smoke": Floor(tests=5, device_tests=2)}
    passed = [data_of(record_of(made, hardware=(name,))) for name in TARGETS]
    return Scene(
        folder=tmp_path,
        store=store,
        wheels=wheels,
        made=made,
        stack=stack_of(made, records=floors),
        records=passed,
    )


def test_without_an_attack_the_set_passes(scene: Scene) -> None:
    scene.promote()
    entry = Index(scene.store, "release").load().set(scene.made.id)
    assert (entry.untested, entry.untested_targets, entry.installed_with) == (None, (), ())
    assert len(entry.records) == 2


# --- Test records ---------------------------------------------------------------------------------------


def no_record(scene: Scene) -> None:
    scene.records.clear()


def one_target_untested(scene: Scene) -> None:
    scene.records.pop()


def record_of_open_set(scene: Scene) -> None:
    scene.replace_first(set_id=None)


def record_of_other_set(scene: Scene) -> None:
    scene.put_by_hand(scene.record(set_id="b" * 64))
    scene.records.pop(0)


def record_edited(scene: Scene) -> None:
    key = scene.put_by_hand(scene.record(verdict="failed", reason="1 failed", started=at(-9)))
    scene.store.write(key, scene.store.read(key).data.replace(b'"failed"', b'"passed"'))


def record_contradicts_itself(scene: Scene) -> None:
    scene.put_by_hand(scene.record(counts=Counts(passed=9, failed=3, device_passed=2)))


def record_took_less_than_no_time(scene: Scene) -> None:
    scene.replace_first(duration_seconds=-1.0)


def record_from_the_future(scene: Scene) -> None:
    scene.replace_first(started=at(60))


def record_from_the_future_by_hand(scene: Scene) -> None:
    scene.records.pop(0)
    scene.put_by_hand(scene.record(started=at(60)))


def record_older_than_the_set(scene: Scene) -> None:
    scene.replace_first(started=at(-60))


def record_without_a_zone(scene: Scene) -> None:
    scene.replace_first(started="2026-01-02T03:04:05")


def failure_outnumbered(scene: Scene) -> None:
    scene.records += [data_of(scene.record(started=at(-3 + n / 10))) for n in range(9)]
    scene.records.append(data_of(scene.record(started=at(1), verdict="failed", reason="1 failed")))


def failure_bypassed(scene: Scene) -> None:
    scene.records = [data_of(scene.record(verdict="failed", reason="1 failed"))]
    scene.asked["bypass"] = Bypass(who="ann", reason="hurry")


def failure_overtaken_by_a_part(scene: Scene) -> None:
    scene.records.append(data_of(scene.record(started=at(1), verdict="failed", reason="1 failed")))
    scene.records.append(data_of(scene.record(started=at(2), pytest_args=("-k", "one"))))


def failure_removed_after_its_answer(scene: Scene) -> None:
    key = scene.put_by_hand(scene.record(verdict="failed", reason="1 failed"))
    digest = key.rpartition("/")[2].removesuffix(".json")
    records.answer(scene.store, scene.made.id, digest, who="ann", reason="a full disk")
    scene.store.delete(key)


def answer_to_nothing(scene: Scene) -> None:
    records.answer(scene.store, scene.made.id, "c" * 64, who="ann", reason="hurry")


def answer_by_nobody(scene: Scene) -> None:
    key = scene.put_by_hand(scene.record(verdict="failed", reason="1 failed"))
    digest = key.rpartition("/")[2].removesuffix(".json")
    records.answer(scene.store, scene.made.id, digest, who=" ", reason="hurry")


def failure_while_the_gate_is_asked(scene: Scene) -> None:
    def fail(step: str) -> None:
        if step.startswith("keeping"):
            scene.put_by_hand(scene.record(started=at(1), verdict="failed", reason="1 failed"))

    scene.on_step = fail


def some_tests_alone(scene: Scene) -> None:
    scene.replace_first(pytest_args=("-k", "one"))


def wrong_hardware(scene: Scene) -> None:
    scene.replace_first(hardware=("gfx942",))


def no_hardware(scene: Scene) -> None:
    scene.replace_first(hardware=(), counts=Counts(passed=9))


def no_test_on_the_gpu(scene: Scene) -> None:
    scene.replace_first(counts=Counts(passed=9))


def gpu_beside_the_one_that_was_used(scene: Scene) -> None:
    covered = dict.fromkeys(TARGETS, 0) | {TARGETS[0]: 2}
    scene.records = [data_of(scene.record(hardware=TARGETS, covered=covered))]


def covered_without_the_gpu(scene: Scene) -> None:
    scene.replace_first(covered=dict.fromkeys(TARGETS, 2))


def gpus_left_out(scene: Scene) -> None:
    scene.replace_first(gpus=())


def gpus_left_out_as_an_older_cairn_did(scene: Scene) -> None:
    record = json.loads(scene.records[0])
    left = {name: value for name, value in record.items() if name not in ("gpus", "covered")}
    scene.records[0] = json.dumps({**left, "schema": "cairn.record/2"}).encode()


def too_few_tests(scene: Scene) -> None:
    scene.replace_first(counts=Counts(passed=4, device_passed=2, skipped=900))


def translated_device(scene: Scene) -> None:
    scene.replace_first(verdict="untested", reason="the device was translated")


def bypass_beside_the_hardware(scene: Scene) -> None:
    scene.replace_first(counts=Counts(passed=4, device_passed=2))
    scene.asked["bypass"] = Bypass(who="me", reason="nobody has these GPUs")


def bypass_of_selected_tests_on_the_hardware(scene: Scene) -> None:
    scene.replace_first(pytest_args=("-k", "test_one"))
    scene.asked["bypass"] = Bypass(who="me", reason="nobody has these GPUs")


def untested_over_tested(scene: Scene) -> None:
    stage_next(scene, numpy="2.0")
    scene.records.pop()
    scene.asked["bypass"] = Bypass(who="me", reason="nobody has this GPU")


def tested_on_host(scene: Scene, **host: Any) -> None:
    """A bypass, and a record of tests that passed without a GPU; what it counts says `host`."""
    counted = host_tests(scene.made, **host)
    record = scene.record(hardware=(), verdict="untested", reason="none on a GPU", host=counted)
    scene.records = [data_of(record)]
    scene.asked["bypass"] = Bypass(who="me", reason="nobody has these GPUs")


def bypass_without_a_record(scene: Scene) -> None:
    scene.records.clear()
    scene.asked["bypass"] = Bypass(who="me", reason="nobody has these GPUs")


def bypass_of_a_suite_alone(scene: Scene) -> None:
    tested_on_host(scene)
    scene.replace_first(hardware=(), verdict="untested", reason="none on a GPU", host=None)


def bypass_of_another_python(scene: Scene) -> None:
    tested_on_host(scene, python="3.12")


def bypass_of_another_platform(scene: Scene) -> None:
    tested_on_host(scene, platform="linux_x86_64")


def bypass_of_a_package_not_imported(scene: Scene) -> None:
    tested_on_host(scene, imported={"torch": 9})


def bypass_of_a_package_without_a_module(scene: Scene) -> None:
    tested_on_host(scene, imported={"torch": 9, "torchvision": 0})


def bypass_of_the_stacks_own_tests(scene: Scene) -> None:
    tested_on_host(scene, own_tests=0)
    scene.stack = structs.replace(scene.stack, smoke_tests=("smoke-tests",))


def bypass_of_selected_tests(scene: Scene) -> None:
    tested_on_host(scene)
    scene.replace_first(hardware=(), verdict="untested", pytest_args=("-k", "one"))


def bypass_of_translated_tests(scene: Scene) -> None:
    tested_on_host(scene)
    scene.replace_first(hardware=(), verdict="untested", reason="on no GPU", translated="torchdevice 0.1")


def bypass_of_too_few_tests(scene: Scene) -> None:
    tested_on_host(scene)
    counts = Counts(passed=4, skipped=900)
    scene.replace_first(hardware=(), verdict="untested", reason="on no GPU", counts=counts)


def bypass_of_an_answered_failure(scene: Scene) -> None:
    key = scene.put_by_hand(scene.record(hardware=(), verdict="failed", reason="torch does not import"))
    digest = key.rpartition("/")[2].removesuffix(".json")
    records.answer(scene.store, scene.made.id, digest, who="me", reason="hurry")
    scene.records.clear()
    scene.asked["bypass"] = Bypass(who="me", reason="nobody has these GPUs")


def bypass_in_untested(scene: Scene) -> None:
    bypass_of_a_suite_alone(scene)
    scene.asked["target"] = "untested"


def own_tests_counted_beyond_what_passed(scene: Scene) -> None:
    tested_on_host(scene, own_tests=6)


def bypass_of_a_set_for_the_cpu(scene: Scene) -> None:
    stage_again(scene, family="cpu", targets=("cpu",))
    scene.stack = stack_of(scene.made)
    scene.records = [data_of(record_of(scene.made, verdict="untested", reason="later"))]
    scene.asked["bypass"] = Bypass(who="me", reason="hurry")


def kind_not_demanded(scene: Scene) -> None:
    scene.replace_first(kind="suite")


def record_of_other_targets(scene: Scene) -> None:
    scene.replace_first(targets=TARGETS[:1])


def says_tested(scene: Scene, changes: Mapping[str, str | None]) -> None:
    tested = {**scene.made.sha256s, **changes}
    files = tuple(TestedWheel(file_name=n, sha256=s) for n, s in tested.items() if s is not None)
    scene.replace_first(wheels=files)


def record_of_a_part(scene: Scene) -> None:
    says_tested(scene, {f"torchvision-{V}-py3-none-any.whl": None})


def record_with_another_dependency(scene: Scene) -> None:
    says_tested(scene, {"numpy-2.0-py3-none-any.whl": "0" * 64})


def record_silent_on_a_dependency(scene: Scene) -> None:
    says_tested(scene, {"numpy-2.0-py3-none-any.whl": None})


def record_with_more_installed(scene: Scene) -> None:
    says_tested(scene, {"helps-1.0-py3-none-any.whl": "0" * 64})


def record_not_signed(scene: Scene) -> None:
    scene.asked["trust"] = Trust()


# --- Files ----------------------------------------------------------------------------------------------


def file_swapped(scene: Scene) -> None:
    other = make_wheel(scene.folder / "x", "numpy", "2.0", content="EVIL = 1\n")
    scene.store.write(scene.key_of("numpy"), other.read_bytes())


def own_wheel_swapped(scene: Scene) -> None:
    other = make_wheel(scene.folder / "x", "torch", V, requires=["numpy"], content="EVIL = 1\n")
    scene.store.write(scene.key_of("torch"), other.read_bytes())


def file_removed(scene: Scene) -> None:
    scene.store.delete(scene.key_of("filelock"))


def metadata_poisoned(scene: Scene) -> None:
    key = f"{scene.key_of('numpy')}.metadata"
    scene.store.write(key, scene.store.read(key).data + b"Requires-Dist: filelock\n")


def dependency_that_fails_verify(scene: Scene) -> None:
    bad = make_wheel(scene.folder / "x", "numpy", "2.1")
    with zipfile.ZipFile(bad, "a") as archive:
        archive.writestr("numpy/evil.py", "in no RECORD")
    mirrored(scene.store, bad)
    stage_again(scene)


def dependency_put_by_hand(scene: Scene) -> None:
    publish(scene.store, "staging", [make_wheel(scene.folder / "x", "numpy", "2.1")])
    stage_again(scene)
    lock_what_is_mirrored(scene)


def dependency_not_in_the_lock(scene: Scene) -> None:
    mirrored(scene.store, make_wheel(scene.folder / "x", "numpy", "2.1"))
    lock_what_is_mirrored(scene)
    stage_again(scene)


def dependency_by_the_name_of_the_sdk(scene: Scene) -> None:
    publish(scene.store, "staging", [make_wheel(scene.folder / "x", "rocm-helper", "1.0")])
    needs = ["numpy", "rocm-helper", 'filelock; extra == "locks"']
    lock_what_is_mirrored(scene)
    scene.wheels = [make_wheel(scene.folder / "y", "torch", "2.9.1", requires=needs, extras=["locks"])]
    stage_again(scene)


def dependency_newer_in_the_target(scene: Scene) -> None:
    put(scene.store, "release", [make_wheel(scene.folder / "x", "numpy", "2.9", content="EVIL = 1\n")])


def stage_next(scene: Scene, *, numpy: str) -> None:
    """The set of the scene is promoted; the next one comes with a numpy of this version, and was tested."""
    scene.promote()
    folder, version = scene.folder / "next", "2.10.0+rocm7.10.0"
    mirrored(scene.store, make_wheel(folder, "numpy", numpy))
    wheels = [
        make_wheel(folder, "torch", version, requires=["numpy"]),
        make_wheel(folder, "torchvision", version, requires=[f"torch=={version}"]),
    ]
    made = make_set(wheels, family=FAMILY, targets=TARGETS, **AWAY)
    scene.made = stage_set(scene.store, "staging", made, wheels)
    scene.records = [data_of(scene.record(hardware=(name,))) for name in TARGETS]


def dependency_newer_for_a_set_that_stays(scene: Scene) -> None:
    stage_next(scene, numpy="2.1")


def lock_what_is_mirrored(scene: Scene) -> None:
    """A lock of just the files that the scene began with."""
    files = tuple(
        LockedFile(name=n.partition("-")[0], version=n.split("-")[1], file_name=n, sha256=s)
        for n, s in scene.made.sha256s.items()
        if n in ("numpy-2.0-py3-none-any.whl", "filelock-3.20.0-py3-none-any.whl")
    )
    scene.asked["mirror_lock"] = MirrorLock(
        stack="sample", pythons=("3.11",), platforms=("win_amd64",), files=files
    )


def stage_again(scene: Scene, **changes: Any) -> None:
    """Stage the wheels of the scene once more, with records of what comes of it."""
    given = {"family": FAMILY, "targets": TARGETS, **AWAY, **changes}
    scene.made = stage_set(scene.store, "staging", make_set(scene.wheels, **given), scene.wheels)
    hardware = TARGETS if "cpu" not in scene.made.targets else ((),)
    scene.records = [data_of(record_of(scene.made, hardware=(h,) if h else ())) for h in hardware]


# --- Builds and versions --------------------------------------------------------------------------------


def same_name_other_bytes(scene: Scene) -> None:
    scene.offered(make_wheel(scene.folder / "x", "torchvision", V, content="OTHER = 1\n"))


def rebuilt_under_another_name(scene: Scene) -> None:
    scene.offered(make_wheel(scene.folder / "x", "torchvision", V, tag="cp311-cp311-win_amd64"))


def build_tag(scene: Scene) -> None:
    wheel = make_wheel(scene.folder / "x", "torchvision", V)
    scene.offered(wheel.rename(wheel.with_name(f"torchvision-{V}-1-py3-none-any.whl")))


def spelt_otherwise(scene: Scene) -> None:
    scene.offered(make_wheel(scene.folder / "x", "torchvision", V.replace("2.9.0", "2.9")))


def below_what_is_there(scene: Scene) -> None:
    scene.offered(make_wheel(scene.folder / "x", "torchvision", "2.9.1"))


def names_mixed_with_a_mirror(scene: Scene) -> None:
    there = distribution.read(make_wheel(scene.folder / "x", "torchvision", "9.0"))
    publish_dists(Index(scene.store, "release"), [there], "mirror", build=MIRRORED)


# --- What the builder says ------------------------------------------------------------------------------


def without_its_builder(scene: Scene) -> None:
    scene.store.delete(keys.set_key(scene.made.id, "builder.json"))


def forged_on_its_way(scene: Scene) -> None:
    """A module added, RECORD and set.json made to agree; the builder's statement as it was."""
    wheels, forged = forged_wheels(scene)
    made = make_set(wheels, family=FAMILY, targets=TARGETS, **AWAY)
    stage_as_built(scene, made, forged, statement_of(made, wheels))


def forged_in_the_store(scene: Scene) -> None:
    wheels, forged = forged_wheels(scene)
    made = make_set(wheels, family=FAMILY, targets=TARGETS, **AWAY)
    put_by_hand(scene, forged, statement_of(made, wheels))


def of_another_commit(scene: Scene) -> None:
    """Wheels of a tree that was moved, by a builder who says that they are of the manifest's."""
    wheels = moved_wheels(scene)
    made = make_set(wheels, family=FAMILY, targets=TARGETS, **AWAY)
    stage_as_built(scene, made, wheels, untrue_statement(scene, wheels))


def of_another_commit_in_the_store(scene: Scene) -> None:
    wheels = moved_wheels(scene)
    put_by_hand(scene, wheels, untrue_statement(scene, wheels))


def without_a_bill(scene: Scene) -> None:
    _, (torch, vision) = forged_wheels(scene)
    stripped = edit_wheel(
        torch, Edit(remove_files=[f"torch-{NEXT}.dist-info/{cyclonedx.NAME}"]), scene.folder / "stripped"
    )
    put_by_hand(scene, [stripped, vision], untrue_statement(scene, [stripped, vision]))


NEXT = V.replace("2.9.0", "2.9.1")


def forged_wheels(scene: Scene) -> tuple[list[Path], list[Path]]:
    """Wheels as a build made them, and as they are with one more module in one of them."""
    wheels = [
        make_wheel(scene.folder / "next", "torch", NEXT, requires=["numpy"]),
        make_wheel(scene.folder / "next", "torchvision", NEXT, requires=[f"torch=={NEXT}"]),
    ]
    evil = edit_wheel(wheels[0], Edit(add_files={"torch/evil.py": b"EVIL = 1\n"}), scene.folder / "evil")
    return wheels, [evil, wheels[1]]


def moved_wheels(scene: Scene) -> list[Path]:
    (torch, vision), _ = forged_wheels(scene)
    commit = cyclonedx.Source(name="torchvision", commit="c" * 40)
    return [torch, sbom.add(vision, scene.folder / "moved", sources=[commit], rocm_version=None)]


def untrue_statement(scene: Scene, wheels: list[Path]) -> bytes:
    """The true one with these wheels in the place of what was built."""
    true, _ = forged_wheels(scene)
    made = make_set(true, family=FAMILY, targets=TARGETS, **AWAY)
    said = build_statement.decode(statement_of(made, true), name="it")
    other = {wheel.name: hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels}
    return build_statement.encode(structs.replace(said, wheels=other, bills={}))


def stage_as_built(scene: Scene, made: WheelSet, wheels: list[Path], statement: bytes) -> None:
    """As `index publish` does, with what lies in a folder."""
    given = make_set(wheels, family=FAMILY, targets=TARGETS, **AWAY)
    manifest = manifest_of(made.python, made.platform)
    stage.stage_set(scene.store, "staging", given, wheels, manifest=manifest, statement=statement)


def put_by_hand(scene: Scene, wheels: list[Path], statement: bytes) -> None:
    """As somebody does who may write to the store, past what `index publish` looks at."""
    made = make_set(wheels, family=FAMILY, targets=TARGETS, **AWAY)
    closure = [file for file in scene.made.closure if file.file_name.startswith("numpy-")]
    scene.made = wheelset.seal(made, closure)
    manifest = manifest_of(made.python, made.platform)

    offer = offer_of(
        [distribution.read(path) for path in wheels],
        build=made.manifest_sha256,
        entry=listing.index_set(scene.made),
    )
    offer.put(scene.store)
    locked = locks.of_set(scene.made, locks.metadata_of(scene.store, scene.made))
    write.write_set(scene.store, scene.made, manifest, statement, locked)
    offer.commit(Index(scene.store, "staging"), "stage")
    scene.records = [data_of(record_of(scene.made, hardware=(name,))) for name in TARGETS]


# --- The set --------------------------------------------------------------------------------------------


def set_edited(scene: Scene) -> None:
    key = keys.set_key(scene.made.id, "set.json")
    scene.store.write(key, scene.store.read(key).data.replace(b"gfx1101", b"gfx1102"))


def set_sealed_again(scene: Scene) -> None:
    """One target less, under the id that goes with it, with the old records moved over."""
    words = structs.replace(scene.made, targets=TARGETS[:1], set_id=None)
    again = wheelset.seal(words, scene.made.closure)
    manifest = scene.store.read(keys.set_key(scene.made.id, "manifest.json")).data
    write.write_set(scene.store, again, manifest, b"{}", {})
    scene.made = again


def staged_with_other_words(scene: Scene) -> None:
    """The same wheels as a set for the CPU, to which the records of GPUs are given."""
    old = list(scene.records)
    stage_again(scene, family="cpu", targets=("cpu",))
    scene.records = old


def family_of_others(scene: Scene) -> None:
    stage_again(scene, family="gfx94X-dcgpu")


def no_device_code(scene: Scene) -> None:
    scene.stack = stack_of(scene.made, device_code=("torch",))


def project_missing(scene: Scene) -> None:
    scene.wheels.pop()
    stage_again(scene)


def project_of_nobody(scene: Scene) -> None:
    scene.stack = structs.replace(scene.stack, projects=scene.stack.projects[:1])


def another_line(scene: Scene) -> None:
    scene.stack = structs.replace(scene.stack, line="release/2.9")


def another_stack(scene: Scene) -> None:
    scene.stack = structs.replace(scene.stack, name="pytorch")


def python_of_no_stack(scene: Scene) -> None:
    scene.stack = structs.replace(scene.stack, pythons=("3.12",))


def manifest_replaced(scene: Scene) -> None:
    key = keys.set_key(scene.made.id, "manifest.json")
    scene.store.write(key, scene.store.read(key).data.replace(b'"main"', b'"evil"'))


def manifest_of_less(scene: Scene) -> None:
    stage_again(scene, targets=("gfx1036", "gfx1100"))


def pages_of_the_set_edited(scene: Scene) -> None:
    key = f"{keys.set_simple_prefix(scene.made.id)}numpy/index.html"
    scene.store.write(key, scene.store.read(key).data.replace(b"numpy-2.0", b"numpy-9.0"))


def past_the_gate(scene: Scene) -> None:
    publish(scene.store, "release", scene.wheels)


def target_changed_meanwhile(scene: Scene) -> None:
    def rebuild(step: str) -> None:
        if step.startswith("keeping"):
            scene.on_step = lambda _step: None
            rebuilt_under_another_name(scene)

    scene.on_step = rebuild


@dataclass(frozen=True)
class Attack:
    """What is tried, in words; which demand refuses it (None: it is refused before), and what it says."""

    act: Callable[[Scene], None]
    words: str
    demand: int | None
    said: str

    @property
    def name(self) -> str:
        return self.act.__name__


ATTACKS = (
    Attack(no_record, "A set without a test record", 2, "there is no test record"),
    Attack(
        one_target_untested, "Tested on one of its two targets", 2, "no smoke record has passed on gfx1101"
    ),
    Attack(record_of_open_set, "A record of a set that was not sealed", None, "was not sealed"),
    Attack(
        record_of_other_set, "A record of a different set, put beside this one", 2, "it is of the set bbbb"
    ),
    Attack(record_edited, "A failed record edited to a passed one", 2, "was changed"),
    Attack(record_contradicts_itself, "A record that passed with failures", 2, "passed with failures"),
    Attack(record_took_less_than_no_time, "A record of a negative duration", None, "less than no time"),
    Attack(record_from_the_future, "A record from the future", None, "yet to come"),
    Attack(record_from_the_future_by_hand, "The same, put into the store by hand", 2, "yet to come"),
    Attack(
        record_older_than_the_set, "A record older than the set, used again", 2, "before the set was staged"
    ),
    Attack(record_without_a_zone, "A record at a time of no zone", None, "has no zone"),
    Attack(failure_outnumbered, "A failed record among eleven that passed", 2, "failed: 1 failed"),
    Attack(failure_bypassed, "A bypass of tests that failed", 2, "failed: 1 failed"),
    Attack(bypass_beside_the_hardware, "A bypass where tests ran on the GPU, too few", 2, "no bypass helps"),
    Attack(
        bypass_of_selected_tests_on_the_hardware,
        "A bypass where selected tests ran on the GPU",
        2,
        "no bypass helps",
    ),
    Attack(bypass_without_a_record, "A bypass, and no record", 2, "there is no test record"),
    Attack(
        bypass_of_a_suite_alone,
        "A bypass, and a record that does not count the imports",
        2,
        "no record shows that every package imports",
    ),
    Attack(bypass_in_untested, "The same, to the channel `untested`", 2, "that every package imports"),
    Attack(
        bypass_of_another_python,
        "A bypass, and imports of another Python",
        2,
        "it was made with Python 3.12 on win_amd64",
    ),
    Attack(
        bypass_of_another_platform,
        "A bypass, and imports on another platform",
        2,
        "it was made with Python 3.11 on linux_x86_64",
    ),
    Attack(
        bypass_of_a_package_not_imported,
        "A bypass, and one package that was not imported",
        2,
        "no module of torchvision was imported",
    ),
    Attack(
        bypass_of_a_package_without_a_module,
        "A bypass, and one package with no module to import",
        2,
        "no module of torchvision was imported",
    ),
    Attack(
        bypass_of_the_stacks_own_tests,
        "A bypass, and every test of the stack skipped",
        2,
        "none of the stack's own tests passed",
    ),
    Attack(
        bypass_of_selected_tests,
        "A bypass, and selected tests without a GPU",
        2,
        "perhaps not every test ran",
    ),
    Attack(bypass_of_translated_tests, "A bypass, and tests of a translated device", 2, "on no GPU"),
    Attack(
        bypass_of_too_few_tests,
        "A bypass, and too few tests without a GPU",
        2,
        "4 tests ran, fewer than the floor of 5",
    ),
    Attack(
        bypass_of_an_answered_failure,
        "A bypass, and a failure without a GPU that somebody answered",
        2,
        "no record shows that every package imports",
    ),
    Attack(
        own_tests_counted_beyond_what_passed,
        "A record that counts more tests of the stack than passed",
        None,
        "more of the stack's tests than passed",
    ),
    Attack(bypass_of_a_set_for_the_cpu, "A bypass of tests on a CPU", 2, "no smoke record has passed on cpu"),
    Attack(
        untested_over_tested,
        "An untested set, by a bypass, over one that was tested",
        2,
        "tested on gfx1101, which an untested one does not replace: cairn release promote",
    ),
    Attack(failure_overtaken_by_a_part, "A failure answered by selected tests", 2, "failed: 1 failed"),
    Attack(failure_removed_after_its_answer, "An answered failure, then removed", 2, "is not there any more"),
    Attack(answer_to_nothing, "An answer to a record that is not there", None, "has no record cccc"),
    Attack(answer_by_nobody, "An answer in nobody's name", None, "needs a name and a reason"),
    Attack(failure_while_the_gate_is_asked, "A failure that comes while the gate is asked", 2, "1 failed"),
    Attack(some_tests_alone, "A record of selected tests", 2, "perhaps not every test ran"),
    Attack(wrong_hardware, "Tested on hardware of a different family", 2, "made on gfx942"),
    Attack(no_hardware, "Tested on a machine without a GPU", 2, "without any hardware"),
    Attack(no_test_on_the_gpu, "Every test of the GPU was skipped", 2, "none of its tests used the GPU"),
    Attack(
        gpu_beside_the_one_that_was_used,
        "A GPU of the second target, beside the one that tests used",
        2,
        "no smoke record has passed on gfx1101",
    ),
    Attack(
        covered_without_the_gpu,
        "A record of tests on a target, without a GPU of it",
        None,
        "covers a target without a GPU of it",
    ),
    Attack(gpus_left_out, "A record that names no GPU", None, "its hardware is not that of its GPUs"),
    Attack(
        gpus_left_out_as_an_older_cairn_did,
        "The same, in the format of an older Cairn",
        2,
        "does not say which GPUs there were",
    ),
    Attack(too_few_tests, "Fewer tests than the floor", 2, "4 tests ran, fewer than the floor of 5"),
    Attack(translated_device, "A device that was translated", 2, "untested: the device was translated"),
    Attack(
        kind_not_demanded, "A record of a kind that the stack does not demand", 2, "demands no suite record"
    ),
    Attack(
        record_of_other_targets, "A record for a part of the targets", 2, "it is of gfx110X-all (gfx1100)"
    ),
    Attack(record_of_a_part, "A record of a part of the wheels", None, "does not cover torchvision"),
    Attack(record_with_another_dependency, "Tested with other bytes of a dependency", None, "of other bytes"),
    Attack(record_silent_on_a_dependency, "A record silent on a dependency", 2, "does not say which numpy"),
    Attack(record_with_more_installed, "Tested with something beside the set", None, "the set does not have"),
    Attack(record_not_signed, "An unsigned record, where signatures are asked for", 2, "is not signed"),
    Attack(
        file_swapped,
        "A file of the closure swapped in the store",
        6,
        "numpy-2.0-py3-none-any.whl was changed",
    ),
    Attack(own_wheel_swapped, "A wheel of the set swapped in the store", 6, "none-any.whl was changed"),
    Attack(file_removed, "A file of the closure removed", 6, "is missing from the store"),
    Attack(
        metadata_poisoned, "A requirement added to the metadata beside a file", 6, "metadata beside numpy"
    ),
    Attack(dependency_that_fails_verify, "A dependency that fails verify", 1, "numpy-2.1-py3-none-any.whl"),
    Attack(dependency_put_by_hand, "A dependency put into staging by hand", 1, "not in the lock"),
    Attack(dependency_not_in_the_lock, "A mirrored dependency that nobody reviewed", 1, "not in the lock"),
    Attack(
        dependency_by_the_name_of_the_sdk,
        "A dependency that is called as if ROCm's",
        1,
        "rocm_helper-1.0-py3-none-any.whl with sha256",
    ),
    Attack(dependency_newer_in_the_target, "A newer dependency waiting in the target", 3, "takes numpy-2.9"),
    Attack(
        dependency_newer_for_a_set_that_stays,
        "A newer dependency, which a set that stays would get too",
        3,
        "would not be what was tested any more: an installer takes numpy-2.1",
    ),
    Attack(
        same_name_other_bytes,
        "Other bytes under a name that is there",
        None,
        "was published with other bytes before",
    ),
    Attack(
        rebuilt_under_another_name, "A version rebuilt under another file name", 5, "of a different build"
    ),
    Attack(build_tag, "A version rebuilt under a build tag", None, "has the build tag"),
    Attack(spelt_otherwise, "`2.9` where `2.9.0` is coming", 5, "spells the same version"),
    Attack(below_what_is_there, "A version below what is there", 4, "sorts below 2.9.1"),
    Attack(
        names_mixed_with_a_mirror,
        "A project of the set from a mirror, higher",
        5,
        "from sets and from a mirror",
    ),
    Attack(without_its_builder, "A set of which no builder says anything", 0, "no builder's statement"),
    Attack(
        forged_on_its_way,
        "A module added to a wheel; RECORD and `set.json` made to agree",
        None,
        "and the builder says that it made it with sha256",
    ),
    Attack(forged_in_the_store, "The same, put into the store by hand", 0, "and the builder says"),
    Attack(of_another_commit, "A wheel of another commit than its manifest's", None, "and the manifest has"),
    Attack(of_another_commit_in_the_store, "The same, put into the store by hand", 0, f"is of {'c' * 40}"),
    Attack(without_a_bill, "A wheel that does not say what it is of", 0, "has no bill of materials"),
    Attack(set_edited, "`set.json` edited", None, "the set id is not that of its content"),
    Attack(set_sealed_again, "`set.json` edited and sealed again", None, "has no set"),
    Attack(
        staged_with_other_words,
        "The wheels staged again for the CPU, with the old records",
        None,
        "is not of",
    ),
    Attack(
        family_of_others, "A set that calls itself of a different family", 6, "and calls itself gfx94X-dcgpu"
    ),
    Attack(no_device_code, "A wheel without code for its targets", 6, "torch has no device code for gfx1100"),
    Attack(project_missing, "A set without a project of the stack", 6, "it has no torchvision"),
    Attack(
        project_of_nobody,
        "A wheel that no project of the stack makes",
        6,
        "no project that makes torchvision",
    ),
    Attack(another_line, "A set of a different release line", 6, "not of sample, line release/2.9"),
    Attack(another_stack, "A set of a different stack", 6, "not of pytorch"),
    Attack(python_of_no_stack, "A Python that the stack is not for", 6, "not for Python 3.11"),
    Attack(manifest_replaced, "The manifest of the set replaced", 6, "its manifest was changed"),
    Attack(manifest_of_less, "Targets that its manifest does not have", 6, "its manifest is not for gfx1036"),
    Attack(
        pages_of_the_set_edited, "The pages edited that tests install from", 6, "does not say what the set is"
    ),
    Attack(past_the_gate, "Published past the gate", None, "sets reach it through the gate"),
    Attack(
        target_changed_meanwhile, "A rebuild that comes while the gate is asked", 5, "of a different build"
    ),
)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_it_is_refused(scene: Scene, attack: Attack) -> None:
    with pytest.raises(CairnError) as caught:
        attack.act(scene)
        scene.promote()
    reasons = caught.value.reasons if isinstance(caught.value, GateError) else ()
    if attack.demand is None:
        assert attack.said in str(caught.value)
    else:
        refused = {int(reason.partition(".")[0]): reason for reason in reasons}
        assert attack.said in refused[attack.demand]
    assert scene.made.id not in Index(scene.store, "release").load().set_ids


def test_nothing_is_written_where_it_is_refused(scene: Scene) -> None:
    scene.records.clear()
    before = contents(scene.store)
    with pytest.raises(GateError):
        scene.promote()
    assert contents(scene.store) == before


def test_a_set_that_needs_the_same_beside_one_that_stays_passes(scene: Scene) -> None:
    stage_next(scene, numpy="2.0")
    scene.promote()


@pytest.mark.parametrize("what", ["yanked", "resolves to something else already"])
def test_only_what_users_are_offered_as_it_was_tested_holds_up_the_next(scene: Scene, what: str) -> None:
    old = scene.made
    if what == "yanked":
        stage_next(scene, numpy="2.1")
        yank(scene.store, old.id, reason="wrong")
    else:
        stage_next(scene, numpy="2.2")
        newer = distribution.read(make_wheel(scene.folder / "newer", "numpy", "2.1"))
        publish_dists(Index(scene.store, "release"), [newer], "mirror", build=MIRRORED)
    scene.promote()
    assert scene.made.id in Index(scene.store, "release").load().set_ids


def test_an_untested_set_goes_to_the_channel_that_says_so(scene: Scene) -> None:
    untested_over_tested(scene)
    scene.asked["target"] = "untested"
    scene.promote()
    entry = Index(scene.store, "untested").load().set(scene.made.id)
    assert entry.untested_targets == ("gfx1101",)
    assert "untested on hardware: gfx1101; bypassed by me" in str(entry.untested)
    assert scene.made.id not in Index(scene.store, "release").load().set_ids
    assert audit(scene.store, hashes=True).problems == ()


def test_what_failed_goes_to_no_channel(scene: Scene) -> None:
    failure_bypassed(scene)
    scene.asked["target"] = "untested"
    with pytest.raises(GateError):
        scene.promote()


def test_an_untested_set_follows_one_that_was_taken_back(scene: Scene) -> None:
    old = scene.made.id
    untested_over_tested(scene)
    yank(scene.store, old, reason="wrong")
    scene.promote()
    assert scene.made.id in Index(scene.store, "release").load().set_ids


def rows() -> Iterator[str]:
    yield "| what is tried | refused by | what it says | test |"
    yield "| --- | --- | --- | --- |"
    for attack in ATTACKS:
        by = "before" if attack.demand is None else f"demand {attack.demand}"
        yield f"| {attack.words} | {by} | … {attack.said} … | `{attack.name}` |"


def test_the_page_shows_the_table() -> None:
    shown = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    table = list(rows())
    assert shown[shown.index(table[0]) :] == table, "put `rows()` into docs/reference/gate.md"
