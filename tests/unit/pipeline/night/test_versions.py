"""Each manifest has versions of its own, whoever freezes beside it, dies, or was taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from cairn.pipeline.night import plan, versions
from cairn.pipeline.night.plan import NightRun
from cairn.release.ledger import Ledger
from cairn.sources.manifest.manifest import Manifest
from cairn.stack import Stack
from cairn.store.memory import MemoryStore
from helpers.night import FROZEN

TORCH = msgspec.structs.replace(FROZEN.projects[0], version="2.9.0")
TRITON = msgspec.structs.replace(TORCH, name="triton", distribution="triton", version=None, commit="1" * 40)
FIRST = msgspec.structs.replace(FROZEN, projects=(TRITON, TORCH))
Settle = Callable[..., dict[str, int]]


def moved(commit: str, *, version: str | None = "2.9.0") -> Manifest:
    """The manifest with torch at another commit."""
    torch = msgspec.structs.replace(TORCH, commit=commit * 40, version=version)
    return msgspec.structs.replace(FIRST, projects=(TRITON, torch))


@pytest.fixture
def stack(run: NightRun) -> Stack:
    return msgspec.structs.replace(run.stack, version_suffix="+cpu")


@pytest.fixture
def settle(run: NightRun, stack: Stack) -> Settle:
    def settle(
        frozen: Manifest, *, store: MemoryStore | None = None, dry_run: bool = False
    ) -> dict[str, int]:
        made = versions.settle(store or run.store, stack, frozen, run.plan.legs, dry_run=dry_run)
        return {source.name: source.again for source in made.projects}

    return settle


def test_a_manifest_keeps_its_versions_and_the_next_gets_others(settle: Settle) -> None:
    assert settle(FIRST) == settle(FIRST) == {"triton": 0, "torch": 0}
    assert settle(moved("2")) == settle(moved("2")) == {"triton": 1, "torch": 1}
    # Back at the first commit: its version would sort below what was published since.
    assert settle(FIRST) == {"triton": 2, "torch": 2}
    # torch moves on; of triton nobody knows whether it has.
    assert settle(moved("3", version="2.10.0")) == {"triton": 3, "torch": 0}


@pytest.mark.parametrize("version", ["2.9", "2.09.0", "v2.9.0", "2.9.0.0"])
def test_a_version_that_is_spelt_otherwise_is_the_same(settle: Settle, version: str) -> None:
    settle(FIRST)
    assert settle(moved("2", version=version))["torch"] == 1


def test_a_dry_run_claims_nothing(settle: Settle) -> None:
    assert settle(moved("2"), dry_run=True) == {"triton": 0, "torch": 0}
    assert settle(FIRST) == {"triton": 0, "torch": 0}


def test_a_freeze_that_was_killed_between_two_claims_goes_on(run: NightRun, settle: Settle) -> None:
    settle(FIRST)
    run.store.delete("nights/_versions/torch/2.9+cpu")
    assert settle(FIRST) == {"triton": 0, "torch": 0}


class Beside(MemoryStore):
    """A store in which somebody else claims between the look at the claims and the writing of them."""

    claim: Callable[[], object] | None = None

    def write_if(self, key: str, data: bytes, **options: Any) -> Any:
        claim, self.claim = self.claim, None
        if claim is not None:
            claim()
        return super().write_if(key, data, **options)


def test_of_two_who_freeze_at_once_each_gets_versions_of_its_own(settle: Settle) -> None:
    store = Beside()
    seen: list[dict[str, int]] = []
    store.claim = lambda: seen.append(settle(moved("2"), store=store))
    assert settle(FIRST, store=store) == {"triton": 1, "torch": 1}
    assert seen == [{"triton": 0, "torch": 0}]
    store.claim = lambda: seen.append(settle(moved("3"), store=store))
    assert settle(moved("3"), store=store) == seen[-1] == {"triton": 2, "torch": 2}


@pytest.mark.parametrize("scope", ["", "gfx94X-dcgpu"])
def test_what_was_ever_published_keeps_its_version(run: NightRun, settle: Settle, scope: str) -> None:
    """By hand, or by a set that was rolled back since: no index lists it any more."""
    name = "torch-2.9.0+cpu.again.1-cp311-cp311-linux_x86_64.whl"
    Ledger(run.store).add(names={scope: {name: "a" * 64}})
    assert settle(FIRST) == {"triton": 0, "torch": 2 if scope else 0}
    triton = {
        "triton-3.5.0+git1a2b3c4d.cpu-py3-none-any.whl": "a" * 64,
        "triton-3.5.0+cuda-py3-none-any.whl": "b" * 64,
    }
    Ledger(run.store).add(names={"gfx110X-all": triton})
    assert settle(moved("2"))["triton"] == 1


def test_claims_are_no_night(run: NightRun, settle: Settle, capsys: pytest.CaptureFixture[str]) -> None:
    settle(FIRST)
    assert [night.night for night in plan.every(run.store)] == ["7"]
    assert "skipping" not in capsys.readouterr().err
