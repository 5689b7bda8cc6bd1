from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

from cairn.errors import PrerequisiteError, StoreError, UsageError
from cairn.release.index import keys
from cairn.release.index.generation import MIRRORED, PUBLISHED, ProjectState
from cairn.release.index.snapshot import Change, Index
from cairn.release.index.write import dependencies_first
from cairn.release.publish import distribution
from cairn.release.publish.compatibility import Platform
from cairn.release.publish.files import publish, publish_dists
from cairn.release.publish.resolve import Closure, closure
from cairn.store.memory import MemoryStore
from cairn.store.protocol import StoredObject
from helpers.release import commit, make_sdist, make_wheel

LINUX = Platform(python="3.11", tag="linux_x86_64")


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
    return [ref.filename for ref in found.files]


def test_requirements_are_followed_to_the_end(store: MemoryStore, tmp_path: Path) -> None:
    publish(
        store,
        "staging",
        [make_wheel(tmp_path, "a", "1.0", requires=["b>=1"]), make_wheel(tmp_path, "b", "1.5")],
    )
    root = make_wheel(tmp_path, "root", "1.0", requires=["a"])
    found = resolved(store, [root])
    assert names(found) == ["a-1.0-py3-none-any.whl", "b-1.5-py3-none-any.whl"]
    assert found.missing == ()


def test_every_extra_of_a_root_and_the_asked_ones_of_others_count(store: MemoryStore, tmp_path: Path) -> None:
    a = make_wheel(
        tmp_path, "a", "1.0", requires=['x; extra == "one"', 'y; extra == "two"'], extras=["one", "two"]
    )
    publish(store, "staging", [a, make_wheel(tmp_path, "x", "1"), make_wheel(tmp_path, "y", "1")])
    root = make_wheel(tmp_path, "root", "1.0", requires=['a[one]; extra == "all"'], extras=["all"])
    assert names(resolved(store, [root])) == ["a-1.0-py3-none-any.whl", "x-1-py3-none-any.whl"]


def test_an_extra_asked_for_later_still_counts(store: MemoryStore, tmp_path: Path) -> None:
    a = make_wheel(tmp_path, "a", "1.0", requires=['x; extra == "one"'], extras=["one"])
    b = make_wheel(tmp_path, "b", "1.0", requires=["a[one]"])
    publish(store, "staging", [a, b, make_wheel(tmp_path, "x", "1")])
    root = make_wheel(tmp_path, "root", "1.0", requires=["a", "b"])
    assert "x-1-py3-none-any.whl" in names(resolved(store, [root]))


def test_markers_are_those_of_the_platform_of_the_set(store: MemoryStore, tmp_path: Path) -> None:
    requires = [
        'win; sys_platform == "win32"',
        'lin; sys_platform == "linux"',
        'old; python_version < "3.12"',
    ]
    root = make_wheel(tmp_path, "root", "1.0", requires=requires)
    publish(store, "staging", [make_wheel(tmp_path, name, "1") for name in ("win", "lin", "old")])
    assert names(resolved(store, [root])) == ["lin-1-py3-none-any.whl", "old-1-py3-none-any.whl"]
    windows = Platform(python="3.12", tag="win_amd64")
    assert names(resolved(store, [root], platform=windows)) == ["win-1-py3-none-any.whl"]


def test_everything_missing_is_named_with_who_wants_it(store: MemoryStore, tmp_path: Path) -> None:
    publish(store, "staging", [make_wheel(tmp_path, "old", "1.0")])
    root = make_wheel(tmp_path, "root", "1.0", requires=["gone", "old>=2"])
    said = [str(item) for item in resolved(store, [root]).missing]
    assert said == [
        "gone, wanted by root-1.0-py3-none-any.whl",
        "old>=2, wanted by root-1.0-py3-none-any.whl (there: 1.0)",
    ]


def test_the_highest_version_that_all_accept_is_taken(store: MemoryStore, tmp_path: Path) -> None:
    wheels = [make_wheel(tmp_path, "a", v) for v in ("1.0", "1.5", "2.0", "3.0rc1")]
    publish(store, "staging", [*wheels, make_wheel(tmp_path, "b", "1.0", requires=["a<2"])])
    root = make_wheel(tmp_path, "root", "1.0", requires=["a", "b"])
    assert names(resolved(store, [root])) == ["a-1.5-py3-none-any.whl", "b-1.0-py3-none-any.whl"]


def test_roots_satisfy_each_other_by_their_exact_versions(store: MemoryStore, tmp_path: Path) -> None:
    torch = make_wheel(tmp_path, "torch", "2.9.0+rocm7.10.0")
    good = make_wheel(tmp_path, "vision", "1", requires=["torch==2.9.0+rocm7.10.0"])
    bad = make_wheel(tmp_path, "audio", "1", requires=["torch==2.9.0+rocm7.9.0"])
    assert resolved(store, [torch, good]) == Closure(files=(), missing=())
    (missing,) = resolved(store, [torch, bad]).missing
    assert (missing.requirement, missing.found) == ("torch==2.9.0+rocm7.9.0", ("2.9.0+rocm7.10.0",))


def test_only_wheels_that_fit_are_taken_and_sdists_where_there_is_none(
    store: MemoryStore, tmp_path: Path
) -> None:
    tags = ("cp311-cp311-manylinux_2_28_x86_64", "cp312-cp312-linux_x86_64", "cp311-cp311-win_amd64")
    fast = [make_wheel(tmp_path, "fast", "1.0", tag=tag) for tag in tags]
    publish(
        store, "staging", [*fast, make_sdist(tmp_path, "fast", "1.0"), make_sdist(tmp_path, "slow", "1.0")]
    )
    root = make_wheel(tmp_path, "root", "1.0", requires=["fast", "slow"])
    assert names(resolved(store, [root])) == [f"fast-1.0-{tags[0]}.whl", "slow-1.0.tar.gz"]


def test_a_wheel_for_musl_does_not_fit_where_glibc_is(store: MemoryStore, tmp_path: Path) -> None:
    musl = make_wheel(tmp_path, "fast", "1.0", tag="cp311-cp311-musllinux_1_2_x86_64")
    publish(store, "staging", [musl])
    (missing,) = resolved(store, [], "fast").missing
    assert str(missing) == "fast, wanted by the caller (there: 1.0)"


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


def test_what_an_sdist_needs_to_be_built_is_needed(store: MemoryStore, tmp_path: Path) -> None:
    publish(store, "staging", [make_sdist(tmp_path, "slow", "1.0", build_requires=["builder>=3"])])
    (missing,) = resolved(store, [], "slow").missing
    assert (missing.requirement, missing.wanted_by) == ("builder>=3", "slow-1.0.tar.gz")


def test_requirements_of_an_sdist_that_decides_late_are_only_hints(
    store: MemoryStore, tmp_path: Path
) -> None:
    sdist = make_sdist(tmp_path, "rocm", "7.10.0", requires=["core==7.10.0", "libs-other==7.10.0"])
    publish(store, "staging", [sdist, make_wheel(tmp_path, "core", "7.10.0")])
    found = resolved(store, [], "rocm==7.10.0")
    assert names(found) == ["core-7.10.0-py3-none-any.whl", "rocm-7.10.0.tar.gz"]
    assert found.missing == ()


def test_requirements_of_an_sdist_that_promises_them_are_demands(store: MemoryStore, tmp_path: Path) -> None:
    publish(store, "staging", [make_sdist(tmp_path, "s", "1.0", requires=["gone"], dynamic=False)])
    assert [item.requirement for item in resolved(store, [], "s").missing] == ["gone"]


def test_circles_end(store: MemoryStore, tmp_path: Path) -> None:
    publish(
        store,
        "staging",
        [make_wheel(tmp_path, "a", "1", requires=["b"]), make_wheel(tmp_path, "b", "1", requires=["a"])],
    )
    assert names(resolved(store, [], "a")) == ["a-1-py3-none-any.whl", "b-1-py3-none-any.whl"]


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
    good, junk = (make_wheel(tmp_path, "a", version) for version in ("1.0", "2.0"))
    entry = distribution.read(junk)
    # As it was published before such a thing was refused.
    publish_dists(
        Index(store, "staging"),
        [distribution.read(good), replace(entry, requires_python="junk")],
        "publish",
    )
    root = make_wheel(tmp_path, "root", "1.0", requires=["a"])
    assert names(resolved(store, [root])) == ["a-1.0-py3-none-any.whl"]


@pytest.mark.parametrize("line", ["a b c", "", f"a; {'(' * 3_000}", f"a=={'9' * 5_000}"])
def test_a_requirement_that_is_none_is_one_line(store: MemoryStore, line: str) -> None:
    with pytest.raises(UsageError, match="is not a requirement"):
        resolved(store, [], line)


@pytest.mark.parametrize("python", ["junk", "3", "3.11.2", "", "9" * 5_000])
def test_a_platform_is_for_one_version_of_python(python: str) -> None:
    with pytest.raises(UsageError, match="is not a version of Python"):
        Platform(python=python, tag="linux_x86_64")


def test_an_older_version_is_taken_where_the_newest_needs_what_is_not_there(
    store: MemoryStore, tmp_path: Path
) -> None:
    picky = make_wheel(tmp_path, "b", "2.0", requires=["a>=3"])
    publish(
        store,
        "staging",
        [make_wheel(tmp_path, "a", "1.0"), make_wheel(tmp_path, "b", "1.0", requires=["a"]), picky],
    )
    assert names(resolved(store, [], "b")) == ["a-1.0-py3-none-any.whl", "b-1.0-py3-none-any.whl"]
    (missing,) = resolved(store, [], "b>=2").missing
    assert str(missing) == "a>=3, wanted by b-2.0-py3-none-any.whl (there: 1.0)"


def test_requirements_that_exclude_each_other_are_explained(store: MemoryStore, tmp_path: Path) -> None:
    users = [
        make_wheel(tmp_path, "b", "1", requires=["a<2"]),
        make_wheel(tmp_path, "c", "1", requires=["a>=2"]),
    ]
    publish(store, "staging", [make_wheel(tmp_path, "a", "1.0"), make_wheel(tmp_path, "a", "2.0"), *users])
    with pytest.raises(StoreError, match="contradict each other: Because") as caught:
        resolved(store, [make_wheel(tmp_path, "root", "1", requires=["b", "c"])])
    assert "b depend on a<2" in str(caught.value)
    assert "c depend on a>=2" in str(caught.value)


def test_what_roots_want_of_one_project_is_wanted_together(store: MemoryStore, tmp_path: Path) -> None:
    publish(store, "staging", [make_wheel(tmp_path, "a", "1.0"), make_wheel(tmp_path, "a", "2.0")])
    roots = [
        make_wheel(tmp_path, "b", "1", requires=["a<2"]),
        make_wheel(tmp_path, "c", "1", requires=["a>=1.5"]),
    ]
    assert {Requirement(item.requirement) for item in resolved(store, roots).missing} == {
        Requirement("a<2,>=1.5")
    }


def test_roots_may_be_of_several_versions(store: MemoryStore, tmp_path: Path) -> None:
    publish(store, "staging", [make_wheel(tmp_path, name, "1") for name in ("a", "b")])
    roots = [
        make_wheel(tmp_path, "r", version, requires=[need]) for version, need in (("1", "a"), ("2", "b"))
    ]
    assert names(resolved(store, roots)) == ["a-1-py3-none-any.whl", "b-1-py3-none-any.whl"]


def test_a_yanked_version_does_for_an_exact_requirement_only(store: MemoryStore, tmp_path: Path) -> None:
    wheels = [make_wheel(tmp_path, "a", version) for version in ("1.0", "2.0")]
    publish(store, "staging", wheels)
    channel = Index(store, "staging")
    project = channel.load().project("a")
    bad = ProjectState(
        name="a",
        files=tuple(msgspec.structs.replace(f, yanked="bad") for f in project.files if f.version == "2.0"),
    )
    commit(channel, "yank", lambda _snapshot: Change(projects={"a": project.with_files(bad.files)}))
    assert names(resolved(store, [], "a")) == ["a-1.0-py3-none-any.whl"]
    assert names(resolved(store, [], "a==2.0")) == ["a-2.0-py3-none-any.whl"]
    root = make_wheel(tmp_path, "root", "1.0", requires=["a==2.0"])
    assert names(resolved(store, [root])) == ["a-2.0-py3-none-any.whl"]
    publish(store, "staging", [root])
    assert names(resolved(store, [], "root")) == ["a-2.0-py3-none-any.whl", root.name]
    (missing,) = resolved(store, [], "a>=2").missing
    assert missing.requirement == "a>=2"


def test_nothing_is_fetched_for_a_requirement_with_a_url(store: MemoryStore, tmp_path: Path) -> None:
    publish(store, "staging", [make_wheel(tmp_path, "a", "1.0")])
    root = make_wheel(tmp_path, "root", "1", requires=["a @ file:///nowhere/a-9-py3-none-any.whl"])
    assert names(resolved(store, [root])) == ["a-1.0-py3-none-any.whl"]


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
    publish(store, "staging", [make_wheel(tmp_path, "a", version) for version in ("1.0", "2.0")])
    assert names(resolved(store, [], "a")) == ["a-2.0-py3-none-any.whl"]


def test_a_platform_that_uv_cannot_name_is_resolved_only_there(store: MemoryStore) -> None:
    with pytest.raises(UsageError, match="can be resolved only there"):
        resolved(store, [], platform=Platform(python="3.11", tag="linux_s390x"))
    assert resolved(store, [], platform=Platform.here()) == Closure(files=(), missing=())


def test_a_pinned_prerelease_is_taken_beside_a_final_version(store: MemoryStore, tmp_path: Path) -> None:
    sdk = [make_wheel(tmp_path, "rocm", version) for version in ("7.10.0", "7.11.0a20251015")]
    publish(store, "staging", [*sdk, make_wheel(tmp_path, "torch", "1", requires=["rocm==7.11.0a20251015"])])
    assert names(resolved(store, [], "torch")) == [
        "rocm-7.11.0a20251015-py3-none-any.whl",
        "torch-1-py3-none-any.whl",
    ]


@pytest.mark.parametrize("extra", ["*", "all,dev", "a b", "Dev.All", "-x", "é"])
def test_an_extra_that_cannot_be_asked_for_spoils_nothing(
    store: MemoryStore, tmp_path: Path, extra: str
) -> None:
    needy = make_wheel(tmp_path, "a", "1.0", requires=["b", f"gone; extra == '{extra}'"], extras=[extra])
    dists = [distribution.read(path) for path in (needy, make_wheel(tmp_path, "b", "1.0"))]
    publish_dists(Index(store, "staging"), dists, "mirror", build=MIRRORED)
    assert names(resolved(store, [], "a")) == ["a-1.0-py3-none-any.whl", "b-1.0-py3-none-any.whl"]
    assert "b-1.0-py3-none-any.whl" in names(resolved(store, [needy]))


@pytest.mark.parametrize(
    ("version", "build"),
    [
        ("1!2.0", MIRRORED),
        ("2021.01.05", MIRRORED),
        ("2.9.0+rocm7.10.0", PUBLISHED),
        ("1.0.post1.dev2", PUBLISHED),
        ("1.0rc1", PUBLISHED),
    ],
)
def test_versions_of_every_form_are_resolved(
    store: MemoryStore, tmp_path: Path, version: str, build: str
) -> None:
    wheel = make_wheel(tmp_path, "a", version)
    publish_dists(Index(store, "staging"), [distribution.read(wheel)], "mirror", build=build)
    root = make_wheel(tmp_path, "root", version, requires=[f"a=={version}"])
    assert names(resolved(store, [root])) == [wheel.name]


def test_a_lost_file_of_an_older_version_does_not_hide_what_is_missing(
    store: MemoryStore, tmp_path: Path
) -> None:
    old = make_wheel(tmp_path, "a", "1.0")
    publish(store, "staging", [old, make_wheel(tmp_path, "a", "2.0", requires=["gone"])])
    store.delete(keys.sidecar_key(distribution.read(old).sha256, old.name))
    assert [item.requirement for item in resolved(store, [], "a").missing] == ["gone"]
    with pytest.raises(StoreError, match=r"a-1\.0-py3-none-any\.whl has lost its metadata"):
        resolved(store, [], "a<2")


def test_a_store_that_fails_meanwhile_fails_as_itself(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    publish(store, "staging", [make_wheel(tmp_path, "a", "1.0")])

    def refuse(key: str) -> StoredObject:
        raise PermissionError(13, "Permission denied", key)

    index = Index(store, "staging").load()
    index.project("a")
    monkeypatch.setattr(store, "read", refuse)
    with pytest.raises(PermissionError):
        closure(index, roots=[], requirements=["a"], platform=LINUX)
    assert capfd.readouterr().err == ""


def test_roots_whose_file_names_differ_only_in_punctuation_are_told_apart(
    store: MemoryStore, tmp_path: Path
) -> None:
    publish(store, "staging", [make_wheel(tmp_path, name, "1") for name in ("a", "b")])
    roots = [
        make_wheel(tmp_path, "r", version, requires=[need])
        for version, need in (("1.0+1", "a"), ("1.0.1", "b"))
    ]
    assert names(resolved(store, roots)) == ["a-1-py3-none-any.whl", "b-1-py3-none-any.whl"]


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
