"""Reading an sdist: its files and nothing else."""

import io
import tarfile
from pathlib import Path

import pytest

from cairn.errors import SourceError, UsageError
from cairn.sources.origins import materialize as origins_sdist
from cairn.sources.origins import pkginfo_backend
from cairn.sources.origins.history_toml import EXECUTABLE, FILE, NewEntry


def sdist(folder: Path, *members: tuple[str, bytes] | tarfile.TarInfo) -> Path:
    path = folder / "thing-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member, io.BytesIO(b"x" * member.size))
                continue
            info = tarfile.TarInfo(member[0])
            info.size = len(member[1])
            archive.addfile(info, io.BytesIO(member[1]))
    return path


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
    return info


def test_its_files_become_one_tagged_commit(tmp_path: Path) -> None:
    runnable = tarfile.TarInfo("thing-1.0/run.sh")
    runnable.size, runnable.mode = 1, 0o755
    folder = special("thing-1.0", tarfile.DIRTYPE)
    made = origins_sdist.to_repository(
        sdist(tmp_path, folder, ("thing-1.0/a/é.txt", b"A"), runnable), "thing==1.0"
    )
    assert dict(made.commits[0].files) == {
        "a/é.txt": NewEntry(mode=FILE, data=b"A"),
        "run.sh": NewEntry(mode=EXECUTABLE, data=b"x"),
    }
    assert (made.branches, made.tags, made.default_branch) == ({"main": 0}, {"v1.0": 0}, "main")


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (("/etc/passwd", b""), "outside its own folder"),
        (("thing-1.0/../../x", b""), "outside its own folder"),
        (("thing-1.0/.git/hooks/post-checkout", b""), "outside its own folder"),
        (("other/x", b""), "beside its folder 'thing-1.0'"),
        (special("thing-1.0/l", tarfile.SYMTYPE, "/etc/passwd"), "a link or a device"),
        (special("thing-1.0/l", tarfile.LNKTYPE, "thing-1.0/first"), "a link or a device"),
        (special("thing-1.0/l", tarfile.CHRTYPE), "a link or a device"),
        (special("thing-1.0/l", tarfile.FIFOTYPE), "a link or a device"),
    ],
)
def test_what_has_no_place_in_a_repository_is_refused(
    tmp_path: Path, member: tuple[str, bytes] | tarfile.TarInfo, message: str
) -> None:
    with pytest.raises(SourceError, match=message):
        origins_sdist.to_repository(sdist(tmp_path, ("thing-1.0/first", b""), member), "thing==1.0")


@pytest.mark.parametrize("cut", [0, 10, 60])
def test_a_broken_archive_is_refused(tmp_path: Path, cut: int) -> None:
    path = sdist(tmp_path, ("thing-1.0/a", b"A" * 5000))
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(SourceError, match="cannot be read as a tar archive"):
        origins_sdist.to_repository(path, "thing==1.0")


def test_the_version_is_exact() -> None:
    assert origins_sdist.exact_version("torch-scatter==2.1.2") == ("torch-scatter", "2.1.2")


@pytest.mark.parametrize(
    "requirement",
    [
        "thing",
        "thing>=1",
        "thing==1.*",
        "thing==1,<2",
        "thing[x]==1",
        "thing==1; python_version>'3'",
        "?",
        "",
    ],
)
def test_any_other_requirement_is_refused(requirement: str) -> None:
    with pytest.raises(UsageError):
        origins_sdist.exact_version(requirement)


def test_the_backend_repeats_what_the_sdist_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Metadata-Version: 2.1\nName: torch-thing\nVersion: 1.0\n\nÜber.\n"
    (tmp_path / "PKG-INFO").write_text(text, encoding="utf-8")
    target = tmp_path / "metadata"
    target.mkdir()
    monkeypatch.chdir(tmp_path)
    name = pkginfo_backend.prepare_metadata_for_build_wheel(str(target))
    assert name == "torch_thing-1.0.dist-info"
    assert (target / name / "METADATA").read_text(encoding="utf-8") == text
