"""Patch files put on a checkout: compared by what they change, placed where TheRock's layout says."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.cli.main import main
from cairn.errors import SourceError
from cairn.sources.checkout import local_work
from cairn.sources.checkout.checkout import hipify_checkout
from cairn.sources.checkout.describe import describe
from cairn.sources.git.repository import root_at
from cairn.sources.manifest import restore
from cairn.sources.patches import apply
from cairn.stack import Project
from helpers.patches import HIPIFY, UPSTREAM, allowed, audit, outcomes
from helpers.sources import Bench, Saved, Upstream, dropped_ref


def numbers(**changed: str) -> str:
    """Sixty lines, of which some are changed."""
    return "".join(changed.get(f"n{number}", str(number)) + "\n" for number in range(1, 61))


@pytest.fixture
def long(bench: Bench, upstream: Upstream, saved: Saved) -> Bench:
    """A checkout of a torch with a file that has room for several hunks."""

    def make() -> None:
        upstream.commit("torch", {"src/long.py": numbers()}, "Add a long file")
        bench()

    saved.bring("long", make)
    return bench


def patch_of(bench: Bench, folder: Path, *args: str, part: str = "") -> None:
    """What plain git writes of the last commit, which is then taken back."""
    at = ("-C", part) if part else ()
    bench.git(*at, "format-patch", "--quiet", "-1", *args, "-o", str(folder))
    bench.git(*at, "reset", "--quiet", "--hard", "HEAD~1")


def test_an_amended_patch_is_not_there_already(long: Bench, tmp_path: Path) -> None:
    long.commit("src/long.py", numbers(n10="ten"), "Fix")
    date = long.git("log", "-1", "--format=%aD")
    patch_of(long, tmp_path / "first")
    assert outcomes(long, tmp_path / "first") == {"0001-Fix.patch": "applied"}
    long.git("reset", "--quiet", "--hard", HIPIFY)
    long.commit("src/long.py", numbers(n10="ten", n50="fifty"), "Fix")
    long.git("commit", "--quiet", "--amend", "--no-edit", f"--date={date}")
    patch_of(long, tmp_path / "second")
    outcomes(long, tmp_path / "first")
    assert outcomes(long, tmp_path / "second") == {"0001-Fix.patch": "applied"}
    assert (long.path / "src/long.py").read_text() == numbers(n10="ten", n50="fifty")
    assert outcomes(long, tmp_path / "second") == {"0001-Fix.patch": "there already"}


def test_an_amended_patch_that_does_not_fit_names_the_commit_it_was(long: Bench, tmp_path: Path) -> None:
    old = long.commit("src/long.py", numbers(n10="ten"), "Fix")
    date = long.git("log", "-1", "--format=%aD")
    long.git("reset", "--quiet", "--hard", HIPIFY)
    long.commit("src/long.py", numbers(n10="TEN"), "Fix")
    long.git("commit", "--quiet", "--amend", "--no-edit", f"--date={date}")
    patch_of(long, tmp_path / "patches")
    long.git("reset", "--quiet", "--hard", old)
    with pytest.raises(SourceError, match=rf"long\.py, hunk 1 of 1, line 7.* amended since {old[:12]}"):
        outcomes(long, tmp_path / "patches")
    assert long.git("rev-parse", "HEAD") == old


@pytest.mark.parametrize("options", [(), ("-U8",), ("--no-renames",), ("--patience", "-M")])
def test_the_same_change_written_otherwise_is_there_already(
    long: Bench, tmp_path: Path, options: tuple[str, ...]
) -> None:
    long.git("mv", "src/long.py", "src/renamed.py")
    long.commit("src/renamed.py", numbers(n10="ten"), "Rename")
    long.commit("src/renamed.py", numbers(n10="TEN"), "Change it again")
    head = long.git("rev-parse", "HEAD")
    long.git("format-patch", "--quiet", *options, "-2", "-o", str(tmp_path / "patches"))
    assert set(outcomes(long, tmp_path / "patches").values()) == {"there already"}
    assert long.git("rev-parse", "HEAD") == head


def test_a_change_that_was_reverted_is_not_there(long: Bench, tmp_path: Path) -> None:
    long.commit("src/long.py", numbers(n10="ten"), "Fix")
    long.git("format-patch", "--quiet", "-1", "-o", str(tmp_path / "patches"))
    long.git("revert", "--no-edit", "HEAD")
    assert outcomes(long, tmp_path / "patches") == {"0001-Fix.patch": "applied"}
    assert (long.path / "src/long.py").read_text() == numbers(n10="ten")


def test_what_upstream_has_already_is_called_that(
    long: Bench, upstream: Upstream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long.commit("src/long.py", numbers(n10="ten"), "Fix")
    patch_of(long, tmp_path / "patches")
    long.commit("fresh.txt", "1\n", "Mine")
    patch_of(long, tmp_path / "patches", "--start-number=2")
    upstream.commit("torch", {"src/long.py": numbers(n10="ten")}, "Their own way to say it")
    long()
    assert main(["patches", "apply", str(long.path), str(tmp_path / "patches")]) == 0
    said, head = capsys.readouterr().out.splitlines(), long.git("rev-parse", "HEAD")
    assert said == [
        "0001-Fix.patch: upstream has it",
        f"0002-Mine.patch: {head[:12]}",
    ]
    assert long.git("rev-parse", "HEAD~1") == long.git("rev-parse", HIPIFY)
    assert outcomes(long, tmp_path / "patches") == {
        "0001-Fix.patch": "upstream has it",
        "0002-Mine.patch": "there already",
    }


def test_a_conflict_names_file_hunk_and_line(long: Bench, tmp_path: Path) -> None:
    long.commit("src/long.py", numbers(n10="ten", n50="fifty"), "Two hunks")
    patch_of(long, tmp_path / "patches")
    long.commit("src/long.py", numbers(n50="FIFTY"), "Mine")
    with pytest.raises(
        SourceError,
        match=r"0001-Two-hunks\.patch does not apply to the root: src/long\.py, hunk 2 of 2, line 47",
    ):
        outcomes(long, tmp_path / "patches")
    long.git("rm", "--quiet", "src/long.py")
    long.git("commit", "--quiet", "-m", "Gone")
    with pytest.raises(SourceError, match=r"there is no src/long\.py"):
        outcomes(long, tmp_path / "patches")
    assert not list(long.path.rglob("*.rej"))


def test_a_file_that_is_made_twice(long: Bench, tmp_path: Path) -> None:
    long.commit("new ü.txt", "1\n", "Make it")
    patch_of(long, tmp_path / "patches")
    long.commit("new ü.txt", "2\n", "Make another")
    with pytest.raises(SourceError, match=r"new ü\.txt exists already, and the patch creates it"):
        outcomes(long, tmp_path / "patches")


@pytest.mark.parametrize("crlf", ["patch", "file"])
def test_line_ends_are_called_line_ends(long: Bench, tmp_path: Path, crlf: str) -> None:
    long.commit("src/long.py", numbers(n10="ten"), "Fix")
    patch_of(long, tmp_path / "patches")
    if crlf == "patch":
        path = tmp_path / "patches/0001-Fix.patch"
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    else:
        long.commit("src/long.py", numbers().replace("\n", "\r\n"), "Windows")
    with pytest.raises(SourceError, match=r"src/long\.py has .*CRLF") as error:
        outcomes(long, tmp_path / "patches")
    assert ("the patch CRLF" in str(error.value)) == (crlf == "patch")
    assert error.value.tip is not None
    assert ("sed" in error.value.tip) == (crlf == "patch")


def test_a_patch_of_a_crlf_file_applies_to_it(long: Bench, tmp_path: Path) -> None:
    long.commit("win.txt", "a\r\nb\r\n", "Windows")
    long.commit("win.txt", "a\r\nB\r\n", "Fix")
    patch_of(long, tmp_path / "patches")
    assert outcomes(long, tmp_path / "patches") == {"0001-Fix.patch": "applied"}
    assert (long.path / "win.txt").read_bytes() == b"a\r\nB\r\n"


PLACES = {
    "pytorch/base/0001-Before.patch": "applied",
    "pytorch/hipified/0001-After.patch": "applied",
    "third_party/cudakit/base/0001-Kit-before.patch": "applied",
    "third_party/cudakit/hipified/0001-Kit-after.patch": "applied",
}


@pytest.fixture
def therocks(bench: Bench, saved: Saved) -> Path:
    """A patch set in TheRock's layout, for a torch that comes out clean."""
    folder = saved.place / "patches" / "2.9"
    kit = "third_party/cudakit"

    def make() -> None:
        bench.begin(hipify=False)
        device = '#include "driver_types.h"\n'
        bench.commit("src/device.cpp", device + "// before\n", "Before")
        patch_of(bench, folder / "pytorch/base")
        bench.commit("fill.cu", device + "// kit before\n", "Kit before", part=kit)
        patch_of(bench, folder / kit / "base", part=kit)
        bench()
        bench.commit("src/device.cpp", '#include "hip/driver_types.h" // after\n', "After")
        patch_of(bench, folder / "pytorch/hipified", "-U0")
        bench.commit("README", "kit after\n", "Kit after", part=kit)
        patch_of(bench, folder / kit / "hipified", part=kit)

    saved.bring("patches of TheRock's", make)
    return folder


def test_therocks_layout_is_read_as_it_is(bench: Bench, therocks: Path, tmp_path: Path) -> None:
    """Each patch file says by its folder which repository it is for, and whether before hipify or after."""
    for path in (therocks / "pytorch/hipified").iterdir():
        path.write_text(
            path.read_text()
            .replace("@@ -1 +1 @@", "@@ -1,2 +1,2 @@")
            .replace("// after\n", "// after\n // before\n")
        )
    assert outcomes(bench, therocks) == PLACES
    form = ("log", "--format=%s", f"{UPSTREAM}..HEAD")
    assert bench.git(*form).splitlines() == ["After", "DO NOT SUBMIT: HIPIFY", "Before"]
    kit = ("-C", "third_party/cudakit")
    assert bench.git(*kit, *form).splitlines() == ["Kit after", "DO NOT SUBMIT: HIPIFY", "Kit before"]
    # Hipify ran on what the base patches left, once.
    assert (
        bench.path / "src/device.cpp"
    ).read_text() == '#include "hip/driver_types.h" // after\n// before\n'
    assert bench.git("show", f"{HIPIFY}:src/device.cpp") == '#include "hip/driver_types.h"\n// before'
    assert bench.git("rev-parse", f"{HIPIFY}~2") == bench.git("rev-parse", UPSTREAM)
    assert bench.git("status", "--porcelain") == bench.git(*kit, "status", "--porcelain") == ""
    head = bench.git("rev-parse", "HEAD")

    assert set(outcomes(bench, therocks).values()) == {"there already"}
    assert bench().hipify_commit == bench.git("rev-parse", HIPIFY)  # and nothing moved
    assert bench.git("rev-parse", "HEAD") == head
    apply.export(bench.path, tmp_path / "back")
    bench(force=True, depth=1, hipify=False)
    bench(force=True)
    assert set(outcomes(bench, tmp_path / "back").values()) == {"applied"}
    assert bench.git("rev-parse", "HEAD^{tree}", f"{HIPIFY}^{{tree}}") == bench.git(
        "rev-parse", f"{head}^{{tree}}", f"{head}~1^{{tree}}"
    )


def test_patches_beneath_hipifys_commit_are_seen_by_every_command(bench: Bench, therocks: Path) -> None:
    """They are somebody's work, of which no origin knows: as those above it are."""
    (therocks / "pytorch/hipified/0001-After.patch").unlink()
    outcomes(bench, therocks)
    found = audit(bench)
    assert [(p.kind, p.path) for p in found.problems] == [
        ("commit", ""),
        ("commit", "third_party/cudakit"),
        ("commit", "third_party/cudakit"),
    ]
    entries = [allowed("0" * 40, patch=p.patch, path=p.path) for p in found.problems]
    assert audit(bench, *entries).problems == ()
    local = restore.local_work([describe(bench.request.project, bench.path)])
    assert [name.split(" has ")[0] for name in local] == ["torch", "torch, submodule third_party/cudakit"]
    root = root_at(bench.path)
    assert len(local_work.of(root).commits) == 3  # two beneath hipify's commits, and one above
    with pytest.raises(SourceError, match="Before"):
        bench("v2.9.0", hipify=False)


def test_dry_run_of_patches_beneath_changes_nothing(bench: Bench, therocks: Path) -> None:
    (therocks / "pytorch/hipified/0001-After.patch").unlink()
    before = bench.git("show-ref", "--head"), bench.git("-C", "third_party/cudakit", "show-ref", "--head")
    would = outcomes(bench, therocks, dry_run=True)
    assert (
        bench.git("show-ref", "--head"),
        bench.git("-C", "third_party/cudakit", "show-ref", "--head"),
    ) == before
    assert outcomes(bench, therocks) == would


def test_patches_for_hipified_files_wait_on_a_checkout_that_is_not(
    bench: Bench, therocks: Path, torch: Project
) -> None:

    (therocks / "pytorch/hipified/0001-After.patch").unlink()
    bench(hipify=False)
    first = outcomes(bench, therocks)
    assert first["pytorch/base/0001-Before.patch"] == "applied"
    assert first["third_party/cudakit/hipified/0001-Kit-after.patch"] == "waits for hipify"
    hipify_checkout(torch, bench.path)
    assert set(outcomes(bench, therocks).values()) == {"there already", "applied"}
    assert set(outcomes(bench, therocks).values()) == {"there already"}


def test_own_commits_are_not_lost_when_patches_go_beneath(bench: Bench, therocks: Path) -> None:
    mine = bench.commit("mine.txt", "1", "Mine")
    with pytest.raises(SourceError, match=rf"on top of hipify's, and there are patches .* {mine[:12]} Mine"):
        outcomes(bench, therocks)
    assert bench.git("rev-parse", "HEAD") == mine


def test_the_folder_above_a_patch_set_is_refused(bench: Bench, therocks: Path) -> None:
    with pytest.raises(SourceError, match=r"several patch sets, such as 2\.9") as error:
        outcomes(bench, therocks.parent)
    assert str(therocks) in (error.value.tip or "")


def test_a_persons_own_commit_that_a_patch_replaces_is_kept(
    bench: Bench, therocks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same change in other words: it goes beneath nothing, and its branch moves to the patch's commit."""
    kit = ("-C", "third_party/cudakit")
    bench.git(*kit, "switch", "--quiet", "-c", "mine")
    mine = bench.commit("README", "kit after\n", "In words of my own", part="third_party/cudakit")
    (therocks / "pytorch/hipified/0001-After.patch").unlink()
    assert set(outcomes(bench, therocks).values()) == {"applied"}
    assert bench.git(*kit, "log", "-1", "--format=%s", "mine") == "Kit after"
    said = capsys.readouterr().err
    assert "In words of my own" in said
    assert bench.git(*kit, "rev-parse", dropped_ref(said)) == mine
