"""Families of GPUs that share what knows no target: the sample stack, through ccache, as a user types it."""

from pathlib import Path

import pytest

from cairn import stack as stacks
from cairn import targets as gpu
from cairn.build import rocm_sdk
from cairn.build.engine import events
from helpers.trail import SAMPLE, cairn, clean_environment

pytestmark = [pytest.mark.slow, pytest.mark.by_hand]

FAMILIES = ("gfx942", "gfx1100", "gfx90a")
# Of torch, three host objects know no target, three are device code, and one lists the targets in its text.
SHARED = {"triton": (1, 0), "torch": (3, 4), "audio": (1, 0), "vision": (1, 1)}


def counted(output: Path) -> dict[str, tuple[int, int]]:
    """What the compiler cache found, and what was compiled, in each step of the last run."""
    log = events.last_run(output / "events.jsonl")
    return {e.step: (e.hits, e.misses) for e in log if isinstance(e, events.CacheStatistics)}


def test_another_family_compiles_device_code_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = clean_environment(tmp_path / "cache") | {"CCACHE_DIR": str(tmp_path / "ccache")}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    stack = stacks.load(SAMPLE / "stack.toml")
    for family in FAMILIES:
        made = rocm_sdk.make(
            stack, gpu.parse_targets(family), tmp_path / "sdk", log=tmp_path / "sdk.log", say=lambda _: None
        )
        (tmp_path / "dists").mkdir(exist_ok=True)
        (tmp_path / "dists" / family).symlink_to(made[0].parent)
    source, output = tmp_path / "src", tmp_path / "out"
    assert cairn("checkout", "all", "--stack", SAMPLE, "--root-checkout-dir", source, env=env).returncode == 0

    def build(families: str) -> dict[str, tuple[int, int]]:
        places = ("--stack", SAMPLE, "--root-checkout-dir", source, "--output-dir", output)
        sdk = (
            "--install-rocm",
            "--find-links",
            f"{tmp_path}/dists/{{family}}",
            "--rocm-version",
            "7.10.0",
        )
        done = cairn("build", *places, *sdk, "--families", families, "--use-ccache", env=env)
        assert done.returncode == 0, done.stderr
        return counted(output)

    # The first of a project has to compile all; the second waits for it, in its own copy of the checkout.
    found = build("gfx942,gfx1100")
    assert {p: found[f"build {p} [gfx942]"][0] for p in SHARED} == dict.fromkeys(SHARED, 0)
    assert {p: found[f"build {p} [gfx1100]"] for p in SHARED} == SHARED
    # One more, alone in the checkout itself.
    found = build("gfx90a")
    assert {p: found[f"build {p}"] for p in SHARED} == SHARED
