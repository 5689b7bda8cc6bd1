"""A promotion resolves again the sets that it may concern, and reads no others."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from cairn.release.gate import installation
from cairn.release.index import keys
from cairn.release.index.generation import MIRRORED, FileEntry
from cairn.release.index.listing import index_set
from cairn.store.memory import MemoryStore
from cairn.wheels import wheelset
from cairn.wheels.wheelset import ClosureFile, SetWheel, WheelSet
from helpers.faults import FaultyStore, Plan
from helpers.gate import case_of
from helpers.release import move


def file_of(name: str, version: str, tag: str = "py3-none-any") -> FileEntry:
    filename = f"{name}-{version}-{tag}.whl"
    sha256 = hashlib.sha256(filename.encode()).hexdigest()
    return FileEntry(filename=filename, sha256=sha256, size=1, version=version, build=MIRRORED)


def set_of(own: dict[str, str], closure: dict[str, str]) -> WheelSet:
    wheels = (
        SetWheel(
            distribution=file.filename.partition("-")[0],
            version=file.version,
            file_name=file.filename,
            sha256=file.sha256,
            size=1,
            metadata_sha256="0" * 64,
            targets=(),
        )
        for file in (file_of(name, version) for name, version in sorted(own.items()))
    )
    files = (file_of(name, version) for name, version in closure.items() if name not in own)
    made = WheelSet(
        manifest_sha256="0" * 64,
        stack="sample",
        line="main",
        python="3.11",
        platform="linux_x86_64",
        family="cpu",
        targets=(),
        wheels=tuple(wheels),
    )
    return wheelset.seal(
        made,
        [
            ClosureFile(file_name=file.filename, sha256=file.sha256, size=1, origin="mirrored")
            for file in files
        ],
    )


VERSIONS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["1.0", "1", "2.0"]), min_size=1)
TAGS = st.sampled_from(["py3-none-any", "cp312-cp312-win_amd64"])
COMING = st.dictionaries(
    st.sampled_from("abcde"), st.lists(st.tuples(st.sampled_from(["1.0", "2.0"]), TAGS), min_size=1)
)


@given(VERSIONS, VERSIONS, COMING)
def test_no_set_is_passed_over_that_the_gate_would_resolve(
    own: dict[str, str], closure: dict[str, str], coming: dict[str, list[tuple[str, str]]]
) -> None:
    staying = set_of(own, closure)
    files = {name: [file_of(name, *one) for one in every] for name, every in coming.items()}
    if installation._concerned(staying, files):
        assert installation._may_concern(index_set(staying), files)


def test_sets_that_share_no_changed_project_are_not_read(
    nights: MemoryStore, sets: dict[str, WheelSet]
) -> None:
    def read_for(version: str) -> list[str]:
        """The versions of the sets of the target that are read before a set comes."""
        counted = FaultyStore(nights, Plan())
        case = case_of(counted, sets[version])
        begun = len(counted.plan.requests)
        assert list(installation.no_longer_resolving(case)) == []
        read = {key for kind, key in counted.plan.requests[begun:] if kind == "read"}
        return [one for one, made in sets.items() if keys.set_key(made.id, "set.json") in read]

    move(nights, sets["2.8.0"])
    assert read_for("2.9.0") == ["2.8.0"]  # a numpy comes with it, which that set does not pin
    move(nights, sets["2.9.0"])
    assert read_for("2.10.0") == []  # torch and torchvision alone are new, which both have at other versions
