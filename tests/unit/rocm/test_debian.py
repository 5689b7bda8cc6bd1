from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn.cli import main
from cairn.errors import PrerequisiteError, UsageError, WheelError
from cairn.rocm import debian, package
from cairn.rocm.debian import DebianPackage
from cairn.rocm.fetch.unpack import UnsafeArchiveError
from cairn.rocm.package import PackageRequest
from helpers import debs
from helpers.artifacts import compressed, member, tar
from helpers.formats import make_bundle, make_code_object
from helpers.hip_library import make_hip_library

LIBRARIES = "lib/x86_64-linux-gnu"
SYMLINK = tarfile.SYMTYPE


@pytest.mark.parametrize("packing", ["", ".gz", ".xz", ".zst"])
def test_a_package_says_what_it_is_and_gives_its_files(tmp_path: Path, packing: str) -> None:
    files = {"bin/tool": b"#!", f"{LIBRARIES}/liba.so": "liba.so.1", "bin/absolute": "/usr/bin/tool"}
    deb = debs.write(tmp_path, "liba1", files, version="1:2.0+dfsg-3", packing=packing)
    package = debian.extract(deb, tmp_path / "out")
    assert package == DebianPackage(
        name="liba1",
        version="1:2.0+dfsg-3",
        architecture="amd64",
        sha256=hashlib.sha256(deb.read_bytes()).hexdigest(),
    )
    assert package.purl == "pkg:deb/debian/liba1@1%3A2.0%2Bdfsg-3?arch=amd64"
    usr = tmp_path / "out" / "usr"
    assert (usr / "bin/tool").stat().st_mode & 0o100
    assert str((usr / f"{LIBRARIES}/liba.so").readlink()) == "liba.so.1"
    # Of the package's own root, not of this machine's.
    assert (usr / "bin/absolute").samefile(usr / "bin/tool")


def control(text: str) -> bytes:
    return compressed(tar([member("./control", text.encode())]), "x.xz")


NAMED = "Package: a\nVersion: 1\nArchitecture: all\n"
DATA = compressed(tar([member("./usr/a", b"x")]), "x.xz")
WHOLE = {"debian-binary": b"2.0\n", "control.tar.xz": control(NAMED), "data.tar.xz": DATA}

DAMAGED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "no archive": (lambda p: debs.write_ar(p, {}).write_bytes(b"PK\3\4") and p, "does not begin as one"),
    "nothing in it": (lambda p: debs.write_ar(p, {}), "no debian-binary"),
    "of the future": (lambda p: debs.write_ar(p, WHOLE | {"debian-binary": b"3.0\n"}), "not 2.0"),
    "no data": (lambda p: debs.write_ar(p, {n: WHOLE[n] for n in list(WHOLE)[:2]}), "no data.tar"),
    "two data": (lambda p: debs.write_ar(p, WHOLE | {"data.tar": tar([])}), "2 data.tar"),
    "odd packing": (lambda p: debs.write_ar(p, WHOLE | {"control.tar.rar": b""}), "2 control.tar"),
    "size is no number": (lambda p: debs.write_ar(p, WHOLE, sizes={"data.tar.xz": "-1"}), "damaged"),
    "longer than the file": (lambda p: debs.write_ar(p, WHOLE, sizes={"data.tar.xz": "9999"}), "cut off"),
    "stream cut off": (lambda p: debs.write_ar(p, WHOLE | {"data.tar.xz": DATA[:-20]}), "cannot be unpacked"),
    "stream damaged": (lambda p: debs.write_ar(p, WHOLE | {"data.tar.xz": b"x" * 99}), "cannot be unpacked"),
    "gzip damaged": (
        lambda p: debs.write_ar(
            p, {"debian-binary": b"2.0\n", "control.tar.gz": b"x" * 99, "data.tar.xz": DATA}
        ),
        "cannot be unpacked",
    ),
    "bzip2 damaged": (
        lambda p: debs.write_ar(
            p, {"debian-binary": b"2.0\n", "control.tar.xz": control(NAMED), "data.tar.bz2": b"x" * 99}
        ),
        "cannot be unpacked",
    ),
    "one data twice": (
        lambda p: debs.write_ar(p, WHOLE | {"data.tar.xz/": DATA}),
        r"two data\.tar\.xz",
    ),
    "no control": (
        lambda p: debs.write_ar(p, WHOLE | {"control.tar.xz": compressed(tar([]), "x.xz")}),
        "no file 'control'",
    ),
    "huge control": (
        lambda p: debs.write_ar(p, WHOLE | {"control.tar.xz": control(NAMED + "X: y\n" * 300_000)}),
        "less than 1,048,576 bytes",
    ),
    "no name": (
        lambda p: debs.write_ar(p, WHOLE | {"control.tar.xz": control("Version: 1\n")}),
        "does not say what it is",
    ),
    "a path for a name": (
        lambda p: debs.write_ar(p, WHOLE | {"control.tar.xz": control(NAMED.replace(": a", ": ../a"))}),
        "does not say what it is",
    ),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_package_is_one_clear_error(tmp_path: Path, case: str) -> None:
    make, message = DAMAGED[case]
    with pytest.raises(UnsafeArchiveError, match=message) as caught:
        debian.extract(make(tmp_path / "a.deb"), tmp_path / "out")
    assert caught.value.tip


def extended(kind: bytes, content: bytes, *, size: int | None = None) -> bytes:
    """The header of a tar that says more of the member behind it."""
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, len(content) if size is None else size
    return info.tobuf() + content.ljust(512, b"\0")


def damaged_header() -> bytes:
    data = bytearray(tar([member("./usr/a", b"x"), member("./usr/b", b"x")]))
    data[1024] ^= 1  # the first byte of the name of the second
    return bytes(data)


END = tar([member("./usr/a", b"x")])
MALFORMED_TARS = {
    "damaged header": damaged_header(),
    "a chain of long names": extended(tarfile.GNUTYPE_LONGNAME, b"name\0") * 3000 + END,
    "a record of endless length": extended(tarfile.XHDTYPE, b"99999999999999999999 path=x\n") + END,
    "a name of gigabytes": extended(tarfile.GNUTYPE_LONGNAME, b"", size=3 << 30) + bytes(9 << 20),
    "a file with holes": extended(tarfile.GNUTYPE_SPARSE, b""),
    "negative size": extended(tarfile.REGTYPE, b"", size=-1) + END,
}


@pytest.mark.parametrize("case", MALFORMED_TARS)
def test_a_malformed_tar_is_one_clear_error(tmp_path: Path, case: str) -> None:
    data = compressed(MALFORMED_TARS[case], "x.xz")
    deb = debs.write_ar(tmp_path / "a.deb", WHOLE | {"data.tar.xz": data})
    with pytest.raises(UnsafeArchiveError, match="cannot be unpacked"):
        debian.extract(deb, tmp_path / "out")


def test_a_package_that_unpacks_to_more_than_it_may_is_refused(tmp_path: Path) -> None:
    deb = debs.write(tmp_path, "zeros", {"lib/zeros": bytes(9 << 20)})
    assert deb.stat().st_size < 1 << 16
    assert debian.extract(deb, tmp_path / "whole", most=10 << 20).name == "zeros"
    with pytest.raises(UnsafeArchiveError, match="unpacks to more than 1,048,576 bytes"):
        debian.extract(deb, tmp_path / "out", most=1 << 20)


def test_neither_may_its_control_files_unpack_without_end(tmp_path: Path) -> None:
    members = [member("./md5sums", bytes(80 << 20)), member("./control", NAMED.encode())]
    large = compressed(tar(members), "x.xz")
    deb = debs.write_ar(tmp_path / "a.deb", WHOLE | {"control.tar.xz": large})
    with pytest.raises(UnsafeArchiveError, match="unpacks to more than"):
        debian.extract(deb, tmp_path / "out")


@pytest.mark.skipif(os.sep != "/", reason="a backslash is a separator here")
def test_a_backslash_is_a_character_as_any_other(tmp_path: Path) -> None:
    unit = "lib/systemd/system/dev-disk\\x2d0.mount"
    deb = debs.write(tmp_path, "systemd", {unit: b"[Unit]", "bin/link": "../lib/systemd\\x2d"})
    debian.extract(deb, tmp_path / "out")
    assert (tmp_path / "out/usr" / unit).read_bytes() == b"[Unit]"


def test_links_count_from_the_root_of_the_package_wherever_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deb = debs.write(tmp_path, "a", {"bin/tool": b"#!", "bin/again": "//usr/bin/tool"})
    for number, place in enumerate(("/", tmp_path)):
        monkeypatch.chdir(place)
        debian.extract(deb, tmp_path / str(number))
        assert str((tmp_path / str(number) / "usr/bin/again").readlink()) == "tool"


OUT = {
    "dots": [member("./../evil", b"x")],
    "absolute": [member("/evil", b"x")],
    "link out": [member("./usr/l", type=SYMLINK, linkname="../../secret")],
    "file through a link": [
        member("./usr/l", type=SYMLINK, linkname="../.."),
        member("./usr/l/evil", b"x"),
    ],
    "absolute link with dots": [member("./usr/l", type=SYMLINK, linkname="/../../secret")],
    "hard link out": [member("./usr/l", type=tarfile.LNKTYPE, linkname="../secret")],
    "device": [member("./usr/null", type=tarfile.CHRTYPE)],
    "twice": [member("./usr/x", b"1"), member("./usr/x", b"2")],
}


@pytest.mark.parametrize("case", OUT)
def test_nothing_gets_out_of_the_folder(tmp_path: Path, case: str) -> None:
    (tmp_path / "secret").write_text("secret")
    deb = debs.write_tar(tmp_path, "evil", OUT[case])
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UnsafeArchiveError, match="cannot be unpacked"):
        debian.extract(deb, tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "out"])
    assert (tmp_path / "secret").read_text() == "secret"


def request(folder: Path, *debs: Path, **changes: object) -> PackageRequest:
    values: dict[str, object] = {
        "debs": debs,
        "version": "6.4.3",
        "targets": ("gfx1100",),
        "output_dir": folder / "dist",
    }
    return PackageRequest(**(values | changes))  # type: ignore[arg-type]


@pytest.fixture
def rocm(tmp_path: Path) -> Path:
    """A folder with the packages of a tiny ROCm."""
    folder = tmp_path / "debs"
    debs.write(folder, "libamdhip64-6", {f"{LIBRARIES}/libamdhip64.so.6": b"hip"}, version="6.4.3-5")
    debs.write(
        folder,
        "libamdhip64-dev",
        {
            f"{LIBRARIES}/libamdhip64.so": "libamdhip64.so.6",
            f"{LIBRARIES}/cmake/hip/hip-config.cmake": b"hip",
            "include/hip/hip_runtime.h": b"header",
            "share/doc/libamdhip64-dev": "libamdhip64-6",
        },
        licence=False,
    )
    debs.write(folder, "librocblas4", {f"{LIBRARIES}/rocblas/4.4/library/k_gfx1100.hsaco": b"k"})
    debs.write(folder, "clang-21", {"lib/llvm-21/bin/clang": b"clang", "lib/llvm-21/bin/clang++": "clang"})
    debs.write(folder, "unrelated", {"bin/unrelated": b""}, licence=False)
    return folder


def test_packages_become_an_sdk_with_licences_and_provenance(rocm: Path, tmp_path: Path) -> None:
    dists = package.package(request(tmp_path, rocm))
    assert [d.distribution for d in dists] == [
        "rocm-sdk-core",
        "rocm-sdk-libraries-gfx110X-all",
        "rocm-sdk-devel",
        "rocm",
    ]
    core, libraries, devel = (zipfile.ZipFile(d.path) for d in dists[:3])
    assert "_rocm_sdk_core/lib/libamdhip64.so.6" in core.namelist()
    assert "_rocm_sdk_libraries_gfx110X_all/lib/rocblas/4.4/library/k_gfx1100.hsaco" in libraries.namelist()

    info = "rocm_sdk_core-6.4.3.dist-info"
    assert core.read(f"{info}/licenses/libamdhip64-6/copyright") == b"licence of libamdhip64-6"
    assert b"License-File: libamdhip64-6/copyright\n" in core.read(f"{info}/METADATA")
    (part,) = json.loads(core.read(f"{info}/sboms/cairn.cdx.json"))["components"]
    deb = rocm / "libamdhip64-6_6.4.3-5_amd64.deb"
    assert part["purl"] == "pkg:deb/debian/libamdhip64-6@6.4.3-5?arch=amd64"
    assert part["hashes"] == [
        {"alg": "SHA-256", "content": hashlib.sha256(deb.read_bytes()).hexdigest()},
    ]

    # That of the runtime, since the folder of its own is a link to the runtime's.
    info = "rocm_sdk_devel-6.4.3.dist-info"
    assert devel.read(f"{info}/licenses/libamdhip64-dev/copyright") == b"licence of libamdhip64-6"
    with devel.open("rocm_sdk_devel/devel.tar") as file, tarfile.open(fileobj=file) as inner:
        names = inner.getnames()
        assert {"include/hip/hip_runtime.h", "llvm/bin/clang", "bin/unrelated"} & set(names) == {
            "include/hip/hip_runtime.h",
            "llvm/bin/clang",
        }
        assert inner.getmember("llvm/bin/clang++").linkname == "clang"
        including = inner.extractfile("lib/cmake/hip/hip-config.cmake")
        assert including is not None
        assert b"/../../../lib/x86_64-linux-gnu/cmake/hip/hip-config.cmake" in including.read()


def test_what_is_for_other_targets_alone_is_left_out(rocm: Path, tmp_path: Path) -> None:
    codes = {name: make_code_object(name, name.encode() * 999) for name in ("gfx90a", "gfx1100")}
    run_path = "$ORIGIN:$ORIGIN/../../_rocm_sdk_core/lib"
    library = make_hip_library(
        [make_bundle(codes)], soname="librocblas.so.4", runpath=run_path, dynamic_section=True
    )
    names = ("TensileLibrary_gfx90a.dat", "TensileLibrary_gfx1100.dat", "TensileLibrary_fallback.dat")
    files = {f"{LIBRARIES}/rocblas/4.4.1/library/{name}": name.encode() for name in names}
    debs.write(rocm, "librocblas4", files | {f"{LIBRARIES}/librocblas.so.4.4": library})
    progress: list[str] = []
    trimming = request(tmp_path, rocm, targets=("gfx1100", "gfx1101"), trim=True)
    wheel = package.package(trimming, say=progress.append)[1].path
    assert "trim lib/librocblas.so.4" in progress
    assert progress[-1].startswith("write rocm_sdk_devel-6.4.3-py3-none-any.whl: ")
    assert progress[0].startswith("unpack ")
    with zipfile.ZipFile(wheel) as archive:
        folder = "_rocm_sdk_libraries_gfx110X_all/lib"
        trimmed = archive.read(f"{folder}/librocblas.so.4")
        listed = [Path(name).name for name in archive.namelist() if "/library/" in name]
    assert bytes(codes["gfx1100"]) in trimmed
    assert bytes(codes["gfx90a"]) not in trimmed
    assert sorted(listed) == ["TensileLibrary_fallback.dat", "TensileLibrary_gfx1100.dat"]


def test_it_says_which_library_has_no_code_for_a_target(
    rocm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def library(*names: str) -> bytes:
        codes = {name: make_code_object(name, b"code") for name in names}
        return make_hip_library([make_bundle(codes)], dynamic_section=True)

    debs.write(
        rocm,
        "libraries",
        {
            f"{LIBRARIES}/librocrand.so.1": library("gfx90a", "gfx1100"),
            f"{LIBRARIES}/librocsolver.so.0": library("gfx90a", "gfx11-generic"),
            f"{LIBRARIES}/librocfft.so.0": library("gfx1100", "gfx1101"),
            f"{LIBRARIES}/hipblaslt/library/Kernels.so-000-gfx1101.hsaco": b"k",
        },
    )
    words = ["rocm", "package", "--debs", str(rocm), "--rocm-version", "6.4.3", "--dry-run"]
    words += ["--targets", "gfx1100,gfx1101", "--output-dir", str(tmp_path / "dist")]
    assert main.main(words) == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert warnings == [
        "warning: lib/hipblaslt/library has no code for gfx1100",
        "warning: librocrand.so.1 has no code for gfx1101",
        "warning: lib/rocblas/4.4/library has no code for gfx1101",
    ]
    assert main.main([*words, "--json"]) == 0
    answer = {each["distribution"]: each["lacks"] for each in json.loads(capsys.readouterr().out)}
    assert answer.pop("rocm-sdk-libraries-gfx110X-all")["librocrand.so.1"] == ["gfx1101"]
    assert set(map(str, answer.values())) == {"{}"}


@pytest.mark.parametrize("inside", [b"/usr/bin/clang++-21\0", b"/usr/bin/clang++-210", b""])
def test_the_sdk_knows_which_library_runs_a_program_of_the_machine(
    rocm: Path, tmp_path: Path, inside: bytes
) -> None:
    run_path = "$ORIGIN:$ORIGIN/../../_rocm_sdk_core/lib"  # as it shall be: patchelf has nothing to do
    library = make_hip_library([], runpath=run_path, dynamic_section=True) + inside
    debs.write(rocm, "libmiopen1", {f"{LIBRARIES}/libMIOpen.so.1": library})
    sdist = package.package(request(tmp_path, rocm))[-1].path
    with tarfile.open(sdist) as archive:
        described = archive.extractfile("rocm-6.4.3/rocm_sdk/_dist.json")
        assert described is not None
        programs = [each[:2] for each in json.load(described)["programs"]]
    runs = inside.endswith(b"-21\0")
    assert programs == ([["/usr/bin/clang++-21", "libMIOpen.so.1"]] if runs else [])


@pytest.mark.skipif(os.sep != "/", reason="a backslash is a separator here")
def test_a_backslash_in_the_name_of_a_file_of_the_sdk_is_refused(rocm: Path, tmp_path: Path) -> None:
    debs.write(rocm, "odd", {"include/hip/a\\b.h": b"x"})
    with pytest.raises(UsageError, match=r"include/hip/a\\b\.h has a backslash in its name") as caught:
        package.package(request(tmp_path, rocm))
    assert caught.value.tip


@pytest.mark.parametrize("changes", [{"targets": ("gfx9999",)}, {"targets": ()}, {"description": "bad.toml"}])
def test_a_request_that_makes_no_sense_is_refused_before_packages_are_unpacked(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    (tmp_path / "a.deb").write_bytes(b"no package")  # an error of its own, once it is read
    if "description" in changes:
        changes = {"description": tmp_path / "bad.toml"}
        (tmp_path / "bad.toml").write_text("schema = 1")
    with pytest.raises(UsageError):
        package.package(request(tmp_path, tmp_path / "a.deb", **changes))


def test_packages_without_room_for_them_are_not_begun(rocm: Path, tmp_path: Path) -> None:
    debs.write(rocm, "librocsolver0", {}, installed_size=10**12)  # of 1024 bytes
    with pytest.raises(
        PrerequisiteError, match=r"the packages unpack to 1024000\.0 GB, and .* GB free"
    ) as caught:
        package.package(request(tmp_path, rocm))
    assert "TMPDIR" in str(caught.value.tip)


def test_without_its_licence_no_package_is_packaged(tmp_path: Path) -> None:
    deb = debs.write(tmp_path, "libnuma1", {f"{LIBRARIES}/libnuma.so.1": b"numa"}, licence=False)
    with pytest.raises(WheelError, match=r"libnuma1 1\.0-1 comes without its licence"):
        package.package(request(tmp_path, deb))


def test_two_versions_of_one_package_are_refused(rocm: Path, tmp_path: Path) -> None:
    debs.write(rocm, "librocblas4", {}, version="2")
    with pytest.raises(UsageError, match=r"librocblas4 is there as 1\.0-1 and as 2"):
        package.package(request(tmp_path, rocm))


def test_a_package_that_is_named_twice_is_one(rocm: Path, tmp_path: Path) -> None:
    (tmp_path / "again").symlink_to(rocm)
    once = package.package(request(tmp_path, rocm))
    again = package.package(request(tmp_path, rocm, tmp_path / "again"))
    assert [p.sha256 for p in again] == [p.sha256 for p in once]


def test_files_may_have_any_name(rocm: Path, tmp_path: Path) -> None:
    # Two packages with one file: which of them has it must not follow from what their files are called.
    debs.write(rocm, "x1", {"include/hip/same.h": b"same"})
    debs.write(rocm, "x2", {"include/hip/same.h": b"same"})
    renamed = tmp_path / "renamed"
    renamed.mkdir()
    for number, deb in enumerate(sorted(rocm.iterdir(), reverse=True)):
        shutil.copy(deb, renamed / f"{number}.deb")
    assert [p.sha256 for p in package.package(request(tmp_path, rocm))] == [
        p.sha256 for p in package.package(request(tmp_path, renamed))
    ]


def test_packages_with_different_files_of_one_name_are_named(rocm: Path, tmp_path: Path) -> None:
    # As libhipblaslt1 and libhipsparselt-dev of 7.2.4 have, which cannot be installed together either.
    debs.write(rocm, "x1", {f"{LIBRARIES}/liborigami.a": b"1"})
    debs.write(rocm, "x2", {f"{LIBRARIES}/liborigami.a": b"2"})
    message = r"two files for lib/x86_64-linux-gnu/liborigami\.a: those of x1 1\.0-1 and x2 1\.0-1 differ"
    with pytest.raises(UsageError, match=message) as caught:
        package.package(request(tmp_path, rocm))
    assert "leave out" in str(caught.value.tip)


def test_packages_for_different_machines_are_refused(rocm: Path, tmp_path: Path) -> None:
    debs.write(rocm, "libnuma1", {}, architecture="arm64")
    with pytest.raises(UsageError, match=r"libnuma1 is for arm64") as caught:
        package.package(request(tmp_path, rocm))
    assert caught.value.tip


def test_a_file_for_a_link_is_of_the_package_that_has_the_file(rocm: Path, tmp_path: Path) -> None:
    # No component claims the library; devel claims the link, and so gets what it leads to.
    debs.write(rocm, "librocalution1", {f"{LIBRARIES}/librocalution.so.1": b"calution"})
    debs.write(rocm, "librocalution-dev", {f"{LIBRARIES}/librocalution.so": "librocalution.so.1"})
    devel = zipfile.ZipFile(package.package(request(tmp_path, rocm))[2].path)
    info = "rocm_sdk_devel-6.4.3.dist-info"
    names = {part["name"] for part in json.loads(devel.read(f"{info}/sboms/cairn.cdx.json"))["components"]}
    assert "librocalution1" in names
    assert "librocalution-dev" not in names
    assert devel.read(f"{info}/licenses/librocalution1/copyright") == b"licence of librocalution1"


def test_of_an_sdk_that_cannot_be_whole_nothing_is_written(rocm: Path, tmp_path: Path) -> None:
    debs.write(rocm, "hipcc", {"bin/hipcc": b"#!"}, licence=False)
    with pytest.raises(WheelError, match="hipcc"):
        package.package(request(tmp_path, rocm))
    assert not (tmp_path / "dist").exists()


def test_a_folder_without_packages_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no \.deb in"):
        package.package(request(tmp_path, tmp_path))


@pytest.mark.parametrize("name", ["", ".", "lib/.."])
def test_installed_files_are_known_by_their_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    prefix, database = tmp_path / "usr", tmp_path / "var" / "lib" / "dpkg"
    library = prefix / LIBRARIES / "libnuma.so.1"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"numa")
    (prefix / "share/doc/libnuma1").mkdir(parents=True)
    (prefix / "share/doc/libnuma1/copyright").write_text("licence")
    (database / "info").mkdir(parents=True)
    (database / "status").write_text(
        "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\nArchitecture: amd64\n\n"
        "Package: libnuma1\nStatus: install ok installed\nVersion: 2.0.19-1\nArchitecture: amd64\n"
        "Description: a\n b\n\n"
    )
    # As before /lib became a link to /usr/lib.
    (database / "info/libnuma1:amd64.list").write_text(f"/.\n/{LIBRARIES}/libnuma.so.1\n")
    (database / "info/gone.list").write_text(f"/usr/{LIBRARIES}/libnuma.so.1\n")
    monkeypatch.chdir(prefix)
    dists = package.package(request(tmp_path, prefix=Path(name) if name else prefix))
    core = zipfile.ZipFile(dists[0].path)
    bill = json.loads(core.read("rocm_sdk_core-6.4.3.dist-info/sboms/cairn.cdx.json"))
    (part,) = bill["components"]
    assert part["purl"] == "pkg:deb/debian/libnuma1@2.0.19-1?arch=amd64"
    assert "hashes" not in part
