"""The commits of a manifest, and who says so."""

import hashlib
import json

import pytest

from cairn import datafile
from cairn.errors import CairnError
from cairn.release.provenance import builder
from cairn.release.provenance.manifest_sources import Source, sources_in
from cairn.sources.manifest.manifest import Manifest, ProjectSource

TORCH = ProjectSource(
    name="torch", distribution="torch", origin="https://github.com/ROCm/pytorch.git", hashtag="release/2.9",
    commit="1" * 40, tree="2" * 40, version="2.9.0",
)  # fmt: skip
MANIFEST = Manifest(
    stack="pytorch", line="release/2.9", projects=(TORCH,), targets=("gfx942",), pythons=("3.11",),
    platform="linux_x86_64", toolchain={"ninja": "1.13"},
)  # fmt: skip
AS_WRITTEN = datafile.dumps(MANIFEST).encode()


def canonical(data: bytes) -> bytes:
    return json.dumps(json.loads(data), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def test_a_manifest_as_cairn_writes_it_gives_its_commits() -> None:
    expected = (Source(name="torch", origin=TORCH.origin, hashtag="release/2.9", commit="1" * 40),)
    assert sources_in(AS_WRITTEN, sha256=MANIFEST.digest(), name="m") == expected


def test_so_does_the_spelling_that_its_digest_is_of() -> None:
    plain = json.loads(AS_WRITTEN)
    del plain["build_env"], plain["projects"][0]["checkout_dir"]
    data = canonical(json.dumps(plain).encode())
    assert hashlib.sha256(data).hexdigest() == MANIFEST.digest()
    assert sources_in(data, sha256=MANIFEST.digest(), name="m")[0].commit == "1" * 40


@pytest.mark.parametrize("at", range(0, len(AS_WRITTEN), 7))
def test_every_byte_counts(at: int) -> None:
    data = bytearray(AS_WRITTEN)
    data[at] ^= 1
    with pytest.raises(CairnError):
        sources_in(bytes(data), sha256=MANIFEST.digest(), name="m")


@pytest.mark.parametrize(
    "data", [AS_WRITTEN + b"\n", AS_WRITTEN.replace(b"\n", b"\r\n"), b"[]", b"{}", b'{"projects": [1]}']
)
def test_nor_is_anything_else_a_manifest(data: bytes) -> None:
    with pytest.raises(CairnError):
        sources_in(data, sha256=MANIFEST.digest(), name="m")


def test_a_manifest_of_another_version_is_refused() -> None:
    data = canonical(AS_WRITTEN.replace(b"cairn.manifest/1", b"cairn.manifest/9"))
    plain = json.loads(data)
    del plain["build_env"], plain["projects"][0]["checkout_dir"]
    data = canonical(json.dumps(plain).encode())
    with pytest.raises(CairnError, match=r"cairn\.manifest/9"):
        sources_in(data, sha256=hashlib.sha256(data).hexdigest(), name="m")


ACTIONS = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "ROCm/TheRock",
    "GITHUB_WORKFLOW_REF": "ROCm/TheRock/.github/workflows/release.yml@refs/heads/main",
    "GITHUB_RUN_ID": "123",
    "GITHUB_RUN_ATTEMPT": "2",
}


def test_a_workflow_says_which_it_is() -> None:
    found = builder.here(ACTIONS)
    assert found.id == "https://github.com/ROCm/TheRock/.github/workflows/release.yml@refs/heads/main"
    assert found.invocation == "https://github.com/ROCm/TheRock/actions/runs/123/attempts/2"


@pytest.mark.parametrize("missing", [*ACTIONS][:-1])
def test_any_other_machine_says_nothing_of_itself(missing: str) -> None:
    found = builder.here({k: v for k, v in ACTIONS.items() if k != missing})
    assert (found.id, found.invocation) == (builder.LOCAL, None)
