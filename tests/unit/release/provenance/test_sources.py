"""The commits of a manifest, and who says so."""

import hashlib
import json

import pytest

from cairn import datafile
from cairn.errors import StoreError
from cairn.sources.manifest.manifest import Manifest, ProjectSource
from cairn.wheels import build_statement
from cairn.wheels.build_statement import Source, sources_in

TORCH = ProjectSource(
    name="torch", distribution="torch", origin="https://github.com/ROCm/pytorch.git", hashtag="release/2.9",
    commit="1" * 40, tree="2" * 40, version="2.9.0",
)  # fmt: skip
MANIFEST = Manifest(
    stack="pytorch", line="release/2.9", projects=(TORCH,), targets=("gfx942",), pythons=("3.11",),
    platform="linux_x86_64", toolchain={"ninja": "1.13"},
)  # fmt: skip


def spelt(manifest: Manifest) -> bytes:
    """In the spelling that `Manifest.digest` is of."""
    plain = datafile.to_plain(manifest)
    for name in ("build_env", "platforms", "downloads", "off_line", "recipe", "rocm_index_url"):
        del plain[name]
    for name in ("checkout_dir", "again"):
        del plain["projects"][0][name]
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


SPELT = spelt(MANIFEST)


def test_a_manifest_gives_its_commits() -> None:
    expected = (Source(name="torch", origin=TORCH.origin, hashtag="release/2.9", commit="1" * 40),)
    assert sources_in(SPELT, sha256=MANIFEST.digest(), name="m") == expected


@pytest.mark.parametrize("at", range(0, len(SPELT), 7))
def test_every_byte_of_it_counts(at: int) -> None:
    data = bytearray(SPELT)
    data[at] ^= 1
    with pytest.raises(StoreError, match="was changed"):
        sources_in(bytes(data), sha256=MANIFEST.digest(), name="m")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"projects": [1]}',
        SPELT[:-1],
        SPELT + b"x",
        SPELT.replace(b"manifest/1", b"manifest/9"),
    ],
)
def test_what_is_no_manifest_is_refused_whoever_names_it(data: bytes) -> None:
    with pytest.raises(StoreError, match="manifest"):
        sources_in(data, sha256=hashlib.sha256(data).hexdigest(), name="it")


ACTIONS = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "ROCm/TheRock",
    "GITHUB_WORKFLOW_REF": "ROCm/TheRock/.github/workflows/release.yml@refs/heads/main",
    "GITHUB_RUN_ID": "123",
    "GITHUB_RUN_ATTEMPT": "2",
}


def test_a_workflow_says_which_it_is() -> None:
    found = build_statement.this_builder(ACTIONS)
    assert found.id == "https://github.com/ROCm/TheRock/.github/workflows/release.yml@refs/heads/main"
    assert found.invocation == "https://github.com/ROCm/TheRock/actions/runs/123/attempts/2"


@pytest.mark.parametrize("missing", [*ACTIONS][:-1])
def test_any_other_machine_says_nothing_of_itself(missing: str) -> None:
    found = build_statement.this_builder({k: v for k, v in ACTIONS.items() if k != missing})
    assert (found.id, found.invocation) == (build_statement.LOCAL, None)
