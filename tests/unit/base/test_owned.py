"""What Cairn made is removed, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cairn import owned
from cairn.errors import UsageError


def test_a_folder_of_ours_is_made_anew_and_another_one_stays(tmp_path: Path) -> None:
    folder = tmp_path / "a folder" / "venv"
    owned.empty_folder(folder)
    (folder / "lib").mkdir()
    (folder / "lib/x.py").write_text("x")
    owned.empty_folder(folder)
    assert [path.name for path in folder.iterdir()] == [owned.MARK]
    (folder / owned.MARK).unlink()
    (folder / "thesis.txt").write_text("precious")
    with pytest.raises(UsageError, match="venv, which Cairn did not make"):
        owned.empty_folder(folder)
    assert (folder / "thesis.txt").read_text() == "precious"


def test_a_run_killed_while_it_removes_finds_its_folder_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "venv"
    owned.empty_folder(folder)
    (folder / "lib").mkdir()
    (folder / "lib/x.py").write_text("x")
    (folder / "lib64").symlink_to("lib")

    def killed(path: Path) -> None:
        (path / owned.MARK).unlink(missing_ok=True)  # what comes first is the file system's choice
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shutil, "rmtree", killed)
        owned.empty_folder(folder)
    owned.empty_folder(folder)
    assert [path.name for path in folder.iterdir()] == [owned.MARK]


def test_an_empty_folder_may_be_taken_and_a_link_may_not(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    owned.empty_folder(tmp_path / "empty")
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    with pytest.raises(UsageError, match="link"):
        owned.empty_folder(tmp_path / "link")
    assert (tmp_path / "empty" / owned.MARK).exists()


def test_room_is_made_for_the_named_places_only(tmp_path: Path) -> None:
    def make() -> None:
        owned.empty_places(tmp_path, of_files=("log", "record.json"), of_folders=("venv",))

    (tmp_path / "notes.txt").write_text("mine")
    make()
    (tmp_path / "log").write_text("old")
    (tmp_path / "venv/old").write_text("old")
    make()
    assert sorted(p.name for p in tmp_path.iterdir()) == [owned.MARK, "notes.txt", "venv"]
    assert [p.name for p in (tmp_path / "venv").iterdir()] == [owned.MARK]


@pytest.mark.parametrize("taken", ["record.json", "venv/mine.txt"])
def test_a_name_that_is_taken_is_refused_before_anything_is_removed(tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).parent.mkdir(exist_ok=True)
    (tmp_path / taken).write_text("mine")
    with pytest.raises(UsageError, match=taken.split("/", maxsplit=1)[0]):
        owned.empty_places(tmp_path, of_files=("log", "record.json"), of_folders=("venv",))
    assert [p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()] == [taken]


def test_files_are_replaced_where_they_are_as_they_were_made(tmp_path: Path) -> None:
    made, folder = tmp_path / "made", tmp_path / "folder"

    def put(**texts: str) -> None:
        shutil.rmtree(made, ignore_errors=True)
        for name, text in texts.items():
            (made / "sub").mkdir(parents=True, exist_ok=True)
            (made / "sub" / name).write_text(text)
        owned.replace_files(folder, made)

    put(a="1", b="1")
    (folder / "sub/mine").write_text("mine")
    put(a="2", c="2")
    assert {p.name: p.read_text() for p in (folder / "sub").iterdir()} == {"a": "2", "c": "2", "mine": "mine"}
    (folder / "sub/a").write_text("edited")
    for texts in ({"a": "3"}, {"c": "3"}, {"a": "2", "mine": "3"}):
        with pytest.raises(UsageError, match="which Cairn did not make"):
            put(**texts)
    assert (folder / "sub/a").read_text() == "edited"
    assert (folder / "sub/mine").read_text() == "mine"


def test_one_run_at_a_time_writes_into_a_folder(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from cairn import owned\nwith owned.alone_in(pathlib.Path(sys.argv[1])): pass"
    )
    other = [sys.executable, "-c", program, str(tmp_path / "results")]
    with owned.alone_in(tmp_path / "results"):
        done = subprocess.run(other, capture_output=True, text=True, check=False)
        assert "UsageError: another run is writing into" in done.stderr
    subprocess.run(other, check=True)
