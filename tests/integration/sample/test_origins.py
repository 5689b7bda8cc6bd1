"""Origins become real git repositories, the same ones everywhere."""

import hashlib
import os
import tarfile
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from cairn import process
from cairn.errors import CairnError, NetworkError, SourceError, UsageError
from cairn.sources.origins.materialize import SdistOrigin, TreeOrigin, materialize

REPOS = Path(__file__).resolve().parents[3] / "external-builds" / "sample" / "repos"
NAMES = ("cudakit", "torch", "torchaudio", "torchvision", "triton")
SAMPLE = tuple(TreeOrigin(name=name, path=REPOS / name) for name in NAMES)


def git(repository: Path, *arguments: str) -> str:
    return process.run(["git", *arguments], cwd=repository, confined=False).output.strip()


def refs(repositories: Mapping[str, Path]) -> dict[str, str]:
    return {name: git(path, "show-ref") for name, path in repositories.items()}


def clone(repository: Path, target: Path, *options: str) -> Path:
    allow = ["-c", "protocol.file.allow=always"]
    process.run(["git", *allow, "clone", "--quiet", *options, str(repository), str(target)], confined=False)
    return target


class TestSample:
    def test_the_same_in_every_folder_and_again(self, tmp_path: Path) -> None:
        first = materialize(SAMPLE, tmp_path / "one")
        before = {name: path.stat().st_ino for name, path in first.items()}
        assert refs(materialize(SAMPLE, tmp_path / "zwei drei é")) == refs(first)
        again = materialize(SAMPLE, tmp_path / "one")
        assert {name: path.stat().st_ino for name, path in again.items()} == before

    def test_neighbours_come_along(self, tmp_path: Path) -> None:
        materialize(SAMPLE[1:2], tmp_path)
        assert {path.name for path in tmp_path.glob("*.git")} == {f"{name}.git" for name in NAMES}

    def test_the_newest_commit_is_the_tree_on_disk(self, tmp_path: Path) -> None:
        for name, repository in materialize(SAMPLE, tmp_path / "cache").items():
            copy = clone(repository, tmp_path / name)
            tree = REPOS / name / "tree"
            files = [p for p in tree.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
            assert files
            for path in files:
                assert (copy / path.relative_to(tree)).read_bytes() == path.read_bytes()

    def test_git_finds_nothing_wrong(self, tmp_path: Path) -> None:
        for repository in materialize(SAMPLE, tmp_path).values():
            git(repository, "fsck", "--strict", "--no-dangling")

    def test_every_commit_brings_something(self, tmp_path: Path) -> None:
        for repository in materialize(SAMPLE, tmp_path).values():
            trees = {}
            for line in git(repository, "log", "--all", "--reverse", "--format=%H %T %P").splitlines():
                commit, tree, *parents = line.split()
                assert tree not in [trees[parent] for parent in parents]
                trees[commit] = tree
            assert len(trees) >= 2

    @pytest.mark.parametrize("branch", ["nightly", "main", "release/2.9"])
    def test_submodules_are_beside_their_parent(self, tmp_path: Path, branch: str) -> None:
        origin = materialize(SAMPLE, tmp_path / "a b")["torch"]
        copy = clone(origin, tmp_path / "torch", "--branch", branch, "--recurse-submodules")
        assert (copy / "third_party" / "cudakit" / "src" / "fill.cu").is_file()

    def test_pins_name_commits_that_are_there(self, tmp_path: Path) -> None:
        made = materialize(SAMPLE, tmp_path)
        for branch in ("nightly", "release/2.9"):
            pin = git(made["torch"], "show", f"{branch}:.ci/docker/ci_commit_pins/triton.txt")
            assert git(made["triton"], "cat-file", "-t", pin) == "commit"
        for line in git(made["torch"], "show", "release/2.9:related_commits").splitlines():
            if not line or line.startswith("#"):
                continue
            _, _, project, branch, commit, origin = line.split("|")
            assert origin == f"../{project}.git"
            if project != "apex":
                assert git(made[project], "rev-parse", branch) == commit

    def test_one_commit_can_be_fetched_by_its_name(self, tmp_path: Path) -> None:
        origin = materialize(SAMPLE, tmp_path / "cache")["triton"]
        commit = git(origin, "rev-parse", "main~1")
        git(tmp_path, "init", "--quiet", "copy")
        git(tmp_path / "copy", "fetch", "--quiet", "--depth=1", f"file://{origin}", commit)
        assert git(tmp_path / "copy", "rev-parse", "FETCH_HEAD") == commit


class TestTree:
    HISTORY = """\
schema = "cairn.history/1"
author = "A <a@example.invalid>"
default_branch = "main"
branches = {{ main = "first" }}
[[commits]]
name = "first"
message = "Begin"
date = "2025-01-01T00:00:00+00:00"
write = {{ a = "{text}" }}
"""

    def origin(self, folder: Path, text: str) -> TreeOrigin:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "history.toml").write_text(self.HISTORY.format(text=text), encoding="utf-8")
        return TreeOrigin(name="thing", path=folder)

    def test_a_changed_description_is_written_anew(self, tmp_path: Path) -> None:
        for text in ("one", "two"):
            made = materialize([self.origin(tmp_path / "x", text)], tmp_path / "cache")
            assert git(made["thing"], "show", "main:a") == text
        assert sorted(p.name for p in (tmp_path / "cache").iterdir()) == ["origins.lock", "x.git"]

    def test_a_half_written_repository_is_written_again(self, tmp_path: Path) -> None:
        origin = self.origin(tmp_path / "x", "one")
        folder = tmp_path / "cache" / "x.git"
        folder.mkdir(parents=True)
        (folder / "HEAD").write_text("nonsense")
        assert git(materialize([origin], tmp_path / "cache")["thing"], "show", "main:a") == "one"

    def test_a_failure_leaves_nothing(self, tmp_path: Path) -> None:
        self.origin(tmp_path / "kit", "one")
        origin = self.origin(tmp_path / "x", "{commit:kit:gone}")
        with pytest.raises(UsageError, match="kit has no branch or tag 'gone'"):
            materialize([origin], tmp_path / "cache")
        assert sorted(p.name for p in (tmp_path / "cache").iterdir()) == ["kit.git", "origins.lock"]

    def test_a_circle_is_refused(self, tmp_path: Path) -> None:
        self.origin(tmp_path / "kit", "{commit:x:main}")
        with pytest.raises(SourceError, match="x -> kit -> x"):
            materialize([self.origin(tmp_path / "x", "{commit:kit:main}")], tmp_path / "cache")

    def test_two_at_once_are_safe(self, tmp_path: Path) -> None:
        origin, failures = self.origin(tmp_path / "x", "one"), []

        def write() -> None:
            try:
                assert git(materialize([origin], tmp_path / "cache")["thing"], "show", "main:a") == "one"
            except (AssertionError, CairnError, OSError) as error:
                failures.append(error)

        threads = [threading.Thread(target=write) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures

    def test_a_persons_git_configuration_changes_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        origin = self.origin(tmp_path / "x", "one\\r\\n")
        plain = git(materialize([origin], tmp_path / "plain")["thing"], "rev-parse", "main")
        hooks = tmp_path / "hooks"
        hooks.mkdir()
        (hooks / "reference-transaction").write_text("#!/bin/sh\nexit 1\n")
        (hooks / "reference-transaction").chmod(0o755)
        (tmp_path / "gitconfig").write_text(
            f"[core]\nautocrlf = true\nhooksPath = {hooks}\n[commit]\ngpgSign = true\n[tag]\ngpgSign = true\n"
            "[gpg]\nprogram = /bin/false\n[init]\ndefaultBranch = trunk\ndefaultObjectFormat = sha256\n"
        )
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
        monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
        monkeypatch.setenv("GIT_AUTHOR_NAME", "Somebody")
        made = materialize([origin], tmp_path / "configured")["thing"]
        # A confined program is kept from the file that the variable names: git would end with an error here.
        for name in ("GIT_DIR", "GIT_CONFIG_GLOBAL"):
            monkeypatch.delenv(name)
        assert git(made, "rev-parse", "main") == plain
        assert git(made, "symbolic-ref", "HEAD") == "refs/heads/main"


class TestSdist:
    SETUP = "import pathlib\npathlib.Path({marker!r}).touch()\nraise SystemExit('was run')\n"
    METADATA = "Metadata-Version: 2.1\nName: made-thing\nVersion: 1.5\n"

    @pytest.fixture
    def marker(self, tmp_path: Path) -> Path:
        return tmp_path / "setup.py was run"

    @pytest.fixture
    def sdist(self, tmp_path: Path, marker: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """An sdist in a folder that is all of pip's world; its setup.py must not be run."""
        root = tmp_path / "made_thing-1.5"
        root.mkdir()
        (root / "setup.py").write_text(self.SETUP.format(marker=str(marker)))
        (root / "PKG-INFO").write_text(self.METADATA)
        (root / "kernel.cu").write_text("// a kernel\n")
        path = tmp_path / "links" / "made_thing-1.5.tar.gz"
        path.parent.mkdir()
        with tarfile.open(path, "w:gz") as archive:
            archive.add(root, root.name)
        for name in [n for n in os.environ if n.startswith("PIP_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(path.parent))
        return path

    def origin(self, sdist: Path, requirement: str = "made-thing==1.5") -> SdistOrigin:
        digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
        return SdistOrigin(name="thing", requirement=requirement, sha256=digest)

    def test_it_becomes_a_repository_without_being_run(
        self, tmp_path: Path, sdist: Path, marker: Path
    ) -> None:
        origin = self.origin(sdist)
        made = materialize([origin], tmp_path / "c é")["thing"]
        assert git(made, "ls-tree", "-r", "--name-only", "v1.5").split() == [
            "PKG-INFO",
            "kernel.cu",
            "setup.py",
        ]
        assert git(made, "rev-parse", "main") == git(made, "rev-parse", "v1.5^{commit}")
        assert not marker.exists()

    @pytest.mark.parametrize("named", ['"setup"\nbackend-path = ["."]', '"flit_core.buildapi"'])
    def test_nor_is_a_backend_that_it_brings_or_names(
        self, tmp_path: Path, sdist: Path, marker: Path, named: str
    ) -> None:
        (root := tmp_path / "made_thing-1.5").joinpath("pyproject.toml").write_text(
            f"[build-system]\nrequires = []\nbuild-backend = {named}\n"
        )
        with tarfile.open(sdist, "w:gz") as archive:
            archive.add(root, root.name)
        made = materialize([self.origin(sdist)], tmp_path / "cache")["thing"]
        assert "pyproject.toml" in git(made, "ls-tree", "-r", "--name-only", "v1.5")
        assert not marker.exists()

    def test_it_is_fetched_once(self, tmp_path: Path, sdist: Path) -> None:
        origin = self.origin(sdist)
        first = refs(materialize([origin], tmp_path / "cache"))
        sdist.unlink()
        assert refs(materialize([origin], tmp_path / "cache")) == first

    def test_another_hash_is_refused(self, tmp_path: Path, sdist: Path, marker: Path) -> None:
        origin = self.origin(sdist)
        with tarfile.open(sdist, "w:gz") as archive:
            archive.add(tmp_path / "made_thing-1.5", "made_thing-1.5-changed")
        with pytest.raises(SourceError, match="its sha256 differs"):
            materialize([origin], tmp_path / "cache")
        assert not list((tmp_path / "cache").glob("*.git"))
        assert not marker.exists()

    def test_an_unknown_version_is_a_clear_error(self, tmp_path: Path, sdist: Path) -> None:
        with pytest.raises(NetworkError, match=r"could not fetch the sdist of made-thing==9: ERROR: "):
            materialize([self.origin(sdist, "made-thing==9")], tmp_path / "cache")
