"""The lock of a mirror: its text, what it asks, and what it may not name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cairn import stack
from cairn.cli.main import main
from cairn.errors import UsageError
from cairn.release.publish import distribution, mirror_lock
from cairn.release.publish.compatibility import Platform
from cairn.release.publish.mirror_lock import Asked, LockedFile, MirrorLock
from helpers.release import make_sdist, make_wheel

SAMPLE = Path(__file__).parents[4] / "external-builds/sample"
NUMPY = LockedFile(
    name="numpy",
    version="2.0",
    file_name="numpy-2.0-cp311-cp311-manylinux_2_28_x86_64.whl",
    sha256="a" * 64,
    size=9,
)
LOCK = MirrorLock(
    stack="sample",
    pythons=("3.11", "3.12"),
    platforms=("linux_x86_64", "win_amd64"),
    asked=(
        Asked(by="torch", requires=('numpy; python_version < "4"', 'opt; extra == "x"'), extras=("x",)),
        Asked(by="sample", requires=("b[y]>=1",)),
    ),
    files=(NUMPY,),
)


def with_file(**change: Any) -> MirrorLock:
    return msgspec.structs.replace(LOCK, files=(msgspec.structs.replace(NUMPY, **change),))


def test_a_lock_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / mirror_lock.FILE
    with pytest.raises(UsageError) as caught:
        mirror_lock.read(path)
    assert "cairn index mirror lock" in (caught.value.tip or "")
    sdk = {"rocm-7.10.0.tar.gz": "c" * 64, "rocm_sdk_core-7.10.0-py3-none-any.whl": "b" * 64}
    for lock in (LOCK, with_file(size=None), with_sdk := msgspec.structs.replace(LOCK, sdk=sdk)):
        mirror_lock.write(path, lock)
        assert mirror_lock.read(path) == lock
    assert mirror_lock.changes(LOCK, with_sdk) == tuple(f"+ {name}" for name in sdk)
    for name, sha256 in (("numpy-2.0.tar.gz", "b" * 64), ("rocm-7.10.0.tar.gz", "b")):
        mirror_lock.write(path, msgspec.structs.replace(LOCK, sdk={name: sha256}))
        with pytest.raises(UsageError, match="is no file of the ROCm SDK with its sha256"):
            mirror_lock.read(path)


def test_a_review_sees_a_line_for_each_file() -> None:
    text = mirror_lock.dumps(LOCK)
    assert sum("numpy-2.0" in line for line in text.splitlines()) == 1
    newer = NUMPY.file_name.replace("2.0", "2.1")
    assert mirror_lock.changes(None, LOCK) == (f"+ {NUMPY.file_name}",)
    assert mirror_lock.changes(LOCK, with_file(version="2.1", file_name=newer)) == (
        f"- {NUMPY.file_name}",
        f"+ {newer}",
    )
    (line,) = mirror_lock.changes(LOCK, with_file(sha256="b" * 64))
    assert line.startswith(f"! {NUMPY.file_name}: other bytes")


SDK = {"name": "rocm-sdk-core", "file_name": "rocm_sdk_core-2.0-py3-none-any.whl"}


@pytest.mark.parametrize(
    ("lock", "why"),
    [
        (with_file(sha256="A" * 64), "not a sha256"),
        (with_file(sha256=""), "not a sha256"),
        (with_file(name="torch"), "is not of torch 2.0"),
        (with_file(version="2.0.0"), "is not of numpy 2.0.0"),
        (with_file(file_name="../numpy-2.0-py3-none-any.whl"), "is not the name of a wheel"),
        (with_file(file_name="numpy-2.0.tar.gz"), "is not the name of a wheel"),
        (with_file(name="rocm", file_name="rocm-2.0-py3-none-any.whl"), "comes from ROCm alone"),
        (with_file(**SDK), "comes from ROCm alone"),
        (msgspec.structs.replace(LOCK, files=(NUMPY, NUMPY)), "names numpy-2.0-.* twice"),
        (msgspec.structs.replace(LOCK, pythons=("3",)), "is not a version of Python"),
        (
            msgspec.structs.replace(LOCK, asked=(Asked(by="a", requires=("a b",)),)),
            "'a b' is not a requirement",
        ),
    ],
)
def test_what_no_mirror_may_hold_is_refused_by_name(tmp_path: Path, lock: MirrorLock, why: str) -> None:
    mirror_lock.write(tmp_path / mirror_lock.FILE, lock)
    with pytest.raises(UsageError, match=why):
        mirror_lock.read(tmp_path / mirror_lock.FILE)


@pytest.mark.parametrize(
    ("python", "tag", "expected"),
    [
        ("3.11", "linux_x86_64", ["a", "lin>=1"]),
        ("3.12", "win_amd64", ["a", "extra[z]", "new<9", "win"]),
    ],
)
def test_markers_and_extras_decide_what_is_asked_on_a_platform(
    python: str, tag: str, expected: list[str]
) -> None:
    asked = Asked(
        by="torch",
        requires=(
            "A",
            'lin>=1; platform_system == "Linux"',
            'win; sys_platform == "win32"',
            'new<9; python_version >= "3.12"',
            'Extra[z]; extra == "x" and sys_platform == "win32"',
            'never; extra == "y"',
        ),
        extras=("x",),
    )
    assert list(mirror_lock.lines_for([asked], Platform(python=python, tag=tag))) == expected


def test_an_address_is_not_asked_for_by_its_name_alone() -> None:
    """Under that name anybody may have registered something else."""
    asked = Asked(by="torch", requires=("helper @ git+https://example.org/helper@abc",))
    with pytest.raises(UsageError, match="this names an address: helper @ git"):
        list(mirror_lock.lines_for([asked], Platform(python="3.12", tag="linux_x86_64")))


def test_what_the_stack_makes_itself_is_asked_of_no_other_index(tmp_path: Path) -> None:
    requires = ["numpy", "rocm[libraries]==7.10.0", "rocm-sdk-core==7.10.0", "triton==3.5", "mine"]
    torch = make_wheel(tmp_path, "torch", "2.9.0", requires=requires, extras=["x"])
    mine = make_wheel(tmp_path, "mine", "1", requires=["torch==2.9.0"])
    sdist = make_sdist(tmp_path, "rocm", "7.10.0", requires=["rocm-sdk-core"], build_requires=["builder>=3"])
    sample = stack.load(SAMPLE)
    found = mirror_lock.required_by(map(distribution.read, (torch, mine)), ["pillow >= 5"], stack=sample)
    assert found == (
        Asked(by="torch", requires=("numpy",), extras=("x",)),
        Asked(by="sample", requires=("pillow>=5",)),
    )
    # Device wheels of its own are not either, those of other families not given.
    split = [f'amd-torch-device-{name}==2.9.0; extra == "device-{name}"' for name in ("gfx942", "gfx1100")]
    host = make_wheel(
        tmp_path / "host", "torch", "2.9.0", requires=[*split, "numpy"], extras=["device-gfx942"]
    )
    device = make_wheel(tmp_path, "amd-torch-device-gfx942", "2.9.0", requires=["torch==2.9.0"])
    found = mirror_lock.required_by(map(distribution.read, (host, device)), [], stack=sample)
    assert found == (Asked(by="torch", requires=("numpy",), extras=("device-gfx942",)),)
    # What an sdist takes to be built is asked too.
    found = mirror_lock.required_by([distribution.read(sdist)], [], stack=sample)
    assert found == (Asked(by="rocm", requires=("builder>=3",)),)


def test_newer_wheels_say_all_that_a_project_asks_and_what_users_ask_adds_up() -> None:
    sample = stack.load(SAMPLE)
    before = (Asked(by="torch", requires=("old",)), Asked(by="sample", requires=("b",)))
    new = (Asked(by="torch", requires=("new",)), Asked(by="sample", requires=("c", "b")))
    assert mirror_lock.merged(before, new, stack=sample) == (
        Asked(by="torch", requires=("new",)),
        Asked(by="sample", requires=("b", "c")),
    )


def test_a_stack_says_for_which_pythons_and_platforms_it_is(tmp_path: Path) -> None:
    sample = stack.load(SAMPLE)
    assert mirror_lock.places_of(sample) == (Platform.here(),)
    more = msgspec.structs.replace(sample, pythons=("3.11", "3.13"), platforms=("win_amd64",))
    assert [str(place) for place in mirror_lock.places_of(more)] == [
        "Python 3.11 on win_amd64",
        "Python 3.13 on win_amd64",
    ]
    text = (SAMPLE / "stack.toml").read_text(encoding="utf-8")
    for line, why in (
        ('pythons = ["3"]', "'3' is not a version of Python"),
        ('platforms = ["linux"]', "'linux' is not a platform"),
    ):
        (tmp_path / "stack.toml").write_text(text.replace("\nline = ", f"\n{line}\nline = ", 1))
        with pytest.raises(UsageError, match=why):
            stack.load(tmp_path)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["sync", "--store", "s"], "--stack"),
        (["sync", "--stack", str(SAMPLE)], "--store"),
        (["sync", "--check", "--store", "s", "--require", "a"], "no lock is read"),
        (["--require", "a"], "--store"),
        (["-q", "--store", "s"], "no stack is named, whose lock would say what"),
        (["fetch", "--store", "s"], "there is no file fetch"),
        (["--store", "s", "nowhere.whl"], "nowhere.whl"),
        (["lock", "--stack", str(SAMPLE)], "nothing to lock"),
        (["syn", "--stack", str(SAMPLE)], "did you mean sync?"),
        (["-q", "locks"], "did you mean lock?"),
        (["lock", "--stack", str(SAMPLE), "nowhere.whl"], "nowhere.whl"),
    ],
)
def test_a_command_that_lacks_something_says_what(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["index", "mirror", *words])
    except SystemExit as error:  # how argparse ends
        code = int(error.code or 0)
    assert code != 0
    assert why in capsys.readouterr().err


def test_the_lock_of_pytorch_covers_its_stack() -> None:
    pytorch = stack.load(SAMPLE.parent / "pytorch")
    lock = mirror_lock.read(mirror_lock.path_of(pytorch))
    assert mirror_lock.places(lock) == mirror_lock.places_of(pytorch)
    assert lock.stack == pytorch.name
    assert mirror_lock.dumps(lock) == mirror_lock.path_of(pytorch).read_text(encoding="utf-8")
