from __future__ import annotations

import io
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

from cairn.errors import WheelError
from cairn.formats.zip.reader import Archive
from cairn.wheels import repair
from cairn.wheels.contents import binaries, system_libraries
from cairn.wheels.contents.binaries import Binary
from cairn.wheels.metadata import wheel_info
from cairn.wheels.repair import repair_linked
from cairn.wheels.verify import Expectation, verify
from helpers.formats import make_elf
from helpers.wheels import (
    LINUX,
    Change,
    MakeWheel,
    altered,
    cairn_wheel,
    lie_about_new_files,
    members_of,
    validated,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

RECORD = "demo-1.0.dist-info/RECORD"


def linux_wheel(make_wheel: MakeWheel, elf: bytes, machine: str = "x86_64") -> Path:
    return make_wheel(tags=(f"cp311-cp311-linux_{machine}",), pure=False, files={"demo/_C.so": elf})


@pytest.mark.parametrize(
    ("glibc", "expected"),
    [("2.2.5", "2_5"), ("2.17", "2_17"), ("2.18", "2_24"), ("2.28", "2_28"), ("2.34", "2_34")],
)
def test_the_lowest_tag_that_the_symbols_justify(
    make_wheel: MakeWheel, tmp_path: Path, glibc: str, expected: str
) -> None:
    elf = make_elf(
        needed=("libc.so.6", "libamdhip64.so.6", "libtorch_cpu.so"),
        versions={"libc.so.6": (f"GLIBC_{glibc}",), "libamdhip64.so.6": ("hip_4.2",)},
    )
    exclude = ("libamdhip64.so.*", "libtorch*.so")
    made = repair_linked(linux_wheel(make_wheel, elf), tmp_path / "out", exclude=exclude)
    assert wheel_info.read(made).wheel_tags == (f"cp311-cp311-manylinux_{expected}_x86_64",)
    assert made.name.endswith(f"manylinux_{expected}_x86_64.whl")


def test_a_forbidden_symbol_needs_a_newer_tag(make_wheel: MakeWheel, tmp_path: Path) -> None:
    elf = make_elf(needed=("libc.so.6",), symbols=("__cxa_thread_atexit_impl",))
    made = repair_linked(linux_wheel(make_wheel, elf), tmp_path / "out", exclude=())
    assert made.name.endswith("manylinux_2_24_x86_64.whl")


def test_a_tag_may_be_asked_for(make_wheel: MakeWheel, tmp_path: Path) -> None:
    wheel = linux_wheel(make_wheel, make_elf(needed=("libc.so.6",)))
    made = repair_linked(wheel, tmp_path / "out", exclude=(), platform="manylinux_2_28_x86_64")
    assert made.name == "demo-1.0-cp311-cp311-manylinux_2_28_x86_64.whl"
    with pytest.raises(WheelError, match="not a valid manylinux platform"):
        repair_linked(wheel, tmp_path / "out", exclude=(), platform="windows")
    aliased = repair_linked(wheel, tmp_path / "alias", exclude=(), platform="manylinux2014_x86_64")
    assert aliased.name == "demo-1.0-cp311-cp311-manylinux_2_17_x86_64.whl"
    # As a script gives it whose variable is empty.
    lowest = repair_linked(wheel, tmp_path / "none", exclude=(), platform="")
    assert lowest.name == "demo-1.0-cp311-cp311-manylinux_2_5_x86_64.whl"


@pytest.mark.parametrize(
    "platform", ["manylinux_2_28_aarch64", "manylinux_2_28_x86_64\nTag: py3-none-any", "manylinux_2_28_"]
)
def test_a_tag_of_another_machine_is_refused(make_wheel: MakeWheel, tmp_path: Path, platform: str) -> None:
    wheel = linux_wheel(make_wheel, make_elf(needed=("libc.so.6",)))
    with pytest.raises(WheelError, match="not the platform of a wheel for x86_64"):
        repair_linked(wheel, tmp_path / "out", exclude=(), platform=platform)


def test_other_wheels_pass_through(make_wheel: MakeWheel, tmp_path: Path) -> None:
    pure = make_wheel()
    done = make_wheel(tags=LINUX, files={"demo/x.so": make_elf()})
    for wheel in (pure, done):
        made = repair_linked(wheel, tmp_path / "out", exclude=())
        assert made == tmp_path / "out" / wheel.name
        assert made.read_bytes() == wheel.read_bytes()
        assert repair_linked(made, tmp_path / "out", exclude=()) == made


def test_a_wheel_without_binaries_gets_the_oldest_tag(make_wheel: MakeWheel, tmp_path: Path) -> None:
    wheel = make_wheel(tags=("py3-none-linux_x86_64",))
    assert (
        repair_linked(wheel, tmp_path / "out", exclude=()).name
        == "demo-1.0-py3-none-manylinux_2_5_x86_64.whl"
    )


def test_several_architectures_are_refused(make_wheel: MakeWheel, tmp_path: Path) -> None:
    wheel = make_wheel(tags=("py3-none-linux_x86_64", "py3-none-linux_aarch64"))
    with pytest.raises(WheelError, match="several architectures"):
        repair_linked(wheel, tmp_path / "out", exclude=())


WRONG_RECORDS: dict[str, dict[str, Change]] = {
    "content": {"demo/b.py": b"3\n"},
    "added": {"demo/b.pyc": b""},
    "missing": {"demo/b.py": None},
    "weak": {RECORD: lambda rows: rows.replace(b"demo/b.py,sha256=", b"demo/b.py,md5=")},
}


@pytest.mark.parametrize("tag", ["py3-none-any", "cp311-cp311-linux_x86_64", "cp311-cp311-win_amd64"])
@pytest.mark.parametrize("change", WRONG_RECORDS)
def test_a_wheel_with_a_wrong_record_is_refused(
    make_wheel: MakeWheel, tmp_path: Path, tag: str, change: str
) -> None:
    wheel = make_wheel(tags=(tag,), pure=False, files={"demo/a.py": b"1\n", "demo/b.py": b"2\n"})
    altered(wheel, WRONG_RECORDS[change])
    with pytest.raises(WheelError, match=r"RECORD of demo-1\.0-.* is wrong: demo/b\.pyc? "):
        repair_linked(wheel, tmp_path / "out", exclude=())
    assert not (tmp_path / "out").exists()


def test_policies_are_ordered_from_old_to_new() -> None:
    names = [found.name for found in system_libraries.policies()]
    assert names[0] == "manylinux_2_5"
    assert [tuple(map(int, name.split("_")[1:])) for name in names] == sorted(
        tuple(map(int, name.split("_")[1:])) for name in names
    )
    found = system_libraries.policy_of("manylinux2014_x86_64")
    assert found is not None
    assert found.name == "manylinux_2_17"
    assert system_libraries.policy_of("musllinux_1_2_x86_64") is None
    assert system_libraries.newest_policy().name in names


def test_there_is_a_tag_for_each_glibc(make_wheel: MakeWheel, tmp_path: Path) -> None:
    # auditwheel's list ends somewhere; PEP 600 does not. Debian unstable has 2.43.
    listed = int(system_libraries.newest_policy().name.rpartition("_")[2])
    needs = (f"GLIBC_2.{listed + 2}", "GLIBC_2.17")
    elf = make_elf(needed=("libc.so.6",), versions={"libc.so.6": needs})
    made = repair_linked(tagged(make_wheel, "linux_x86_64", elf), tmp_path / "out", exclude=())
    assert made.name == f"demo-1.0-cp311-cp311-manylinux_2_{listed + 2}_x86_64.whl"
    assert verify(made, Expectation()) == ()
    lower = tagged(make_wheel, f"manylinux_2_{listed + 1}_x86_64", elf)
    assert [finding.code for finding in verify(lower, Expectation())] == ["symbols-too-new"]


def binary(path: str, **facts: tuple[str, ...]) -> Binary:
    return Binary(path=path, size=1, format="elf", machine="x86_64", **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("needing", "run_path", "library", "expected"),
    [
        ("demo/_C.so", (), "demo/lib/libbase.so", ("$ORIGIN/lib",)),
        ("demo/lib/_C.so", ("/opt/lib",), "demo/lib/libbase.so", ("/opt/lib", "$ORIGIN")),
        ("_C.so", (), "demo/.lib/libbase.so", ("$ORIGIN/demo/.lib",)),
        ("demo/_C.so", (), "libbase.so", ("$ORIGIN/..",)),
        ("_C.so", (), "libbase.so", ("$ORIGIN",)),
        ("demo/_C.so", ("${ORIGIN}/../other/./lib",), "other/lib/libbase.so", None),
        ("_C.so", ("$ORIGIN",), "libbase.so", None),
        ("demo/_C.so", ("$ORIGIN/lib",), "demo/lib/libother.so", None),
    ],
)
def test_a_run_path_to_a_library_of_the_same_wheel(
    needing: str, run_path: tuple[str, ...], library: str, expected: tuple[str, ...] | None
) -> None:
    elves = [binary(needing, needed=("libbase.so",), runpath=run_path), binary(library)]
    found = repair.to_own_libraries(elves)
    assert {path: edit.run_path for path, edit in found.items()} == ({needing: expected} if expected else {})


def test_a_library_that_is_there_twice_is_left_to_the_project() -> None:
    paths = ("demo/a/libbase.so", "demo/b/libbase.so")
    elves = [binary("demo/_C.so", needed=("libbase.so",)), *map(binary, paths)]
    assert repair.to_own_libraries(elves) == {}


def tagged(make_wheel: MakeWheel, platform: str, elf: bytes) -> Path:
    return make_wheel(tags=(f"cp311-cp311-{platform}",), files={"demo/_C.so": elf})


def test_a_tag_that_promises_too_much_is_replaced(make_wheel: MakeWheel, tmp_path: Path) -> None:
    elf = make_elf(needed=("libc.so.6",), versions={"libc.so.6": ("GLIBC_2.28",)})
    wheel = tagged(make_wheel, "manylinux2014_x86_64.manylinux_2_17_x86_64", elf)
    (finding,) = verify(wheel, Expectation())
    assert finding.code == "symbols-too-new"
    made = repair_linked(wheel, tmp_path / "out", exclude=())
    assert made.name == "demo-1.0-cp311-cp311-manylinux_2_28_x86_64.whl"
    assert verify(made, Expectation()) == ()
    # One that keeps its promise gets a different tag where that is asked for.
    newer = repair_linked(made, tmp_path / "newer", exclude=(), platform="manylinux_2_34_x86_64")
    assert newer.name.endswith("manylinux_2_34_x86_64.whl")


NAMED_313 = "demo/m.cpython-313-x86_64-linux-{}.so"
LIBC, MUSL = ("libc.so.6",), ("libc.musl-x86_64.so.1",)


@pytest.mark.parametrize(
    ("name", "needed", "expected"),
    [
        ("demo/m.so", MUSL, "musllinux_1_2"),
        (NAMED_313.format("musl"), (), "musllinux_1_2"),
        (NAMED_313.format("gnu"), (), "manylinux_2_5"),
        ("demo/m.so", LIBC, "manylinux_2_5"),
        # Modules for musl had such names too before Python 3.11.
        ("demo/m.cpython-310-x86_64-linux-gnu.so", (), None),
        ("demo/m.abi3.so", (), None),
    ],
)
def test_the_c_library_is_that_of_the_binaries(
    make_wheel: MakeWheel, tmp_path: Path, name: str, needed: tuple[str, ...], expected: str | None
) -> None:
    files = {name: make_elf(needed=needed, defined=("PyInit_m",))}
    wheel = make_wheel(tags=("cp313-cp313-linux_x86_64",), files=files)
    if expected is None:
        with pytest.raises(WheelError, match="which C library"):
            repair_linked(wheel, tmp_path / "out", exclude=())
        for libc, tag in (("glibc", "manylinux_2_5"), ("musl", "musllinux_1_2")):
            made = repair_linked(wheel, tmp_path / libc, exclude=(), libc=libc)
            assert made.stem.endswith(f"{tag}_x86_64")
        expected = "manylinux_2_28"
    platform = f"{expected}_x86_64"
    asked = platform if expected == "manylinux_2_28" else None
    assert repair_linked(wheel, tmp_path / "out", exclude=(), platform=asked).stem.endswith(platform)
    if "musl" in expected:
        with pytest.raises(WheelError, match="for musl"):
            repair_linked(wheel, tmp_path / "out", exclude=(), platform="manylinux_2_28_x86_64")


URL = "demo2 @ https://example.com/demo2-1-py3-none-any.whl"


@pytest.mark.parametrize("verb", ["repair", "set-version"])
def test_a_worse_wheel_is_not_left(
    make_wheel: MakeWheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    files = {"demo/_C.so": make_elf(needed=LIBC, defined=("PyInit__C",))}
    wheel = make_wheel(tags=("cp311-cp311-linux_x86_64",), files=files, requires=(URL,))
    words = (verb, wheel, *(("--version", "2.0") if verb == "set-version" else ()), "--output-dir")
    # What it had before is no reason.
    assert cairn_wheel(*words, tmp_path / "out") == 0
    asked = make_wheel(version="1.1", tags=("cp311-cp311-linux_x86_64",), files=files)
    required = (
        "set-version",
        asked,
        "--version",
        "2.0",
        "--require",
        URL,
        "--output-dir",
        tmp_path / "asked",
    )
    assert verb == "repair" or cairn_wheel(*required) == 7
    lie_about_new_files(monkeypatch)
    assert cairn_wheel(*words, tmp_path / "lying") == 7
    assert not (tmp_path / "asked").exists()
    assert not (tmp_path / "lying").exists()


@pytest.mark.parametrize("verb", ["repair", "set-version"])
def test_what_is_copied_is_compared(
    make_wheel: MakeWheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    wheel = make_wheel(tags=("py3-none-linux_x86_64",), files={"demo/data.bin": bytes(range(256))})
    with Archive.open(wheel) as archive:
        member = archive.member("demo/data.bin")
        content = archive.raw.at(member.data_offset, member.compressed_size)

    class BadDisk(io.BufferedWriter):
        def write(self, data: ReadableBuffer, /) -> int:
            return super().write(bytes(data).replace(content, bytes(len(content))))

    def open_badly(path: Path, mode: str = "r", **options: Any) -> IO[Any]:
        return BadDisk(io.FileIO(path, "w")) if mode == "wb" else original(path, mode, **options)

    original = Path.open
    monkeypatch.setattr(Path, "open", open_badly)
    words = (verb, wheel, *(("--version", "2.0") if verb == "set-version" else ()))
    assert cairn_wheel(*words, "--output-dir", tmp_path / "out") == 7
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("platform", ["linux_x86_64", "manylinux_2_28_x86_64"])
def test_no_tag_promises_a_newer_processor(make_wheel: MakeWheel, tmp_path: Path, platform: str) -> None:
    wheel = tagged(make_wheel, platform, make_elf(needed=LIBC, level=7))
    with pytest.raises(WheelError, match=r"demo/_C\.so asks for a processor of x86-64-v3"):
        repair_linked(wheel, tmp_path / "out", exclude=())
    assert not (tmp_path / "out").exists()
    codes = [finding.code for finding in verify(wheel, Expectation())]
    assert codes == ["symbols-too-new" if "many" in platform else "platform-tag"]
    usual = tagged(make_wheel, platform, make_elf(needed=LIBC, level=1))
    assert repair_linked(usual, tmp_path / "out", exclude=())


@pytest.mark.parametrize(("library", "code"), [("liblog.so", 0), ("libpython3.13.so", 0), ("libz.so.1", 7)])
def test_android_has_policies_of_its_own(
    make_wheel: MakeWheel, tmp_path: Path, library: str, code: int
) -> None:
    elf = make_elf(needed=("libc.so", library), defined=("PyInit_m",), machine=183)
    files = {"demo/m.cpython-313-aarch64-linux-android.so": elf}
    wheel = make_wheel(tags=("cp313-cp313-android_24_arm64_v8a",), files=files)
    assert cairn_wheel("repair", wheel, "--output-dir", tmp_path / "out") == code
    assert [finding.code for finding in verify(wheel, Expectation())] == ["needed"] * bool(code)
    assert (tmp_path / "out" / wheel.name).exists() == (not code)


def test_run_paths_count_from_where_a_module_is_installed(make_wheel: MakeWheel, tmp_path: Path) -> None:
    libraries = {"demo/lib/liba.so.2": make_elf(needed=LIBC, soname="liba.so.2")}
    module = make_elf(needed=("liba.so.2",), defined=("PyInit_m",))
    places = ("platlib/demo/m.cpython-312-x86_64-linux-gnu.so", "scripts/tool", "data/lib/libx.so")
    files = {f"demo-1.0.data/{place}": module for place in places}
    wheel = make_wheel(tags=("cp312-cp312-linux_x86_64",), files=libraries | files)
    made = repair_linked(wheel, tmp_path / "out", exclude=())
    paths = [binary.rpath for binary in binaries.read_wheel(made) if ".data/" in binary.path]
    # Nothing leads from scripts or <prefix>/lib to site-packages wherever that is.
    assert paths == [(), ("$ORIGIN/lib",), ()]


def test_a_library_that_is_missing_is_missed_whatever_the_tag(make_wheel: MakeWheel, tmp_path: Path) -> None:
    wheel = tagged(make_wheel, "manylinux_2_28_x86_64", make_elf(needed=("libnowhere.so.1",)))
    with pytest.raises(WheelError, match="auditwheel cannot repair"):
        repair_linked(wheel, tmp_path / "out", exclude=())
    made = repair_linked(wheel, tmp_path / "out", exclude=("libnowhere.so*",))
    assert made.read_bytes() == wheel.read_bytes()


@pytest.mark.parametrize(
    ("platform", "says"),
    [("musllinux_1_2_x86_64", "breaks the promise of its tag"), ("macosx_11_0_arm64", "is for macOS")],
)
def test_what_is_not_repaired_here_is_refused(
    make_wheel: MakeWheel, tmp_path: Path, platform: str, says: str
) -> None:
    wheel = tagged(make_wheel, platform, make_elf(needed=("libnowhere.so.1",)))
    with pytest.raises(WheelError, match=says) as caught:
        repair_linked(wheel, tmp_path / "out", exclude=())
    assert caught.value.tip
    assert not (tmp_path / "out").exists()


def test_what_is_copied_is_said(
    make_wheel: MakeWheel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = tagged(make_wheel, "manylinux_2_28_x86_64", make_elf(needed=("libc.so.6",)))
    assert cairn_wheel("repair", wheel, "--output-dir", tmp_path / "out") == 0
    assert "nothing to repair, copied as it is" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ("demo/__init__.py,sha256=AAAA,9\ngone.py,,\n", "gone.py is not there"),
        ("demo/__init__.py,sha256=AAAA\n", "has a row of 2 columns"),
        ("", "demo/__init__.py is not listed"),
    ],
)
def test_a_record_is_written_anew(
    make_wheel: MakeWheel,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    record: str,
    says: str,
) -> None:
    wheel = make_wheel()
    whole = wheel.read_bytes()
    altered(wheel, {RECORD: record.encode(), f"{RECORD}.jws": b"{}"})
    out = tmp_path / "out"
    assert cairn_wheel("set-version", "--version", "2.0", wheel, "--output-dir", out) == 7
    capsys.readouterr()
    assert cairn_wheel("repair", "--new-record", wheel, "--output-dir", out) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{out / wheel.name}\n"
    assert says in printed.err
    validated(out / wheel.name)
    assert verify(out / wheel.name, Expectation()) == ()
    wheel.write_bytes(whole)
    same = {name: data for name, data in members_of(wheel).items() if not name.endswith("/RECORD")}
    made = members_of(out / wheel.name)
    assert {name: data for name, data in made.items() if not name.endswith("/RECORD")} == same
    assert cairn_wheel("set-version", "--version", "2.0", out / wheel.name, "--output-dir", out) == 0


def test_a_new_record_goes_elsewhere_and_alone(make_wheel: MakeWheel, tmp_path: Path) -> None:
    wheel = make_wheel()
    assert cairn_wheel("repair", "--new-record", wheel, "--output-dir", wheel.parent) == 7
    words = ("--new-record", wheel, "--output-dir", tmp_path, "--platform", "manylinux_2_28_x86_64")
    assert cairn_wheel("repair", *words) == 2
