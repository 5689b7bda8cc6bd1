"""A whole stack: torch first, the others at the commits that it names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from cairn.cli import main as program
from cairn.errors import SourceError, UsageError
from cairn.sources import checkout_stack
from cairn.sources.checkout.checkout import CheckoutRequest
from cairn.sources.checkout.describe import Checkout
from cairn.sources.manifest import manifest
from cairn.sources.pins import choose_source
from cairn.stack import Origin, Project, Stack
from helpers import stacks
from helpers.sources import Bench, Saved, Upstream


@pytest.fixture
def vision(upstream: Upstream) -> Project:
    upstream.create("torchvision", {"version.txt": "0.24.0\n"})
    return Project(
        name="vision",
        distribution="torchvision",
        checkout_dir="pytorch_vision",
        origin=Origin(url=upstream.origin("torchvision")),
        hashtag="main",
        pin="related_commits",
        hipify="at-build",
        needs=("torch",),
    )


@pytest.fixture
def triton(upstream: Upstream) -> Project:
    upstream.create("triton", {"setup.py": ""})
    upstream.commit("triton", {"release": "3.5"}, "Release", branch="release/3.5.x")
    return Project(
        name="triton",
        distribution="triton",
        checkout_dir="triton",
        origin=Origin(url=upstream.origin("triton")),
        hashtag="main",
        pin="ci_commit_pins",
        version_file="",
    )


@pytest.fixture
def stack(upstream: Upstream, torch: Project, vision: Project, triton: Project, saved: Saved) -> Stack:
    def make() -> None:
        vision_pin = upstream.commit("torchvision", {"version.txt": "0.24.1\n"}, "Pinned")
        upstream.commit("torchvision", {"version.txt": "0.25.0\n"}, "Not pinned")
        triton_pin = upstream.commit("triton", {"a": "1"}, "Pinned")
        upstream.commit("triton", {"a": "2"}, "Not pinned")
        line = f"ubuntu|pytorch|torchvision|release/0.24|{vision_pin}|../torchvision.git\n"
        pins = {
            "related_commits": line,
            ".ci/docker/ci_commit_pins/triton.txt": f"{triton_pin}\n",
            ".ci/docker/triton_version.txt": "3.5.1\n",
        }
        upstream.commit("torch", pins, "Pin")

    saved.bring("a stack", make)
    torch = msgspec.structs.replace(torch, origin=Origin(url=upstream.origin("torch")), needs=("triton",))
    return Stack(name="mini", line="main", targets=("cpu",), projects=(triton, torch, vision))


@pytest.fixture
def checkouts(stack: Stack, saved: Saved) -> tuple[Checkout, ...]:
    """All projects of the stack, in the folder `src`."""
    return saved.bring("checkouts of a stack", lambda: check_out(stack, saved.place / "src"))


def check_out(
    stack: Stack, root: Path, *, names: Sequence[str] = (), hashtags: Mapping[str, str] | None = None
) -> tuple[Checkout, ...]:
    """Projects of a stack, all by default, checked out as `cairn checkout` does."""
    requests = [
        CheckoutRequest(
            project=p, checkout_dir=root / p.checkout_dir, hashtag=(hashtags or {}).get(p.name, "")
        )
        for p in stack.projects
        if not names or p.name in names
    ]
    return checkout_stack.checkout_stack(stack, requests)


def test_the_others_are_at_the_commits_that_torch_names(checkouts: tuple[Checkout, ...]) -> None:
    triton, torch, vision = checkouts
    assert [c.project.name for c in checkouts] == ["triton", "torch", "vision"]
    assert torch.notes == ()
    assert (triton.path / "a").read_text() == "1"
    assert vision.version == "0.24.1"
    assert triton.version is None
    assert vision.hipify_commit == vision.commit


def test_overrides_win_over_pins(stack: Stack, tmp_path: Path) -> None:
    done = check_out(stack, tmp_path / "src", hashtags={"vision": "main", "triton": "release/3.5.x"})
    assert done[2].version == "0.25.0"
    assert (tmp_path / "src/triton/release").exists()


def test_precedence_is_flag_then_pin_then_default(
    checkouts: tuple[Checkout, ...], vision: Project, tmp_path: Path
) -> None:
    torch_dir = checkouts[1].path
    pinned = choose_source(vision, default_origin="/default", torch_dir=torch_dir)
    assert (pinned.origin, pinned.because.startswith("pinned in")) == (vision.origin.url, True)
    flagged = choose_source(
        vision, default_origin="/default", origin="/mine", hashtag="x", torch_dir=torch_dir
    )
    assert (flagged.origin, flagged.hashtag) == ("/mine", "x")
    default = choose_source(vision, default_origin="/default", torch_dir=tmp_path / "no torch")
    assert (default.origin, default.hashtag) == ("/default", "main")


def test_a_required_pin_that_is_not_there_is_refused(bench: Bench, vision: Project) -> None:
    torch_dir = bench.begin(hipify=False, submodules=False).path
    assert choose_source(vision, default_origin="/d", torch_dir=torch_dir).hashtag == "main"
    with pytest.raises(SourceError, match="has no related_commits, so nothing names torchvision"):
        choose_source(vision, default_origin="/d", torch_dir=torch_dir, require_related_commit=True)
    (torch_dir / "related_commits").write_text(f"ubuntu|p|torchaudio|main|{'1' * 40}|https://h/audio\n")
    with pytest.raises(SourceError, match="does not name torchvision, only torchaudio"):
        choose_source(vision, default_origin="/d", torch_dir=torch_dir, require_related_commit=True)
    unpinned = choose_source(vision, default_origin="/d", torch_dir=torch_dir)
    assert (unpinned.hashtag, unpinned.note is not None) == ("main", True)


@pytest.mark.parametrize("required", [False, True])
def test_a_pin_of_another_system_is_not_passed_over_in_silence(
    bench: Bench, vision: Project, *, required: bool
) -> None:
    torch_dir = bench.begin(hipify=False, submodules=False).path
    (torch_dir / "related_commits").write_text(f"macos|p|torchvision|main|{'1' * 40}|https://h/vision\n")
    with pytest.raises(SourceError, match=r"does not name torchvision for .*; it has macos: 1{12}"):
        choose_source(vision, default_origin="/d", torch_dir=torch_dir, require_related_commit=required)
    named = choose_source(vision, default_origin="/d", hashtag="main", torch_dir=torch_dir)
    assert (named.origin, named.hashtag) == ("/d", "main")


def test_a_project_that_is_not_pinned_is_not_missed_among_pins(
    stack: Stack, checkouts: tuple[Checkout, ...]
) -> None:
    torch_dir = checkouts[1].path
    assert (torch_dir / "related_commits").exists()
    (again,) = check_out(stack, torch_dir.parent, names=["torch"])
    assert again.notes == ()
    assert choose_source(stack.project("torch"), default_origin="/d", torch_dir=torch_dir).note is None


def test_required_pins_where_there_is_no_torch(bench: Bench, vision: Project) -> None:
    with pytest.raises(SourceError, match="is not a torch checkout"):
        choose_source(vision, default_origin="/d", torch_dir=bench.path / "no", require_related_commit=True)


def test_the_release_branch_of_torchs_triton_version(
    checkouts: tuple[Checkout, ...], triton: Project, tmp_path: Path
) -> None:
    torch_dir = checkouts[1].path
    found = choose_source(triton, default_origin="/d", torch_dir=torch_dir, release=True)
    assert found.hashtag == "release/3.5.x"
    with pytest.raises(SourceError, match="is not a torch checkout"):
        choose_source(triton, default_origin="/d", torch_dir=tmp_path / "nowhere")
    with pytest.raises(UsageError, match="exclude each other"):
        choose_source(triton, default_origin="/d", hashtag="main", torch_dir=torch_dir, release=True)


def test_a_manifest_holds_until_something_changes(checkouts: tuple[Checkout, ...], tmp_path: Path) -> None:
    frozen = manifest.create(
        checkouts, stack="mini", line="main", targets=["cpu"], pythons=["3.11"], platform="linux_x86_64"
    )
    manifest.write(tmp_path / "manifest.json", frozen)
    read = manifest.read(tmp_path / "manifest.json")
    assert read == frozen
    assert read.digest() == frozen.digest()
    folders = {c.project.name: c.path for c in checkouts}
    assert manifest.verify(read, folders) == ()
    assert [p.commit for p in read.projects] == [c.commit for c in checkouts]
    (checkouts[1].path / "third_party/plain/plain.h").write_text("edited")
    (checkouts[2].path / "new.cpp").write_text("new")
    problems = manifest.verify(read, folders | {"triton": tmp_path / "nowhere"})
    assert [p.partition(" is ")[0] for p in problems[1:]] == [
        "torch: tree of third_party/plain",
        "vision: tree",
    ]
    assert "triton: " in problems[0]
    assert "no checkout given" in manifest.verify(read, {})[0]


def test_the_same_sources_elsewhere_have_the_same_digest(
    stack: Stack, checkouts: tuple[Checkout, ...], tmp_path: Path
) -> None:
    def digest(done: tuple[Checkout, ...]) -> str:
        return manifest.create(done, stack="m", line="l", targets=[], pythons=["p"], platform="q").digest()

    assert digest(checkouts) == digest(check_out(stack, tmp_path))


def two_lines(torch: str) -> str:
    return stacks.stack(stacks.torch(torch, 'lines.old.hashtag = "v2.9.0"'))


def run(*argv: str) -> int:
    """The `cairn checkout` command."""
    return program.main(["checkout", *argv])


def test_the_command_checks_out_a_line(
    upstream: Upstream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream.commit("torch", {"version.txt": "3.0.0\n"}, "Three")
    path = tmp_path / "stack.toml"
    path.write_text(two_lines(upstream.origin("torch")))
    assert run("all", "--stack", str(path), "--root-checkout-dir", str(tmp_path / "r"), "--line", "old") == 0
    assert (tmp_path / "r/pytorch/version.txt").read_text() == "2.9.0a0\n"
    assert run("torch", "--stack", str(path), "--checkout-dir", str(tmp_path / "t"), "--json") == 0
    out = capsys.readouterr().out
    assert '"version": "3.0.0"' in out
    assert run("origins", "--stack", str(path)) == 0


def test_bad_use_of_the_command_is_one_line(
    upstream: Upstream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "stack.toml"
    path.write_text(two_lines(upstream.origin("torch")))
    common = ("--stack", str(path), "--root-checkout-dir", str(tmp_path / "r"))
    assert run("all", *common, "--repo-hashtag", "main") == 2
    assert run("nothing", *common) == 2
    assert run("torch", *common, "--repo-hashtag", "mian") == 4
    assert run("torch", *common, "--gitrepo-origin", str(tmp_path / "nowhere")) == 4
    err = capsys.readouterr().err
    assert err.count("error: ") == 4
    assert "Traceback" not in err
    assert not (tmp_path / "r/pytorch").exists()
