"""What an index does not take: names, metadata, and files beside which pip would mix two builds."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cairn.errors import GateError, StoreError
from cairn.release.index.generation import MIRRORED, PUBLISHED, FileEntry, ProjectState, project_of
from cairn.release.index.snapshot import Change, Index, Snapshot
from cairn.release.publish import distribution, rules
from cairn.release.publish.compatibility import overlap
from cairn.release.publish.files import NameTakenError, publish, publish_dists
from cairn.store.memory import MemoryStore
from helpers.release import make_sdist, make_wheel

ONE, OTHER = "1" * 64, "2" * 64  # manifests
LINUX, OLD_LINUX, NEW_LINUX = "linux_x86_64", "manylinux2014_x86_64", "manylinux_2_28_x86_64"


def entry(filename: str, *, build: str = ONE, version: str | None = None) -> FileEntry:
    found = version or filename.removesuffix(".tar.gz").split("-")[1]
    return FileEntry(filename=filename, sha256="0" * 64, size=1, version=found, upload_time="", build=build)


def offering(there: list[FileEntry]) -> Snapshot:
    """An index that offers these files."""
    snapshot = Index(MemoryStore(), "staging").load()
    projects: dict[str, ProjectState] = {}
    for file in there:
        name = project_of(file.filename)
        projects[name] = projects.get(name, ProjectState(name=name, files=())).with_files((file,))
    return snapshot.with_change(Change(projects=projects))


def found_beside(there: list[FileEntry], new: list[FileEntry]) -> tuple[str, ...]:
    """What is wrong with new files where others are."""
    return rules.second_builds(offering(there), new)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (f"cp311-cp311-{LINUX}", f"cp311-cp311-{NEW_LINUX}", True),
        (f"cp311-cp311-{OLD_LINUX}", f"cp311-cp311-{NEW_LINUX}", True),
        (f"cp311-cp311-{LINUX}", f"cp312-cp312-{LINUX}", False),
        (f"cp311-cp311-{LINUX}", "cp311-cp311-linux_aarch64", False),
        (f"cp311-cp311-{LINUX}", "cp311-cp311-musllinux_1_2_x86_64", False),
        (f"cp311-cp311-{LINUX}", "cp311-cp311-win_amd64", False),
        (f"cp39-abi3-{LINUX}", f"cp311-cp311-{LINUX}", True),
        (f"cp312-abi3-{LINUX}", f"cp311-cp311-{LINUX}", False),
        (f"cp313-cp313-{LINUX}", f"cp313-cp313t-{LINUX}", False),
        (f"pp310-pypy310_pp73-{LINUX}", f"pp310-pypy310_pp73-{NEW_LINUX}", True),
        ("py3-none-any", "cp311-cp311-win_amd64", True),
        ("cp311-cp311-macosx_11_0_universal2", "cp311-cp311-macosx_12_0_arm64", True),
        ("cp311-cp311-macosx_11_0_x86_64", "cp311-cp311-macosx_12_0_arm64", False),
        ("py2-none-any", "py3-none-any", False),
        ("py2.py3-none-any", "py3-none-any", True),
        (f"cp311-cp311.abi3-{OLD_LINUX}.{NEW_LINUX}", f"cp311-cp311-{LINUX}", True),
    ],
)
def test_two_wheels_overlap_where_one_installer_could_take_either(
    one: str,
    other: str,
    expected: bool,  # noqa: FBT001 - a column of the table
) -> None:
    first, second = f"a-1.0-{one}.whl", f"a-1.0-{other}.whl"
    assert overlap(first, second) is expected
    assert overlap(second, first) is expected


def test_an_sdist_is_no_second_choice_beside_wheels_but_beside_another_sdist() -> None:
    assert not overlap("a-1.0.tar.gz", "a-1.0-py3-none-any.whl")
    assert overlap("a-1.0.tar.gz", "a-1.0.zip")


def built(tag: str, version: str = "1.0", *, build: str = ONE, name: str = "a") -> FileEntry:
    """A wheel of this version for CPython 3.11, or with another whole tag."""
    return entry(f"{name}-{version}-{tag if '-' in tag else f'cp311-cp311-{tag}'}.whl", build=build)


ANY, NEWER, ROCM = "py3-none-any", f"cp312-cp312-{LINUX}", "2.9.0+rocm7.10"
DIFFERENT, SAME_PLACE = "of a different build", "for the same Python and platform"
MIXED, SPELT = "would come from sets and from a mirror", "spells the same"


@pytest.mark.parametrize(
    ("there", "new", "why"),
    [
        # Another file of a version comes from the same manifest, for another Python or platform.
        (built(LINUX), built(NEWER), None),
        (built(LINUX), built("win_amd64"), None),
        (built(LINUX), built(NEWER, build=OTHER), DIFFERENT),
        (built(LINUX), built(NEW_LINUX), SAME_PLACE),
        (built(LINUX), built(ANY), SAME_PLACE),
        (built(ANY, build=PUBLISHED), entry("a-1.0.tar.gz"), DIFFERENT),
        # One version in two spellings.
        (built(LINUX, "2.9"), built(NEWER, "2.9.0"), SPELT),
        (built(LINUX, "2.9"), built(LINUX, "2.9.1"), None),
        (built(ANY), built(ANY, "1.0+rocm7", build=OTHER), None),
        # Files of other indexes lie beside each other as they do there, and beside nothing else.
        (built(OLD_LINUX, build=MIRRORED), built(NEW_LINUX, build=MIRRORED), None),
        (built(ANY, build=PUBLISHED), built(LINUX, build=MIRRORED), DIFFERENT),
        (built(LINUX, ROCM), built(LINUX, "2.13.0", build=MIRRORED), MIXED),
        (built(LINUX, "2.13.0", build=MIRRORED), built(LINUX, ROCM), MIXED),
        (built(ANY, name="b"), built(ANY, build=OTHER), None),
    ],
)
def test_pip_is_given_no_two_builds_to_mix(there: FileEntry, new: FileEntry, why: str | None) -> None:
    # Both in an index, and both new: the same must come out.
    for found in (found_beside([there], [new]), found_beside([], [there, new])):
        assert (len(found), why is None or why in found[0]) == (0 if why is None else 1, True)


def test_of_thousands_of_files_those_of_the_version_are_compared() -> None:
    there = [entry(f"a-1.{n}-cp311-cp311-{LINUX}.whl") for n in range(300)]
    new = [
        entry(f"a-1.77.0-cp312-cp312-{LINUX}.whl"),
        entry(f"a-1.299-py3-none-{LINUX}.whl"),
        entry(f"a-1.300-py3-none-{LINUX}.whl"),
    ]
    assert [line.partition(" ")[0] for line in found_beside(there, new)] == [
        f"a-1.77.0-cp312-cp312-{LINUX}.whl",
        f"a-1.299-py3-none-{LINUX}.whl",
    ]


@pytest.mark.parametrize(
    ("filename", "build", "why"),
    [
        ("torch-2.9.0-1-cp311-cp311-linux_x86_64.whl", ONE, "it has the build tag '1'"),
        ("torch-2.9.0-1-cp311-cp311-linux_x86_64.whl", PUBLISHED, "it has the build tag"),
        ("torch-2.9.0-1x-cp311-cp311-linux_x86_64.whl", MIRRORED, "it has the build tag"),
        ("Torch-2.9.0-py3-none-any.whl", ONE, "the name is to be spelt torch"),
        ("torch__geo-2.9.0-py3-none-any.whl", PUBLISHED, "is the name of neither a wheel nor an sdist"),
        ("torch__geo-1.0.tar.gz", PUBLISHED, "the name is to be spelt torch_geo"),
        ("notes.txt", PUBLISHED, "is the name of neither a wheel nor an sdist"),
        ("torch.geo-2.9.0-py3-none-any.whl", ONE, "the name is to be spelt torch_geo"),
        ("torch-geo-1.0.tar.gz", PUBLISHED, "the name is to be spelt torch_geo"),
        ("torch-2.9.0.RC1-py3-none-any.whl", ONE, "the version is to be spelt 2.9.0rc1"),
        ("torch-2.9.0+ROCm7-py3-none-any.whl", PUBLISHED, r"the version is to be spelt 2.9.0\+rocm7"),
        ("torch-02.9-py3-none-any.whl", ONE, "the version is to be spelt 2.9"),
        ("torch-1!2.9-py3-none-any.whl", ONE, "has an epoch"),
        ("torch-2.9-cp311-cp311-linux_x8664.whl", ONE, "no installer knows its tags linux_x8664"),
        ("torch-2.9-cp311-cp31x-any.whl", MIRRORED, "no installer knows its tags cp31x"),
        ("torch-2.9-cpython311-none-any.whl", PUBLISHED, "no installer knows its tags cpython311"),
        ("torch-2.9-cp311-cp311-manylinux_2_x86_64.whl", PUBLISHED, "no installer knows its tags"),
        ("torch-2.9-py3-none.whl", ONE, "is the name of neither a wheel nor an sdist"),
    ],
)
def test_a_file_that_could_be_called_otherwise_is_refused(filename: str, build: str, why: str) -> None:
    assert why.replace("\\", "") in "".join(rules.name_problems(filename, build=build))


@pytest.mark.parametrize(
    ("filename", "build"),
    [
        ("torch-2.9.0+rocm7.10.0-cp311-cp311-manylinux_2_28_x86_64.whl", ONE),
        ("torch_scatter-2.1.2+pt213cpu-cp313-cp313-win_amd64.whl", ONE),
        ("torch_device_gfx942-2.9.0-py3-none-any.whl", ONE),
        ("rocm_sdk_libraries_gfx94X_dcgpu-7.10.0a20251124-py3-none-linux_x86_64.whl", PUBLISHED),
        ("rocm-7.10.0.tar.gz", PUBLISHED),
        ("torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl", MIRRORED),
        ("MarkupSafe-2.0.1-cp39-cp39-manylinux1_x86_64.whl", MIRRORED),
        ("pywin32-306-cp311-cp311-win32.whl", MIRRORED),
        ("numpy-2.0.0-cp312-cp312-macosx_11_0_arm64.whl", MIRRORED),
        ("numpy-2.0.0-cp313-cp313t-musllinux_1_2_aarch64.whl", MIRRORED),
        ("numpy-2.0.0-pp310-pypy310_pp73-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl", MIRRORED),
        ("torch-2.12.0.dev20260101+rocm7.1-cp312-cp312-linux_x86_64.whl", ONE),
    ],
)
def test_names_as_builders_and_other_indexes_write_them_are_good(filename: str, build: str) -> None:
    assert rules.name_problems(filename, build=build) == ()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("Summary: <script>alert(1)</script>", "Summary has HTML"),
        ("Summary: a\x1b[31mred", "Summary has a line end or a character that is not printable"),
        ("Summary: a\u202eb", "Summary has a line end or a character"),
        ("Summary: a\x85b", "Summary has a line end or a character"),
        ("Home-page: javascript:alert(1)", "Home-Page is not an address of the web"),
        ("Project-URL: Docs, javascript:alert(1)", "Project-Urls is not an address of the web"),
        ("Project-URL: <b>Docs</b>, https://x.example", "Project-Urls has HTML"),
        ("Download-URL: data:text/html,x", "Download-Url is not an address of the web"),
        ("Classifier: <img src=x onerror=y>", "Classifiers has HTML"),
        ("Keywords: <!-- a -->", "Keywords has HTML"),
        ("Author: a\x00b", "Author has a control character"),
        ("License: a\x07b", "License has a control character"),
        ("Provides-Extra: <x>", "Provides-Extra has HTML"),
    ],
)
def test_metadata_that_a_page_should_not_show_is_refused_by_its_field(line: str, why: str) -> None:
    data = f"Metadata-Version: 2.1\nName: a\nVersion: 1.0\n{line}\n".encode()
    (problem,) = rules.metadata_problems("a-1.0-py3-none-any.whl", data, build=MIRRORED)
    assert why in problem
    assert problem.isprintable()


@pytest.mark.parametrize(
    "line",
    [
        "Author-email: A Person <a@b.example>",
        "License: Copyright (C) <year>  <name of author>\n        \x0cPage two",
        "Summary: A long summary that goes on\n        in the next line",
        "Requires-Python: <4,>=3.9",
        "Home-page: https://x.example/?a=b",
        "Home-page: www.example.org",
        "Requires-Dist: a<2,>1",
        "Project-URL: Mail, mailto:a@b.example",
        "Summary: tensors for x < 1 and y > 2",
        "Author: Zoë Ångström, 青山",
        "Project-URL: CI: GitHub Actions, https://x.example/ci",  # as aiohttp has it
    ],
)
def test_metadata_as_people_write_it_is_good(line: str) -> None:
    data = f"Metadata-Version: 2.1\nName: a\nVersion: 1.0\n{line}\n\n<b>A readme</b>\n".encode()
    assert rules.metadata_problems("a-1.0-py3-none-any.whl", data, build=MIRRORED) == ()


def test_everything_that_is_wrong_is_said_at_once_and_nothing_is_written(
    store: MemoryStore, tmp_path: Path
) -> None:
    bad_name = make_wheel(tmp_path, "a", "1.0")
    bad_name = bad_name.rename(bad_name.with_name("a-1.0-1-py3-none-any.whl"))
    bad_tag = make_wheel(tmp_path, "b", "1.0", tag="cp311-cp311-linux_x8664")
    bad_text = make_wheel(tmp_path, "c", "1.0", summary="<script>")
    said = []
    for dry_run in (True, False):
        with pytest.raises(StoreError) as caught:
            publish(store, "staging", [bad_name, bad_tag, bad_text], dry_run=dry_run)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert all(part in said[0] for part in ("build tag", "linux_x8664", "Summary has HTML"))
    assert not store.objects


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_dry_run_refuses_what_the_run_would(store: MemoryStore, tmp_path: Path, dry_run: bool) -> None:  # noqa: FBT001
    first = distribution.read(make_wheel(tmp_path, "a", "2.9"))
    publish_dists(Index(store, "staging"), [first], "stage", build=ONE)
    before = dict(store.objects)
    same = make_wheel(tmp_path / "again", "a", "2.9", content="OTHER = 1\n")
    spelt = make_wheel(tmp_path, "a", "2.9.0")
    for path, why in ((same, "has other bytes under"), (spelt, "spells the same version 2.9")):
        with pytest.raises(NameTakenError, match=why):
            publish(store, "staging", [path], dry_run=dry_run)
    with pytest.raises(GateError):
        publish(store, "release", [spelt], dry_run=dry_run)
    assert store.objects == before


def test_an_sdist_beside_its_wheels_is_published_in_one_go(store: MemoryStore, tmp_path: Path) -> None:
    done = publish(store, "staging", [make_wheel(tmp_path, "a", "1.0"), make_sdist(tmp_path, "a", "1.0")])
    assert len(done.added) == 2


def test_what_the_gate_asks_names_everything_that_keeps_files_out(store: MemoryStore, tmp_path: Path) -> None:
    publish(store, "staging", [make_wheel(tmp_path, "a", "1.0")])
    again, other = entry("a-1.0-py3-none-any.whl"), entry("a-1.0.0-1-py3-none-any.whl", version="1.0.0")
    found = "\n".join(rules.file_problems(Index(store, "staging").load(), [again, other]))
    for why in ("build tag", "is there with sha256", "spells the same version 1.0"):
        assert why in found


@pytest.mark.parametrize(
    ("there", "yanked", "is_below"),
    [
        ("2.9.1", None, True),
        ("2.9.1", "wrong", False),
        ("2.9.0", None, False),
        ("2.10.0", None, False),
    ],
)
def test_a_version_that_installers_would_pass_over_is_told(
    there: str, yanked: str | None, *, is_below: bool
) -> None:
    listed = msgspec.structs.replace(built(LINUX, there, name="torch"), yanked=yanked)
    new = built(LINUX, "2.9.0", name="torch").ref
    assert bool(rules.sorting_below(offering([listed]), [new])) is is_below
