"""`cairn build … --gpu`: what is chosen, and what is said before anything begins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cairn import stack as stacks
from cairn.pipeline import gpu_build
from helpers.hardware import RAPHAEL, RX7900, kernel_nodes
from helpers.program import Cairn

STACK = Path(__file__).resolve().parents[3] / "external-builds" / "pytorch"
SAMPLE = STACK.parent / "sample"


def test_what_nobody_named_is_chosen_and_told(cairn: Cairn, tmp_path: Path) -> None:
    nodes = kernel_nodes(tmp_path / "machine", RAPHAEL, RX7900)
    words = (
        "build",
        "torch",
        "--gpu",
        "auto",
        "--dry-run",
        "--stack",
        STACK,
        "--root-checkout-dir",
        tmp_path / "src",
    )
    told = cairn.json(*words, "--topology-dir", nodes, "--json")
    assert told["targets"] == ["gfx1100"]
    assert told["build"] == "triton, torch of pytorch, line release/2.14, into wheels"
    assert told["check out"] == f"triton, torch into {tmp_path / 'src'}"
    assert told["ROCm SDK"] == "the newest of https://stable.repo.amd.com/rocm/whl-next/"
    # What is measured in the stack.toml, of the projects and the SDK.
    assert told["download"] == "about 7.0 GB"
    assert told["disk"].startswith("about 38.0 GB; ")
    assert "on " in told["time"]
    assert not (tmp_path / "src").exists()


def test_the_newest_line_is_that_of_the_highest_number() -> None:
    stack = stacks.load(STACK)
    assert gpu_build.newest_line(stack) == "release/2.14"
    assert gpu_build.newest_line(stacks.load(STACK.parent / "pyg")) == stacks.load(STACK.parent / "pyg").line


@pytest.mark.parametrize(
    ("words", "built", "sdk"),
    [
        (("--gpu", "cpu"), "triton, torch, audio, vision of pytorch, line release/2.14, into wheels", None),
        (
            ("vision", "--gpu", "cpu", "--line", "nightly"),
            "triton, torch, vision of pytorch, line nightly,",
            None,
        ),
        (
            ("--gpu", "MI300X", "--index-url", "https://rocm.example/", "--rocm-version", "7.10.0"),
            "triton, torch, audio, vision of pytorch",
            "7.10.0 of https://rocm.example/",
        ),
        (("torch", "--gpu", "gfx942", "--stack", SAMPLE), "triton, torch of sample", "made by the stack"),
    ],
)
def test_what_is_named_is_taken(
    cairn: Cairn, tmp_path: Path, words: tuple[str, ...], built: str, sdk: str | None
) -> None:
    where = ("--dry-run", "--json", "--stack", STACK, "--root-checkout-dir", tmp_path)
    told = json.loads(cairn("build", *where, *words).out)
    assert told["build"].startswith(built)
    assert told.get("ROCm SDK") == sdk


def test_checkouts_that_are_there_are_built_as_they_are(cairn: Cairn, tmp_path: Path) -> None:
    """Nothing of an edited tree is moved, and a pinned project needs the torch that pins it."""
    (tmp_path / "triton").mkdir()
    words = (
        "build",
        "vision",
        "--gpu",
        "cpu",
        "--dry-run",
        "--stack",
        SAMPLE,
        "--root-checkout-dir",
        tmp_path,
    )
    told = cairn.json(*words, "--json")
    assert (told["as it is"], told["check out"]) == (
        f"triton in {tmp_path}",
        f"torch, vision into {tmp_path}",
    )
    assert told["build"].startswith("triton, torch, vision of sample")


def test_an_index_of_all_targets_serves_two_kinds_of_gpu(cairn: Cairn, tmp_path: Path) -> None:
    nodes = kernel_nodes(tmp_path, 90402, RX7900)
    words = (
        "build",
        "torch",
        "--gpu",
        "auto",
        "--dry-run",
        "--stack",
        STACK,
        "--root-checkout-dir",
        tmp_path,
    )
    out = cairn(*words, "--topology-dir", nodes).out
    assert "the newest of https://stable.repo.amd.com/rocm/whl-next/" in out
    assert "no GPU was found" in cairn(*words, "--topology-dir", kernel_nodes(tmp_path / "none"), code=3).err
    assert (
        "cairn ci run --stack pyg"
        in cairn("build", "--gpu", "cpu", "--stack", STACK.parent / "pyg", code=2).err
    )
