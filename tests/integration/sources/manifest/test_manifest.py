"""A manifest: only what everybody can have, made again elsewhere to the last byte, compared with another."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cairn.cli import main as program
from cairn.formats.zip import deflate
from helpers import stacks
from helpers.sources import Saved, Upstream, git


@dataclass(frozen=True)
class Desk:
    """The `cairn` command at work in a folder."""

    saved: Saved
    folder: Path
    upstream: Upstream
    read: Callable[[], tuple[str, str]]

    @property
    def sources(self) -> Path:
        return self.folder / "sources"

    def run(self, *words: str | Path, code: int = 0) -> str:
        try:
            ended = program.main([str(word) for word in words])
        except SystemExit as refused:  # of the command line itself
            ended = int(refused.code or 0)
        assert ended == code
        out, err = self.read()
        assert "Traceback" not in err
        return out if code == 0 else err

    def begin(self) -> None:
        """Check out for the first time, before upstream goes on."""
        self.saved.bring("desk", self.checkout)

    def checkout(self, *words: str) -> None:
        self.run("checkout", "all", *self.stack, "--root-checkout-dir", self.sources, *words)

    @property
    def stack(self) -> tuple[str, str]:
        return ("--stack", str(self.folder / "stack.toml"))

    def create(self, name: str, *words: str, code: int = 0) -> str:
        place = ("--root-checkout-dir", self.sources, "--output", self.folder / name)
        return self.run("manifest", "create", *self.stack, *place, *words, code=code)

    def manifest(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())


@pytest.fixture
def desk(saved: Saved, upstream: Upstream, capsys: pytest.CaptureFixture[str]) -> Desk:
    upstream.create("torchvision", {"version.txt": "0.24.0\n", "a.cu": "cudaFree();\n"})
    folder = saved.place / "dësk of mine"
    folder.mkdir()
    torch, origin = stacks.torch(upstream.origin("torch")), upstream.origin("torchvision")
    more = 'hipify = "at-build"\nneeds = ["torch"]'
    vision = stacks.project("vision", origin, more, distribution="torchvision", folder="pytorch_vision")
    (folder / "stack.toml").write_text(stacks.stack(torch, vision, name="mini"))

    def read() -> tuple[str, str]:
        captured = capsys.readouterr()
        return captured.out, captured.err

    return Desk(saved, folder, upstream, read)


def test_it_freezes_every_input(desk: Desk) -> None:
    desk.begin()
    desk.create("m.json", "--targets", "gfx1100,gfx942", "--rocm-version", "7.10.0", "--python", "3.11,3.12")
    frozen = desk.manifest("m.json")
    torch, vision = frozen["projects"]
    checkout = desk.sources / "pytorch"
    assert torch["commit"] == git(checkout, "rev-parse", "THEROCK_UPSTREAM_DIFFBASE")
    assert torch["tree"] == git(checkout, "rev-parse", "THEROCK_HIPIFY_DIFFBASE^{tree}")
    assert torch["submodules"][0]["path"] == "third_party/cudakit"
    assert (torch["hashtag"], torch["hipify"], vision["hipify"]) == ("main", "build_amd", "at-build")
    assert (frozen["sdk_version"], frozen["pythons"]) == ("7.10.0", ["3.11", "3.12"])
    assert sorted(frozen["targets"]) == ["gfx1100", "gfx942"]
    assert frozen["toolchain"]["python"]
    assert frozen["toolchain"]["deflate"] == deflate.engine()


def test_elsewhere_it_is_made_again_with_the_same_trees_and_the_same_manifest(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.begin()
    desk.create("m.json")
    desk.upstream.commit("torch", {"version.txt": "2.9.9\n"}, "Moved on")
    desk.upstream.commit("torchvision", {"version.txt": "0.25.0\n"}, "Moved on too")
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "the cache of another"))
    shutil.rmtree(desk.sources)
    said = desk.run(
        "manifest", "checkout", desk.folder / "m.json", "--root-checkout-dir", tmp_path / "theirs"
    )
    for project in desk.manifest("m.json")["projects"]:
        assert f"{project['name']}: tree {project['tree']}" in said
    # In the folders that `cairn checkout` uses, without the stack too.
    assert sorted(path.name for path in (tmp_path / "theirs").iterdir()) == ["pytorch", "pytorch_vision"]
    assert (tmp_path / "theirs/pytorch/version.txt").read_text() == "2.9.0a0\n"
    # Builds write HEAD into wheels: it is upstream's commit, and what hipify did is not committed.
    torch = desk.manifest("m.json")["projects"][0]
    assert git(tmp_path / "theirs/pytorch", "rev-parse", "HEAD") == torch["commit"]
    assert git(tmp_path / "theirs/pytorch", "status", "--porcelain")
    theirs = ("--root-checkout-dir", tmp_path / "theirs")
    assert "as frozen" in desk.run("manifest", "verify", desk.folder / "m.json", *theirs)
    # Where the stack's own folders are used, freezing them again gives the same bytes.
    again = ("--root-checkout-dir", desk.sources)
    desk.run("manifest", "checkout", desk.folder / "m.json", *desk.stack, *again)
    desk.create("again.json")
    assert desk.manifest("again.json") == desk.manifest("m.json")
    assert "as frozen" in desk.run("manifest", "verify", desk.folder / "m.json", *desk.stack, *again)


def test_what_hipify_makes_and_git_ignores_is_in_the_tree_committed_or_not(
    desk: Desk, tmp_path: Path
) -> None:
    desk.upstream.commit("torch", {".gitignore": "*.hip\nhip/\n"}, "Ignore what hipify makes")
    desk.checkout()
    assert git(desk.sources / "pytorch", "ls-files", "--cached", "--ignored", "--exclude-standard")
    desk.create("m.json")
    # It compares the trees.
    desk.run("manifest", "checkout", desk.folder / "m.json", "--root-checkout-dir", tmp_path / "theirs")


def test_a_tree_that_comes_out_otherwise_is_an_error_that_names_both(desk: Desk, tmp_path: Path) -> None:
    desk.begin()
    desk.create("m.json")
    frozen = desk.manifest("m.json")
    tree, frozen["projects"][0]["tree"] = frozen["projects"][0]["tree"], "1" * 40
    (desk.folder / "m.json").write_text(json.dumps(frozen))
    place = ("--root-checkout-dir", tmp_path / "theirs")
    err = desk.run("manifest", "checkout", desk.folder / "m.json", *place, code=4)
    assert f"torch: tree is {tree}, expected {'1' * 40}" in err


def test_local_edits_and_commits_are_refused_unless_allowed(desk: Desk, tmp_path: Path) -> None:
    desk.begin()
    (desk.sources / "pytorch/third_party/plain/plain.h").write_text("edited")
    git(desk.sources / "pytorch_vision", "commit", "--quiet", "--allow-empty", "-m", "Nothing")
    (desk.sources / "pytorch_vision/a.cu").write_text("mine")
    git(desk.sources / "pytorch_vision", "commit", "--quiet", "--all", "-m", "Mine")
    err = desk.create("m.json", code=4)
    assert "torch, submodule third_party/plain has edits or commits above THEROCK_HIPIFY_DIFFBASE" in err
    assert "vision has edits or commits" in err
    assert not (desk.folder / "m.json").exists()
    desk.create("m.json", "--allow-local")
    place = ("--root-checkout-dir", tmp_path / "theirs")
    err = desk.run("manifest", "checkout", desk.folder / "m.json", *place, code=4)
    assert "torch: tree of third_party/plain is" in err
    assert "vision: tree is" in err


def test_commits_that_their_origin_does_not_have_are_refused(desk: Desk) -> None:
    desk.begin()
    vision = desk.sources / "pytorch_vision"
    git(vision, "commit", "--quiet", "--allow-empty", "-m", "Mine")
    mine = git(vision, "rev-parse", "HEAD")
    for tag in ("THEROCK_UPSTREAM_DIFFBASE", "THEROCK_HIPIFY_DIFFBASE"):
        git(vision, "tag", "--force", tag)
    err = desk.create("m.json", "--allow-local", code=4)
    assert f"vision: {desk.upstream.origin('torchvision')} does not have {mine}" in err


def test_commits_of_submodules_count_and_a_mirror_is_no_witness(desk: Desk) -> None:
    desk.begin()
    origin = Path(desk.upstream.origin("cudakit"))
    shutil.rmtree(origin)
    git(desk.folder, "init", "--quiet", "--bare", str(origin))
    err = desk.create("m.json", code=4)
    assert "torch, submodule third_party/cudakit: " in err
    assert "vision" not in err


def test_a_repository_without_an_origin_does_not_vouch_for_itself(desk: Desk) -> None:
    (desk.sources / "pytorch").mkdir(parents=True)
    git(desk.sources / "pytorch", "init", "--quiet")
    (desk.sources / "pytorch/version.txt").write_text("1\n")
    git(desk.sources / "pytorch", "add", "--all")
    git(desk.sources / "pytorch", "commit", "--quiet", "-m", "Mine")
    assert "torch: no origin does not have" in desk.create("m.json", "--allow-local", code=4)


def test_no_token_is_in_a_manifest(desk: Desk, home: Path) -> None:
    from cairn.sources.git import command  # noqa: PLC0415 - only this test needs to empty its cache

    base = f"{desk.upstream.folder}/"
    (home / ".gitconfig").write_text(f'[url "{base}"]\n\tinsteadOf = https://user:t0ken@private.invalid/\n')
    more = f'[url "{base}"]\n\tinsteadOf = https://private.invalid/\n'
    (home / ".gitconfig").write_text((home / ".gitconfig").read_text() + more)
    text = (desk.folder / "stack.toml").read_text().replace(base, "https://user:t0ken@private.invalid/")
    (desk.folder / "stack.toml").write_text(text)
    command.connection_settings.cache_clear()
    desk.checkout()
    said = desk.create("m.json", "--json")
    command.connection_settings.cache_clear()
    assert "t0ken" not in said + (desk.folder / "m.json").read_text()
    assert desk.manifest("m.json")["projects"][1]["origin"] == "https://private.invalid/torchvision.git"


@pytest.fixture
def two(desk: Desk, saved: Saved) -> Desk:
    """Two manifests, a.json and b.json, with everything that can lie between."""

    def make() -> None:
        desk.checkout()
        desk.create("a.json", "--rocm-version", "7.10.0a20251124")
        kit = desk.upstream.commit("cudakit", {"README": "newer\n"}, "Newer kit")
        desk.upstream.bump_submodule("torch", "third_party/cudakit", kit)
        desk.upstream.commit("torch", {}, "Bump <script>alert('kit')</script> & more")
        desk.upstream.commit("torch", {"version.txt": "2.10.0a0\n"}, "Version \x1b[31mten")
        git(desk.upstream.work("torchvision"), "commit", "--quiet", "--amend", "-m", "Begin again")
        desk.upstream.commit("torchvision", {}, "More vision")
        desk.checkout()
        desk.create("b.json", "--rocm-version", "7.10.0a20251125")

    saved.bring("two manifests", make)
    return desk


def test_a_changelog_as_text(two: Desk) -> None:
    said = two.run("diff", two.folder / "a.json", two.folder / "b.json")
    lines = [line.strip() for line in said.splitlines()]
    assert "ROCm SDK: 7.10.0a20251124 → 7.10.0a20251125" in lines
    assert "version: 2.9.0a0 → 2.10.0a0" in lines
    assert any(line.startswith("torch: ") and line.endswith("(2 new)") for line in lines)
    assert any(line.startswith("vision: ") and line.endswith("(2 new, 1 dropped)") for line in lines)
    assert any(line.startswith("+ ") and "More vision (Up Stream, " in line for line in lines)
    assert any(line.startswith("- ") and "Begin torchvision" in line for line in lines)
    assert any(line.startswith("submodule third_party/cudakit: ") for line in lines)
    assert "\x1b" not in said
    said = two.run("diff", two.folder / "a.json", two.folder / "a.json")
    assert said.splitlines()[-1] == "nothing changed"


def test_a_changelog_as_json(two: Desk) -> None:
    said = two.run("diff", two.folder / "a.json", two.folder / "b.json", "--json")
    found = json.loads(said)
    torch = found["projects"][0]
    assert found["schema"] == "cairn.changelog/1"
    assert [c["subject"] for c in torch["commits"]][1] == "Bump <script>alert('kit')</script> & more"
    assert torch["commits"][0]["id"] == torch["after"] == two.manifest("b.json")["projects"][0]["commit"]
    assert [c["name"] for c in torch["submodules"]] == ["third_party/cudakit"]


def test_a_changelog_as_one_page_that_runs_nothing(two: Desk) -> None:
    page = two.folder / "page.html"
    two.run("diff", two.folder / "a.json", two.folder / "b.json", "--html", page)
    text = page.read_text()
    assert "Bump &lt;script&gt;alert(&#39;kit&#39;)&lt;/script&gt; &amp; more" in text
    assert "<script" not in text
    assert "src=" not in text
    assert list(two.folder.glob(".page.html*")) == []


def test_no_token_is_in_a_changelog(two: Desk) -> None:
    frozen = two.manifest("b.json")
    frozen["projects"][1]["origin"] = "https://user:t0k@n@private.invalid/vision?a=<b>"
    (two.folder / "b.json").write_text(json.dumps(frozen))
    page = two.folder / "page.html"
    files = (two.folder / "a.json", two.folder / "b.json", "--no-commits", "--html", page)
    said = two.run("diff", *files) + two.run("diff", *files, "--json") + page.read_text()
    assert "t0k" not in said
    assert "https://private.invalid/vision?a=&lt;b&gt;" in said


def test_a_changelog_needs_no_checkout_no_whole_mirror_and_no_origin_for_values(
    two: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(two.sources)
    cache = tmp_path / "the cache of another"
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(cache))
    said = two.run("diff", two.folder / "a.json", two.folder / "b.json")
    assert "More vision" in said
    assert all(".commits." in path.name for path in (cache / "mirrors").glob("*.git"))
    shutil.rmtree(two.upstream.folder)
    two.run("diff", two.folder / "a.json", two.folder / "b.json", "--no-commits")


def test_a_commit_that_is_gone_leaves_a_note(two: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    vision = Path(two.upstream.origin("torchvision"))
    git(vision, "reflog", "expire", "--expire=now", "--all")
    git(vision, "gc", "--quiet", "--prune=now")
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(two.folder / "another cache"))
    said = two.run("diff", two.folder / "a.json", two.folder / "b.json")
    assert "no commits to show: " in said
    assert "(2 new)" in said


def test_a_project_that_came_or_went(two: Desk) -> None:
    frozen = two.manifest("a.json")
    del frozen["projects"][1]
    (two.folder / "a.json").write_text(json.dumps(frozen))
    said = two.run("diff", two.folder / "a.json", two.folder / "b.json")
    assert "vision: none → " in said
    said = two.run("diff", two.folder / "b.json", two.folder / "a.json")
    assert any(line.startswith("vision: ") and line.endswith(" → none") for line in said.splitlines())


def test_what_is_no_manifest_is_one_line(desk: Desk) -> None:
    for text in ("", "{}", "[]", '{"schema": "cairn.manifest/2"}', '{"schema": 1}', "\0"):
        (desk.folder / "bad.json").write_text(text)
        err = desk.run("diff", desk.folder / "bad.json", desk.folder / "bad.json", code=2)
        assert err.count("error: ") == 1, text
    desk.run("manifest", "checkout", desk.folder / "none.json", "--root-checkout-dir", desk.sources, code=2)


def test_a_manifest_that_would_lead_elsewhere_is_refused(desk: Desk) -> None:
    names = {"name": "torch", "distribution": "torch", "hashtag": "main", "tree": "1" * 40}
    wrong = {
        "name": ("../../out", "/out", ""),
        "commit": ("main", ""),
        "checkout_dir": ("../out", "/out", "..\\out", "."),
    }
    for field, value in [(field, value) for field, values in wrong.items() for value in values]:
        project = names | {"origin": desk.upstream.origin("torch"), "commit": "1" * 40, field: value}
        frozen = {"schema": "cairn.manifest/1", "stack": "mini", "line": "main", "projects": [project]}
        frozen |= {"targets": ["cpu"], "pythons": ["3.11"], "platform": "linux_x86_64"}
        (desk.folder / "a.json").write_text(json.dumps(frozen))
        place = ("--root-checkout-dir", desk.folder / "theirs")
        err = desk.run("manifest", "checkout", desk.folder / "a.json", *place, code=2)
        assert repr(value) in err, field
        assert not (desk.folder / "theirs").exists(), (field, value)


def test_what_is_no_python(desk: Desk) -> None:
    for text in ("", "3.11,", "three", "cp311"):
        err = desk.create("m.json", "--python", text, code=2)
        assert "is not a valid version of Python" in err, text
