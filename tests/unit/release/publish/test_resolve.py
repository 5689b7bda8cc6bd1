"""What a set needs, down to the last file, as uv resolves it from an index."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec import structs
from packaging.markers import default_environment
from packaging.requirements import Requirement

from cairn import venv
from cairn.errors import PrerequisiteError, StoreError, UsageError
from cairn.release.index import keys
from cairn.release.index.generation import MIRRORED, PUBLISHED
from cairn.release.index.snapshot import Change, Index, Snapshot
from cairn.release.index.write import dependencies_first
from cairn.release.publish import distribution
from cairn.release.publish.compatibility import Platform
from cairn.release.publish.files import publish, publish_dists
from cairn.release.publish.resolve import Closure, closure
from cairn.store.memory import MemoryStore
from helpers.moments import Meddled
from helpers.release import commit, make_sdist, make_wheel, make_wheels

LINUX = Platform(python="3.11", tag="linux_x86_64")
END = "-py3-none-any.whl"


def resolved(
    store: MemoryStore, roots: Sequence[Path], *requirements: str, platform: Platform = LINUX
) -> Closure:
    return closure(
        Index(store, "staging").load(),
        roots=[distribution.read(path) for path in roots],
        requirements=requirements,
        platform=platform,
    )


def names(found: Closure) -> list[str]:
    return [ref.filename.removesuffix(END) for ref in found.files]


def missing(found: Closure) -> list[str]:
    """What is not there, who wants it, and which versions there are."""
    return [str(item).replace(END, "") for item in found.missing]


@dataclass(frozen=True, kw_only=True)
class Case:
    """An index, and what is asked of it.

    Attributes:
        there: the wheels of the index, with what each requires.
        roots: those of the set.
        asked: requirements beside them.
        files: the result, without the set itself.
        missing: what is said not to be there.
    """

    there: Mapping[str, Sequence[str]] = field(default_factory=dict)
    roots: Mapping[str, Sequence[str]] = field(default_factory=dict)
    asked: Sequence[str] = ()
    files: Sequence[str] = ()
    missing: Sequence[str] = ()


ONE, TWO = 'x; extra == "one"', 'y; extra == "two"'
VISION = "vision 1"
CASES = {
    "requirements are followed to the end": Case(
        there={"a 1.0": ["b>=1"], "b 1.5": []}, roots={"root 1.0": ["a"]}, files=["a-1.0", "b-1.5"]
    ),
    "every extra of a root counts, and of others those that are asked for": Case(
        there={"a 1.0": [ONE, TWO], "x 1": [], "y 1": []},
        roots={"root 1.0": ['a[one]; extra == "all"']},
        files=["a-1.0", "x-1"],
    ),
    "an extra that is asked for later still counts": Case(
        there={"a 1.0": [ONE], "b 1.0": ["a[one]"], "x 1": []},
        roots={"root 1.0": ["a", "b"]},
        files=["a-1.0", "b-1.0", "x-1"],
    ),
    "everything missing is named with who wants it": Case(
        there={"old 1.0": []},
        roots={"root 1.0": ["gone", "old>=2"]},
        missing=["gone, wanted by root-1.0", "old>=2, wanted by root-1.0 (there: 1.0)"],
    ),
    "the highest version that all accept is taken": Case(
        there={"a 1.0": [], "a 1.5": [], "a 2.0": [], "a 3.0rc1": [], "b 1.0": ["a<2"]},
        roots={"root 1.0": ["a", "b"]},
        files=["a-1.5", "b-1.0"],
    ),
    "roots satisfy each other": Case(
        roots={"torch 2.9.0+rocm7.10.0": [], VISION: ["torch==2.9.0+rocm7.10.0"]},
    ),
    "by their exact versions": Case(
        roots={"torch 2.9.0+rocm7.10.0": [], VISION: ["torch==2.9.0+rocm7.9.0"]},
        missing=["torch==2.9.0+rocm7.9.0, wanted by vision-1 (there: 2.9.0+rocm7.10.0)"],
    ),
    "circles end": Case(there={"a 1": ["b"], "b 1": ["a"]}, asked=["a"], files=["a-1", "b-1"]),
    "an older version is taken where the newest needs what is not there": Case(
        there={"a 1.0": [], "b 1.0": ["a"], "b 2.0": ["a>=3"]}, asked=["b"], files=["a-1.0", "b-1.0"]
    ),
    "unless the newest is asked for": Case(
        there={"a 1.0": [], "b 1.0": ["a"], "b 2.0": ["a>=3"]},
        asked=["b>=2"],
        missing=["a>=3, wanted by b-2.0 (there: 1.0)"],
    ),
    "roots may be of several versions": Case(
        there={"a 1": [], "b 1": []}, roots={"r 1": ["a"], "r 2": ["b"]}, files=["a-1", "b-1"]
    ),
    "roots whose file names differ only in punctuation are told apart": Case(
        there={"a 1": [], "b 1": []}, roots={"r 1.0+1": ["a"], "r 1.0.1": ["b"]}, files=["a-1", "b-1"]
    ),
    "nothing is fetched for a requirement with a URL": Case(
        there={"a 1.0": []}, roots={"root 1": [f"a @ file:///nowhere/a-9{END}"]}, files=["a-1.0"]
    ),
    "a pinned prerelease is taken beside a final version": Case(
        there={"rocm 7.10.0": [], "rocm 7.11.0a20251015": [], "torch 1": ["rocm==7.11.0a20251015"]},
        asked=["torch"],
        files=["rocm-7.11.0a20251015", "torch-1"],
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_set_is_closed_by_what_an_index_has(store: MemoryStore, tmp_path: Path, case: Case) -> None:
    publish(store, "staging", make_wheels(tmp_path, case.there))
    found = resolved(store, make_wheels(tmp_path / "roots", case.roots), *case.asked)
    assert missing(found) == list(case.missing)
    if not case.missing:
        assert names(found) == list(case.files)


def test_markers_are_those_of_the_platform_of_the_set(store: MemoryStore, tmp_path: Path) -> None:
    requires = [
        'win; sys_platform == "win32"',
        'lin; sys_platform == "linux"',
        'old; python_version < "3.12"',
    ]
    root = make_wheel(tmp_path, "root", "1.0", requires=requires)
    publish(store, "staging", make_wheels(tmp_path, {"win 1": [], "lin 1": [], "old 1": []}))
    assert names(resolved(store, [root])) == ["lin-1", "old-1"]
    windows = Platform(python="3.12", tag="win_amd64")
    assert names(resolved(store, [root], platform=windows)) == ["win-1"]


def test_only_wheels_that_fit_are_taken_and_sdists_where_there_is_none(
    store: MemoryStore, tmp_path: Path
) -> None:
    tags = ("cp311-cp311-manylinux_2_28_x86_64", "cp312-cp312-linux_x86_64", "cp311-cp311-win_amd64")
    wheels = [make_wheel(tmp_path, "fast", "1.0", tag=tag) for tag in tags]
    wheels += [make_wheel(tmp_path, "musl", "1.0", tag="cp311-cp311-musllinux_1_2_x86_64")]
    sdists = [make_sdist(tmp_path, name, "1.0") for name in ("fast", "slow")]
    publish(store, "staging", [*wheels, *sdists])
    root = make_wheel(tmp_path, "root", "1.0", requires=["fast", "slow"])
    assert names(resolved(store, [root])) == [f"fast-1.0-{tags[0]}.whl", "slow-1.0.tar.gz"]
    assert missing(resolved(store, [], "musl")) == ["musl, wanted by the caller (there: 1.0)"]


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("manylinux_2_28_aarch64", ("posix", "linux", "Linux", "aarch64")),
        ("macosx_11_0_arm64", ("posix", "darwin", "Darwin", "arm64")),
        ("win_amd64", ("nt", "win32", "Windows", "AMD64")),
        ("win32", ("nt", "win32", "Windows", "x86")),
    ],
)
def test_markers_of_a_platform_are_what_python_says_there(tag: str, expected: tuple[str, ...]) -> None:
    markers = Platform(python="3.12", tag=tag).markers()
    names = ("os_name", "sys_platform", "platform_system", "platform_machine")
    assert tuple(markers[name] for name in names) == expected
    assert (markers["python_version"], markers["python_full_version"]) == ("3.12", "3.12.0")
    assert set(markers) == default_environment().keys()


def test_what_an_sdist_requires_is_needed_as_far_as_it_says_so_for_certain(
    store: MemoryStore, tmp_path: Path
) -> None:
    late = ["core==7.10.0", "libs-other==7.10.0"]  # it decides when it is built, and these are hints
    sdists = [
        make_sdist(tmp_path, "rocm", "7.10.0", requires=late),
        make_sdist(tmp_path, "fixed", "1.0", requires=["gone"], dynamic=False),
        make_sdist(tmp_path, "slow", "1.0", build_requires=["builder>=3"]),
    ]
    publish(store, "staging", [*sdists, make_wheel(tmp_path, "core", "7.10.0")])
    found = resolved(store, [], "rocm==7.10.0")
    assert (names(found), missing(found)) == (["core-7.10.0", "rocm-7.10.0.tar.gz"], [])
    assert missing(resolved(store, [], "fixed")) == ["gone, wanted by fixed-1.0.tar.gz"]
    assert missing(resolved(store, [], "slow")) == ["builder>=3, wanted by slow-1.0.tar.gz"]


@pytest.mark.parametrize(
    ("needs", "order"),
    [
        ({"vision": {"torch"}, "torch": {"triton", "numpy"}, "triton": set()}, ("triton", "torch", "vision")),
        ({"b": {"a"}, "a": {"b"}}, ("b", "a")),
        ({}, ()),
    ],
)
def test_pages_of_what_others_depend_on_come_first(
    needs: dict[str, set[str]], order: tuple[str, ...]
) -> None:
    assert dependencies_first(needs) == order


def test_one_file_that_says_nonsense_about_python_does_not_spoil_every_set(
    store: MemoryStore, tmp_path: Path
) -> None:
    good, junk = map(distribution.read, make_wheels(tmp_path, {"a 1.0": [], "a 2.0": []}))
    # As it was published before such a thing was refused.
    publish_dists(Index(store, "staging"), [good, structs.replace(junk, requires_python="junk")], "publish")
    assert names(resolved(store, [], "a")) == ["a-1.0"]


@pytest.mark.parametrize("line", ["a b c", "", f"a; {'(' * 3_000}", f"a=={'9' * 5_000}"])
def test_a_requirement_that_is_none_is_one_line(store: MemoryStore, line: str) -> None:
    with pytest.raises(UsageError, match="is not a requirement"):
        resolved(store, [], line)


@pytest.mark.parametrize("python", ["junk", "3", "3.11.2", "", "9" * 5_000])
def test_a_platform_is_for_one_version_of_python(python: str) -> None:
    with pytest.raises(UsageError, match="is not a version of Python"):
        Platform(python=python, tag="linux_x86_64")


def test_requirements_that_exclude_each_other_are_explained(store: MemoryStore, tmp_path: Path) -> None:
    publish(
        store, "staging", make_wheels(tmp_path, {"a 1.0": [], "a 2.0": [], "b 1": ["a<2"], "c 1": ["a>=2"]})
    )
    with pytest.raises(StoreError, match="contradict each other: Because") as caught:
        resolved(store, [make_wheel(tmp_path, "root", "1", requires=["b", "c"])])
    assert "b depend on a<2" in str(caught.value)
    assert "c depend on a>=2" in str(caught.value)


def test_what_roots_want_of_one_project_is_wanted_together(store: MemoryStore, tmp_path: Path) -> None:
    publish(store, "staging", make_wheels(tmp_path, {"a 1.0": [], "a 2.0": []}))
    roots = make_wheels(tmp_path, {"b 1": ["a<2"], "c 1": ["a>=1.5"]})
    wanted = {Requirement(item.requirement) for item in resolved(store, roots).missing}
    assert wanted == {Requirement("a<2,>=1.5")}


def test_a_yanked_version_does_for_an_exact_requirement_only(store: MemoryStore, tmp_path: Path) -> None:
    publish(store, "staging", make_wheels(tmp_path, {"a 1.0": [], "a 2.0": []}))

    def plan(now: Snapshot) -> Change:
        project = now.project("a")
        bad = tuple(structs.replace(f, yanked="bad") for f in project.files if f.version == "2.0")
        return Change(projects={"a": project.with_files(bad)})

    commit(Index(store, "staging"), "yank", plan)
    root = make_wheel(tmp_path, "root", "1.0", requires=["a==2.0"])
    assert names(resolved(store, [], "a")) == ["a-1.0"]
    assert names(resolved(store, [], "a==2.0")) == names(resolved(store, [root])) == ["a-2.0"]
    publish(store, "staging", [root])
    assert names(resolved(store, [], "root")) == ["a-2.0", "root-1.0"]
    assert [item.requirement for item in resolved(store, [], "a>=2").missing] == ["a>=2"]


def test_settings_of_the_user_do_not_steer_the_resolution(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uv.toml").write_text("no-index = true\n")
    settings = {
        "UV_CONFIG_FILE": str(tmp_path / "uv.toml"),
        "UV_CONSTRAINT": str(tmp_path / "none.txt"),
        "UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple",
        "UV_RESOLUTION": "lowest",
        "UV_OFFLINE": "1",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "ALL_PROXY": "http://127.0.0.1:9",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    publish(store, "staging", make_wheels(tmp_path, {"a 1.0": [], "a 2.0": []}))
    assert names(resolved(store, [], "a")) == ["a-2.0"]


def test_a_platform_that_uv_cannot_name_is_resolved_only_there(store: MemoryStore) -> None:
    with pytest.raises(UsageError, match="can be resolved only there"):
        resolved(store, [], platform=Platform(python="3.11", tag="linux_s390x"))
    assert resolved(store, [], platform=Platform.here()) == Closure(files=(), missing=())


@pytest.mark.parametrize("extra", ["*", "all,dev", "a b", "Dev.All", "-x", "é"])
def test_an_extra_that_cannot_be_asked_for_spoils_nothing(
    store: MemoryStore, tmp_path: Path, extra: str
) -> None:
    needy = make_wheel(tmp_path, "a", "1.0", requires=["b", f"gone; extra == '{extra}'"], extras=[extra])
    dists = [distribution.read(path) for path in (needy, make_wheel(tmp_path, "b", "1.0"))]
    publish_dists(Index(store, "staging"), dists, "mirror", build=MIRRORED)
    assert names(resolved(store, [], "a")) == ["a-1.0", "b-1.0"]
    assert "b-1.0" in names(resolved(store, [needy]))


def test_versions_of_every_form_are_resolved(store: MemoryStore, tmp_path: Path) -> None:
    versions = {
        "1!2.0": MIRRORED,
        "2021.01.05": MIRRORED,
        "2.9.0+rocm7.10.0": PUBLISHED,
        "1.0.post1.dev2": PUBLISHED,
        "1.0rc1": PUBLISHED,
    }
    for number, (version, build) in enumerate(versions.items()):
        wheel = make_wheel(tmp_path, f"a{number}", version)
        publish_dists(Index(store, "staging"), [distribution.read(wheel)], "mirror", build=build)
        root = make_wheel(tmp_path, "root", version, requires=[f"a{number}=={version}"])
        assert names(resolved(store, [root])) == [wheel.name.removesuffix(END)]


def test_a_lost_file_of_an_older_version_does_not_hide_what_is_missing(
    store: MemoryStore, tmp_path: Path
) -> None:
    old, new = make_wheels(tmp_path, {"a 1.0": [], "a 2.0": ["gone"]})
    publish(store, "staging", [old, new])
    store.delete(keys.sidecar_key(distribution.read(old).sha256, old.name))
    assert missing(resolved(store, [], "a")) == ["gone, wanted by a-2.0"]
    with pytest.raises(StoreError, match=r"a-1\.0-py3-none-any\.whl has lost its metadata"):
        resolved(store, [], "a<2")


def test_a_store_that_fails_meanwhile_fails_as_itself(
    store: MemoryStore, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    publish(store, "staging", [make_wheel(tmp_path, "a", "1.0")])

    def refuse(_: MemoryStore) -> None:
        raise PermissionError(13, "Permission denied")

    with pytest.raises(PermissionError):
        resolved(Meddled(store, refuse, kind="read", at="^files/", times=9), [], "a")
    assert capfd.readouterr().err == ""


def test_a_requirement_that_only_uv_cannot_read_is_no_contradiction(
    store: MemoryStore, tmp_path: Path
) -> None:
    publish(store, "staging", [make_wheel(tmp_path, "a", "1.0")])
    root = make_wheel(tmp_path, "root", "1", requires=['a; python_version === "3.11"'])
    with pytest.raises(StoreError, match="uv cannot read what the set needs") as caught:
        resolved(store, [root])
    assert "python_version" in str(caught.value)


@pytest.mark.parametrize("problem", ["gone", "old"])
def test_a_uv_that_is_missing_or_too_old_is_named(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: str
) -> None:
    def find() -> str:
        if problem == "gone":
            raise FileNotFoundError("Could not find the uv binary in any of the following locations:\n - x")
        program = tmp_path / "uv"
        program.write_text(
            "#!/bin/sh\necho \"error: unexpected argument '--no-annotate' found\" >&2\nexit 2\n"
        )
        program.chmod(0o755)
        return str(program)

    monkeypatch.setattr("uv.find_uv_bin", find)
    with pytest.raises((PrerequisiteError, StoreError)) as caught:
        resolved(store, [])
    assert "\n" not in str(caught.value)
    assert "pip install" in (caught.value.tip or "")


def test_uv_asks_the_interpreter_what_it_is_once(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, environment = tmp_path / "log", venv.create(tmp_path / "environment")
    line = f"import os; os.write(os.open({str(log)!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND), b'asked ')\n"
    (environment.site_packages / "log.pth").write_text(line)
    monkeypatch.setattr(sys, "executable", str(environment.python))
    wheel, starts = make_wheel(tmp_path, "torch", "1.0"), []
    for _ in range(3):
        publish(store, "staging", make_wheels(tmp_path, {"numpy 1.0": []}))
        assert names(resolved(store, [wheel], "numpy")) == ["numpy-1.0"]
        starts.append(log.read_text())
    assert starts[0] == starts[2]
