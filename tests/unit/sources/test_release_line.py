from __future__ import annotations

import json
from pathlib import Path

import pytest

from cairn.build import job
from cairn.build.model import Job
from cairn.cli import binder, main
from cairn.cli.build import run as build_options
from cairn.cli.upstream import build_prod_wheels
from cairn.errors import UsageError
from cairn.sources import checkout_stack
from cairn.sources.worktree import journal
from cairn.stack import Line, Origin, Project, Stack
from helpers.sources import git

UP, ROCM = "https://example.org/pytorch/pytorch.git", "https://example.org/ROCm/pytorch.git"
TORCH = Project(
    name="torch",
    distribution="torch",
    checkout_dir="pytorch",
    origin=Origin(url=UP),
    hashtag="nightly",
    lines={
        "nightly": Line(hashtag="nightly"),
        "main": Line(hashtag="main"),
        "release/2.9": Line(hashtag="release/2.9", origin=Origin(url=ROCM)),
        "release/2.10": Line(hashtag="release/2.10", origin=Origin(url=ROCM)),
    },
)
VISION = Project(
    name="vision",
    distribution="torchvision",
    checkout_dir="vision",
    origin=Origin(url="https://example.org/pytorch/vision.git"),
    hashtag="nightly",
    lines={"release/2.9": Line(hashtag="release/0.24"), "release/2.10": Line(hashtag="release/0.25")},
)
TRITON = Project(
    name="triton", distribution="triton", checkout_dir="triton", origin=Origin(url="t"), hashtag="main"
)
STACK = Stack(name="s", line="nightly", targets=("cpu",), projects=(TRITON, TORCH, VISION))


def checkout(path: Path, hashtag: str, origin: str, *, noted: bool = True) -> Path:
    path.mkdir(parents=True)
    git(path, "init", "-q", "-b", "work" if noted else hashtag)
    (path / "version.txt").write_text("2.9.0\n")
    (path / "setup.py").write_text("")
    git(path, "add", ".")
    git(path, "commit", "-qm", "one")
    if noted:
        note = journal.Journal(
            project="torch", origin=origin, hashtag=hashtag, commit="0" * 40, phase="ready"
        )
        journal.write(path / ".git", note)
    else:
        git(path, "remote", "add", "origin", origin)
    return path


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize(
    ("hashtag", "origin", "line"),
    [
        ("release/2.9", ROCM, "release/2.9"),
        ("release/2.9", ROCM.removesuffix(".git"), "release/2.9"),
        ("release/2.9", UP, "release/2.9"),
        ("release/2.10", "https://example.org/me/pytorch", "release/2.10"),
        ("main", UP, "main"),
        ("nightly", UP, "nightly"),
        ("my-branch", UP, "nightly"),
        ("my-branch", "https://example.org/me/pytorch", "nightly"),
    ],
)
def test_the_line_follows_from_what_was_checked_out(
    hashtag: str, origin: str, line: str, *, noted: bool, tmp_path: Path
) -> None:
    folder = checkout(tmp_path / "t", hashtag, origin, noted=noted)
    assert checkout_stack.line_of(STACK, {"torch": folder, "triton": tmp_path / "none"}) == line


def test_a_pinned_commit_says_nothing_and_a_branch_says_more_than_an_origin(tmp_path: Path) -> None:
    torch = checkout(tmp_path / "t", "a" * 40, ROCM)
    vision = checkout(tmp_path / "v", "release/0.24", "https://example.org/pytorch/vision")
    assert checkout_stack.line_of(STACK, {"torch": torch, "vision": vision}) == "release/2.9"
    with pytest.raises(
        UsageError, match=r"may be of several release lines.*release/2\.10 or release/2\.9"
    ) as caught:
        checkout_stack.line_of(STACK, {"torch": torch})
    assert "--line" in (caught.value.tip or "")
    assert checkout_stack.line_of(STACK, {"torch": torch}, line="release/2.10") == "release/2.10"
    assert checkout_stack.line_of(STACK, {"torch": torch}, line="nightly") == "nightly"


def test_checkouts_of_two_lines_are_refused(tmp_path: Path) -> None:
    torch = checkout(tmp_path / "t", "release/2.9", ROCM)
    vision = checkout(tmp_path / "v", "release/0.25", "https://example.org/pytorch/vision")
    with pytest.raises(UsageError, match=r"torch is release/2\.9.*vision is release/0\.25"):
        checkout_stack.line_of(STACK, {"torch": torch, "vision": vision})


def test_a_line_that_the_checkouts_contradict_is_refused(tmp_path: Path) -> None:
    torch = checkout(tmp_path / "t", "release/2.9", ROCM)
    with pytest.raises(UsageError, match=r"--line nightly contradicts the checkouts: torch is release/2\.9"):
        checkout_stack.line_of(STACK, {"torch": torch}, line="nightly")
    with pytest.raises(UsageError, match="no line"):
        checkout_stack.line_of(STACK, {"torch": torch}, line="release/9")
    assert checkout_stack.line_of(STACK, {"torch": torch}, line="release/2.9") == "release/2.9"


def test_a_build_refuses_a_contradiction_before_it_begins(tmp_path: Path) -> None:
    torch = checkout(tmp_path / "t", "release/2.9", ROCM)
    wanted = Job(stack=STACK, checkouts={"torch": torch}, output_dir=tmp_path / "out", line="nightly")
    with pytest.raises(UsageError, match="--line nightly contradicts"):
        job.plans_of((wanted,))[0]


@pytest.mark.parametrize("command", ["build_prod_wheels.py", "cairn build"])
def test_the_manifest_of_a_build_names_the_line_of_the_checkouts(command: str, tmp_path: Path) -> None:
    stack = Path(__file__).parents[3] / "external-builds" / "pytorch"
    torch = checkout(tmp_path / "pytorch", "release/2.9", "https://github.com/ROCm/pytorch.git")
    given = ["--root-checkout-dir", str(tmp_path), "--output-dir", str(tmp_path / "out")]
    if command == "cairn build":
        words = ["build", "--dry-run", "--stack", str(stack), "--targets", "cpu", *given]
        options = main.make_parser().parse_args(words)
        wanted = build_options.job_of(binder.make(build_options.Run, options))
    else:
        words = ["build", "--pytorch-rocm-arch", "cpu", *given]
        options = build_prod_wheels.make_parser(stack / command).parse_args(words)
        wanted = build_prod_wheels._job(build_prod_wheels._request(options))
    request = job.plans_of((wanted,))[0][0].request
    assert request.checkouts == {"torch": torch}
    assert request.stack.line == "release/2.9"


def test_manifest_create_names_the_line_of_the_checkouts(tmp_path: Path) -> None:
    stack = Path(__file__).parents[3] / "external-builds" / "pytorch"
    origin = checkout(tmp_path / "origin", "release/2.9", "x", noted=False)
    root = tmp_path / "src"
    root.mkdir()
    git(root, "clone", "-q", str(origin), "pytorch")
    out = tmp_path / "manifest.json"
    place = ["--stack", str(stack), "--root-checkout-dir", str(root), "--output", str(out)]
    words = ["manifest", "create", *place, "--targets", "cpu"]
    assert main.main(words) == 0
    assert json.loads(out.read_text())["line"] == "release/2.9"
    assert main.main([*words, "--line", "nightly"]) == UsageError.exit_code
