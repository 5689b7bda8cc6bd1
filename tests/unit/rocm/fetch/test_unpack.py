import contextlib
import os
import tarfile
from pathlib import Path

import pytest

from cairn.rocm.fetch import unpack
from cairn.rocm.fetch.unpack import MANIFEST, UnsafeArchiveError
from helpers.artifacts import compressed, member, tar

M = member(MANIFEST, b"base\n")
LINK, HARD = tarfile.SYMTYPE, tarfile.LNKTYPE
Entry = tuple[tarfile.TarInfo, bytes]


def link(name: str, target: str, kind: bytes = LINK) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=kind, linkname=target)


def unpacked(tmp_path: Path, *members: tuple[tarfile.TarInfo, bytes], name: str = "a_lib_x.tar.zst") -> Path:
    archive, folder = tmp_path / name, tmp_path / "out" / "new"
    archive.write_bytes(compressed(tar(members), name))
    folder.parent.mkdir()
    (tmp_path / "secret").write_text("secret")
    unpack.unpack(archive, folder)
    return folder


@pytest.mark.parametrize("name", ["a_lib_x.tar.zst", "a_lib_x.tar.xz"])
def test_files_folders_modes_and_links(tmp_path: Path, name: str) -> None:
    folder = unpacked(
        tmp_path,
        M,
        member("./base/bin", type=tarfile.DIRTYPE),
        member("base/bin/hipcc", b"#!", mode=0o6755),
        member("base/ä b/x", b"1"),
        link("base/lib64", "lib"),
        member("base/lib/libx.so.1", b"elf"),
        link("base/lib/libx.so", "libx.so.1"),
        link("base/lib/elsewhere.so", "../../base/of-another-artifact.so"),
        link("base/lib/hard", "base/lib/libx.so.1", HARD),
        name=name,
    )
    base = folder / "base"
    assert (base / "bin/hipcc").stat().st_mode & 0o7777 == 0o777 & ~_umask()
    assert (base / "ä b/x").stat().st_mode & 0o7777 == 0o666 & ~_umask()
    assert (base / "lib64/libx.so").read_bytes() == b"elf"
    assert (base / "lib/hard").samefile(base / "lib/libx.so.1")
    assert str((base / "lib/elsewhere.so").readlink()) == "../../base/of-another-artifact.so"


BAD = {
    "dots": [member("../evil", b"x")],
    "inner dots": [member("base/../../evil", b"x")],
    "absolute": [member("/tmp/evil", b"x")],  # noqa: S108
    "a drive": [member("C:/evil", b"x")],
    "backslash": [member("base\\..\\..\\evil", b"x")],
    "itself": [member(".", b"x")],
    "absolute link": [link("base/l", "/etc/passwd")],
    "link out": [link("base/l", "../../../secret")],
    "link by way of links": [
        link("base/a/b/up", "../.."),
        link("base/l", "a/b/up/../../../secret"),
    ],
    "link to a link out": [link("base/x", "y"), link("base/y", "../..")],
    "link in a circle": [link("base/x", "y"), link("base/y", "x"), link("base/z", "x/../../../..")],
    "file below a link": [link("base/l", "../.."), member("base/l/evil", b"x")],
    "link over a file": [member("base/x", b"x"), link("base/x", "y")],
    "hard link out": [link("base/l", "../secret", HARD)],
    "hard link to nothing": [link("base/l", "base/none", HARD)],
    "hard link by way of a link": [link("base/up", "../.."), link("base/l", "base/up/secret", HARD)],
    "twice": [member("base/x", b"1"), member("./base/x", b"2")],
    "a file and a folder": [member("base/x", b"1"), member("base/x", type=tarfile.DIRTYPE)],
    "a folder and a file": [member("base/x/y", b"1"), member("base/x", b"2")],
    "below a file": [member("base/x", b"1"), member("base/x/y", b"2")],
    "link below a file": [member("base/x", b"1"), link("base/x/y", "z")],
    "name too long": [member(f"base/{'n' * 300}", b"x")],
    "device": [member("base/null", type=tarfile.CHRTYPE)],
    "pipe": [member("base/fifo", type=tarfile.FIFOTYPE)],
}


@pytest.mark.parametrize("bad", BAD)
def test_what_would_get_out_is_refused(tmp_path: Path, bad: str) -> None:
    with pytest.raises(UnsafeArchiveError):
        unpacked(tmp_path, M, *BAD[bad])
    assert [p for p in tmp_path.rglob("*evil*") if not p.is_relative_to(tmp_path / "out/new")] == []
    assert not Path("/tmp/evil").exists()  # noqa: S108
    assert (tmp_path / "secret").read_text() == "secret"
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["new"]


def test_an_archive_without_its_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsafeArchiveError, match=MANIFEST):
        unpacked(tmp_path, member("base/x", b"1"))


@pytest.mark.parametrize("name", ["a_lib_x.tar.zst", "a_lib_x.tar.xz"])
def test_an_archive_that_unpacks_to_more_than_it_may_is_refused(tmp_path: Path, name: str) -> None:
    archive = tmp_path / name
    archive.write_bytes(compressed(tar([M, member("base/zeros", bytes(9 << 20))]), name))
    with pytest.raises(UnsafeArchiveError, match="unpacks to more than 1,048,576 bytes"):
        unpack.unpack(archive, tmp_path / "new", most=1 << 20)


def test_a_manifest_that_is_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsafeArchiveError):
        unpacked(tmp_path, member(MANIFEST, b"b\xe4se\n"), member("base/x", b"1"))


@pytest.mark.parametrize("name", ["a_lib_x.tar.zst", "a_lib_x.tar.xz"])
@pytest.mark.parametrize("share", [0, 0.3, 0.9])
def test_a_truncated_archive_is_refused(tmp_path: Path, name: str, share: float) -> None:
    data = compressed(tar([M, member("base/x", os.urandom(300_000))]), name)
    (tmp_path / name).write_bytes(data[: int(len(data) * share)])
    with pytest.raises(UnsafeArchiveError):
        unpack.unpack(tmp_path / name, tmp_path / "new")


def test_artifacts_become_one_tree(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name, members in {
        "a": [member("base/lib/x.so.1", b"a"), link("base/lib64", "lib")],
        "b": [link("base/lib/x.so", "x.so.1"), member("base/lib/x.so.1", b"b")],
    }.items():
        (tmp_path / name).mkdir()
        unpack.move_into(unpacked(tmp_path / name, M, *members), tree)
    assert (tree / "lib64/x.so").read_bytes() == b"b"
    assert not (tree / MANIFEST).exists()


def test_links_of_several_artifacts_do_not_add_up_to_a_way_out(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tmp_path / "secret").write_text("secret")
    first = [member("base/a/b/x", b"1"), link("base/a/b/up", "../..")]
    for name, members in {"a": first, "b": [link("base/l", "a/b/up/../../secret")]}.items():
        (tmp_path / name).mkdir()
        folder = unpacked(tmp_path / name, M, *members)
        if name == "a":
            unpack.move_into(folder, tree)
        else:
            with pytest.raises(UnsafeArchiveError):
                unpack.move_into(folder, tree)
    assert not (tree / "l").is_symlink()


@pytest.mark.parametrize(
    ("first", "target", "second"),
    [
        ([], "s/t/../../secret", [link("base/s", "."), link("base/t", ".")]),
        ([link("base/s", "a/b")], "s/../../secret", [link("base/s", ".")]),
    ],
    ids=["of what is not there yet", "of what is replaced"],
)
def test_a_later_artifact_turns_no_link_of_an_earlier_one_outwards(
    tmp_path: Path, first: list[Entry], target: str, second: list[Entry]
) -> None:
    tree, files = tmp_path / "out/tree", [member("base/a/b/x", b"1"), member("base/lib/y", b"2")]
    for name, members in {
        "a": [*files, *first, link("base/a/y", "../a/b/../../lib/y")],
        "b": [link("base/l", target)],
        "c": second,
    }.items():
        (tmp_path / name).mkdir()
        with pytest.raises(UnsafeArchiveError) if name == "b" else contextlib.nullcontext():
            unpack.move_into(unpacked(tmp_path / name, M, *members), tree)
    assert (tree / "a/y").read_bytes() == b"2"
    assert not (tree / "l").is_symlink()


def _umask() -> int:
    found = os.umask(0o022)
    os.umask(found)
    return found
