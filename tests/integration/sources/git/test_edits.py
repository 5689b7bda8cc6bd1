"""Which files are not as the commit has them that is checked out."""

from pathlib import Path

from cairn.sources.git import repository
from helpers.sources import git


def test_edits_are_what_git_has_otherwise_and_new_modules(tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    for name in ("test_a.py", "test_b.py", "test_c.py"):
        (tmp_path / "test" / name).write_text("def test(): pass\n", encoding="utf-8")
    assert repository.edits_at(tmp_path) == ()
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "tests")
    assert repository.edits_at(tmp_path) == ()
    (tmp_path / "test/test_a.py").write_text("def test(): assert True\n", encoding="utf-8")
    (tmp_path / "test/test_b.py").unlink()
    (tmp_path / "test/test_d.py").touch()
    (tmp_path / "test/results.xml").touch()
    assert repository.edits_at(tmp_path) == ("test/test_a.py", "test/test_b.py", "test/test_d.py")
