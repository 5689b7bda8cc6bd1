"""A set, the index that has it, the lock of what is mirrored and the store say the same of each file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cairn.release.gate import files_of_set
from cairn.release.gate.case import Case, opened
from cairn.release.index import keys
from cairn.release.index.generation import MIRRORED
from cairn.release.index.snapshot import Index
from cairn.release.publish import distribution
from cairn.release.publish.files import publish_dists
from cairn.release.publish.mirror_lock import LockedFile, MirrorLock
from cairn.store.memory import MemoryStore
from cairn.wheels.wheelset import WheelSet
from helpers.formats import make_elf
from helpers.gate import AWAY, case_of, demand, judge, record_of
from helpers.release import audit, make_sdist, make_set, make_wheel, put, stage_set, with_bill
from helpers.wheels import build_wheel


@pytest.fixture
def made(store: MemoryStore, tmp_path: Path) -> WheelSet:
    """A staged set of torch, with a mirrored numpy."""
    numpy, torch = (
        make_wheel(tmp_path, "numpy", "2.0"),
        make_wheel(tmp_path, "torch", "2.9", requires=["numpy"]),
    )
    publish_dists(Index(store, "staging"), [distribution.read(numpy)], "mirror", build=MIRRORED)
    return stage_set(store, "staging", make_set([torch], **AWAY), [torch])


def lock_of(name: str, sha256: str) -> MirrorLock:
    file = LockedFile(name="numpy", version="2.0", file_name=name, sha256=sha256)
    return MirrorLock(stack="sample", pythons=("3.11",), platforms=("win_amd64",), files=(file,))


def test_what_is_mirrored_is_what_was_reviewed_to_the_byte(store: MemoryStore, made: WheelSet) -> None:
    (numpy,) = made.closure
    reviewed = case_of(store, made, mirror_lock=lock_of(numpy.file_name, numpy.sha256))
    assert list(files_of_set.unreviewed(reviewed)) == []
    other = case_of(store, made, mirror_lock=lock_of(numpy.file_name, "0" * 64))
    assert [text.partition(" ")[2] for text in files_of_set.unreviewed(other)] == [
        f"with sha256 {numpy.sha256} is not in the lock of the mirror"
    ]


def test_a_file_comes_from_where_the_set_says(store: MemoryStore, made: WheelSet) -> None:
    closure = tuple(msgspec.structs.replace(file, origin="published") for file in made.closure)
    case = case_of(store, msgspec.structs.replace(made, closure=closure))
    (problem,) = files_of_set.unreviewed(case)
    assert problem.endswith("is mirrored in staging, and the set says published")


def problems(case: Case) -> str:
    with opened(case) as files:
        return "; ".join(files_of_set.not_of_store(case, files))


@pytest.mark.parametrize("part", ["wheels", "closure"])
@pytest.mark.parametrize(
    "change", [{"size": 1}, {"metadata_sha256": "0" * 64}, {"requires_python": ">=3"}], ids=str
)
def test_the_set_and_the_index_say_the_same_of_a_file(
    store: MemoryStore, made: WheelSet, part: str, change: dict[str, Any]
) -> None:
    assert problems(case_of(store, made)) == ""
    (file,) = getattr(made, part)
    told = msgspec.structs.replace(made, **{part: (msgspec.structs.replace(file, **change),)})
    assert f"{file.file_name}: set.json and staging say different things of it" in problems(
        case_of(store, told)
    )


def test_a_file_is_hashed_once_and_that_notices_every_change(
    store: MemoryStore, made: WheelSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []
    digest = hashlib.file_digest

    def spy(file: Any, name: str) -> Any:
        hashed.append(Path(file.name).name)
        return digest(file, name)

    monkeypatch.setattr(hashlib, "file_digest", spy)
    report = judge(store, made, records=[record_of(made)])
    assert report.holds
    assert sorted(hashed) == sorted(made.sha256s)
    # Another build of the same version, with the same metadata.
    (torch,) = made.wheels
    other = make_wheel(tmp_path / "other", "torch", "2.9", requires=["numpy"], content="VERSION = 1\n")
    store.objects[keys.file_key(torch.sha256, torch.file_name)] = other.read_bytes()
    assert f"{torch.file_name} was changed in the store" in problems(case_of(store, made))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"stack": "other"}, "the stack of its manifest is {0.stack}, and not other"),
        ({"line": "other"}, "the line of its manifest is {0.line}, and not other"),
        ({"platform": "linux_x86_64"}, "the platform of its manifest is {0.platform}, and not linux_x86_64"),
        ({"python": "3.12"}, "its manifest is not for Python 3.12"),
        ({"targets": ("gfx1036", "cpu")}, "its manifest is not for gfx1036"),
    ],
)
def test_a_set_is_of_what_its_manifest_froze(
    store: MemoryStore, made: WheelSet, change: dict[str, Any], problem: str
) -> None:
    assert list(files_of_set.not_of_manifest(case_of(store, made))) == []
    changed = case_of(store, msgspec.structs.replace(made, **change))
    assert list(files_of_set.not_of_manifest(changed)) == [problem.format(made)]


def test_what_is_not_of_the_line_goes_into_no_channel_of_it(store: MemoryStore, made: WheelSet) -> None:
    """A branch may have a higher version than the line: neither its version nor its name keeps it out."""
    key = keys.set_key(made.id, "manifest.json")
    data = json.dumps(json.loads(store.read(key).data) | {"off_line": ["torch"]}).encode()
    store.write(key, data)
    other = msgspec.structs.replace(made, manifest_sha256=hashlib.sha256(data).hexdigest())
    (problem,) = files_of_set.not_of_manifest(case_of(store, other))
    assert problem.startswith(f"the commit of torch is not that of {made.line}")
    assert list(files_of_set.not_of_manifest(case_of(store, other, target="dev"))) == []


def test_the_files_of_a_set_are_judged_as_one_program(store: MemoryStore, tmp_path: Path) -> None:
    def found(version: str, torch_has: str) -> list[str]:
        tags, needed = ("cp311-cp311-manylinux_2_28_x86_64",), ("libtorch.so",)
        library = make_elf(soname="libtorch.so", defined=(torch_has,))
        module = make_elf(needed=needed, symbols=("_ZN2at3addEv",), defined=("PyInit_m",))
        files = {"torch": {"torch/libtorch.so": library}, "torchaudio": {"torchaudio/m.abi3.so": module}}
        wheels = [
            with_bill(
                build_wheel(tmp_path, name=name, version=version, tags=tags, files=content, requires=())
            )
            for name, content in files.items()
        ]
        case = case_of(store, stage_set(store, "staging", make_set(wheels, **AWAY), wheels))
        with opened(case) as opened_files:
            return [text for text in files_of_set.findings(case, opened_files) if "_ZN2at3addEv" in text]

    assert found("1.0", "_ZN2at3addEv") == []
    (problem,) = found("1.1", "_ZN2at3subEv")
    assert problem.startswith(
        "torchaudio-1.1-cp311-cp311-manylinux_2_28_x86_64.whl (torchaudio/m.abi3.so): it wants"
    )


def test_an_sdist_that_requires_itself_is_refused(store: MemoryStore, tmp_path: Path) -> None:
    def found(version: str, *requires: str) -> list[str]:
        rocm = make_sdist(tmp_path, "rocm", version, requires=requires, dynamic=False)
        publish_dists(Index(store, "staging"), [distribution.read(rocm)], "mirror", build=MIRRORED)
        torch = make_wheel(tmp_path, "torch", version, requires=[f"rocm=={version}"])
        case = case_of(store, stage_set(store, "staging", make_set([torch], **AWAY), [torch]))
        with opened(case) as opened_files:
            return [text for text in files_of_set.findings(case, opened_files) if "itself" in text]

    assert found("7.13") == found("7.13.1", "rocm[libraries]==7.13.1") == []
    assert found("7.14", "rocm==7.14") == ["rocm-7.14.tar.gz: it requires itself: rocm==7.14"]


@pytest.mark.parametrize(
    ("requirement", "lacking"),
    [("rocm[libraries]==7.10", ""), ("rocm[DEVEL,Lib.raries]==7.10", "lib-raries"), ("late[any]==1", "")],
)
@pytest.mark.parametrize("mirrored", [False, True])
def test_the_extras_that_the_set_asks_for_are_declared(
    store: MemoryStore, tmp_path: Path, requirement: str, lacking: str, *, mirrored: bool
) -> None:
    """pip installs without a package of an extra that is not declared; a mirrored package may ask for any."""
    rocm = make_wheel(tmp_path, "rocm", "7.10", extras=["libraries", "devel"])
    between = make_wheel(tmp_path, "between", "1", requires=[requirement])
    late = make_sdist(tmp_path, "late", "1")  # which declares its extras when it is built
    torch = make_wheel(tmp_path, "torch", "2.9", requires=["between"], extras=["all"])
    put(store, "staging", [rocm, late])
    build = MIRRORED if mirrored else "published"
    publish_dists(Index(store, "staging"), [distribution.read(between)], "mirror", build=build)
    made = stage_set(store, "staging", make_set([torch], **AWAY), [torch])
    said = f"between needs {requirement}, and rocm 7.10 has no extra {lacking}" if lacking else ""
    expected = [said] if said and not mirrored else []
    told = [text.partition(": ")[2] for text in audit(store, "staging", hashes=False)]
    assert [text for text in told if "extra" in text] == expected
    assert list(files_of_set.unmet(case_of(store, made))) == expected
    assert not expected or expected[0] in demand(judge(store, made), 1).reason
