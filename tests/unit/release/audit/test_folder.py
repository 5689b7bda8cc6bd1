"""What only a folder can have: links, hidden files, names that are no text, and files that cannot be read."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cairn import files
from cairn.cli.main import main
from cairn.release.audit.audit import audit
from cairn.release.audit.inventory import AuditReport
from cairn.store.folder import LocalStore
from helpers.release import make_wheel


def said(report: AuditReport) -> str:
    return "\n".join(problem.said for problem in report.problems)


def test_links_and_hidden_files_are_named_wherever_they_are(folder: LocalStore, tmp_path: Path) -> None:
    report = audit(folder, hashes=True)
    assert report.good
    assert report.keys["foreign"].count == report.keys["temporary"].count == 0
    (tmp_path / "secret").write_bytes(b"secret")
    (folder.path / "release" / "link.html").symlink_to(tmp_path / "secret")
    (folder.path / "release" / "simple" / "evil").symlink_to(tmp_path)
    (folder.path / "files" / ".htaccess").write_bytes(b"")
    (folder.path / ".git").mkdir()
    (folder.path / ".git" / "config").write_bytes(b"")
    os.mkfifo(folder.path / "release" / "pipe")  # which does not stop the audit
    report = audit(folder, hashes=True)
    for name in ("release/link.html is a link", "release/simple/evil is a link"):
        assert name in said(report)
    for name in ("files/.htaccess is a link, or hidden", ".git/config is a link, or hidden"):
        assert name in said(report)
    assert {"release/link.html", "release/simple/evil"} <= set(report.keys["foreign"].names)


@pytest.mark.parametrize("hashes", [False, True])
def test_a_file_that_became_a_link_or_a_folder_is_missing(
    folder: LocalStore, tmp_path: Path, *, hashes: bool
) -> None:
    (path,) = folder.path.glob("files/*/*/torch-2.9.0-py3-none-any.whl")
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    page = folder.path / "release" / "simple" / "torch" / "index.html"
    page.unlink()
    page.mkdir()
    found = said(audit(folder, hashes=hashes))
    assert "torch-2.9.0-py3-none-any.whl" in found
    assert "torch/index.html is missing" in found


def test_what_a_killed_writer_left_is_temporary_and_collected_once_it_is_old(folder: LocalStore) -> None:
    with files.writing_beside(folder.path / "release" / "state.json") as part:
        left = part.with_name(part.name.replace("state", "stated"))
        left.write_bytes(b"half")
        part.write_bytes((folder.path / "release" / "state.json").read_bytes())
    report = audit(folder)
    assert report.good
    assert report.keys["temporary"].count == 1
    at = ["--store", str(folder.path)]
    assert main(["index", "gc", *at]) == 0
    assert left.exists()
    os.utime(left, (0, 0))
    assert main(["index", "gc", *at, "--dry-run"]) == 0
    assert left.exists()
    assert main(["index", "gc", *at]) == 0
    assert not left.exists()


def test_a_name_that_is_no_text_is_named_all_the_same(
    folder: LocalStore, capsys: pytest.CaptureFixture[str]
) -> None:
    name = os.fsdecode(b"caf\xe9.whl")
    try:
        (folder.path / "files" / name).write_bytes(b"")
    except OSError:
        pytest.skip("this file system takes names in UTF-8 alone")
    assert "files/caf\\udce9.whl is not of a store" in said(audit(folder, hashes=True))
    assert main(["index", "check", "--store", str(folder.path)]) == 9
    assert "caf" in capsys.readouterr().out
    assert main(["index", "check", "--store", str(folder.path), "--json"]) == 9
    json.loads(capsys.readouterr().out)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_cannot_be_read_is_a_problem_and_not_the_end(folder: LocalStore) -> None:
    page = folder.path / "release" / "simple" / "torch" / "index.html"
    page.chmod(0)
    assert "release/simple/torch/index.html cannot be read" in said(audit(folder))
    page.chmod(0o644)
    (folder.path / "files").chmod(0)
    try:
        assert not audit(folder).good
    finally:
        (folder.path / "files").chmod(0o755)


def test_the_commands_tell_programs_and_people(
    folder: LocalStore, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    at = ["--store", str(folder.path)]
    assert main(["index", "check", *at, "--hashes"]) == 0
    out = capsys.readouterr().out
    assert "release is what its generation 3 says" in out
    assert "live " in out
    assert main(["index", "check", *at, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["problems"], report["indexes"]) == ([], {"staging": 5, "release": 3})
    (folder.path / "release" / "simple" / "torch" / "index.html").write_bytes(b"evil")
    assert main(["index", "check", *at, "--index", "staging"]) == 0
    assert main(["index", "check", *at]) == 9
    captured = capsys.readouterr()
    assert "release/simple/torch/index.html does not say what the generation says" in captured.out
    assert "has 1 problem" in captured.err
    assert "cairn index repair" in captured.err
    assert main(["index", "repair", *at]) == 0
    assert "release: the pages of 4 projects say what is current" in capsys.readouterr().out
    assert main(["index", "check", *at]) == 0
    assert main(["index", "check", *at, "--index", "nightly"]) == 9
    make_wheel(tmp_path, "a", "1.0")
    assert main(["index", "check", "--store", str(tmp_path / "none")]) == 9
