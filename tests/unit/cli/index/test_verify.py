"""`cairn index verify` and `cairn release key` as a user types them."""

import hashlib
import json
from pathlib import Path

import pytest

from cairn.release.trust import signers
from cairn.release.trust.signers import PRIVATE_NAME, PUBLIC_NAME
from helpers.program import Cairn
from helpers.provenance import RELEASER, STRANGER, TESTER, Released, released
from helpers.release import commit_of
from helpers.serving import serving


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Released:
    return released(tmp_path_factory.mktemp("released"))


@pytest.fixture
def store(made: Released, tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    for key, data in made.store.objects.items():
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(data)
    return folder


@pytest.fixture
def trusted(tmp_path: Path) -> Path:
    (tmp_path / "releaser.pub").write_bytes(RELEASER.public.pem())
    (tmp_path / "tester.pub").write_bytes(TESTER.public.pem())
    (tmp_path / "stranger.pub").write_bytes(STRANGER.public.pem())
    return tmp_path


def test_a_good_wheel_is_followed_to_its_commits(
    cairn: Cairn, made: Released, store: Path, trusted: Path
) -> None:
    trust = ("--trust", trusted / "releaser.pub", "--trust-tester", trusted / "tester.pub")
    out, err = cairn("index", "verify", *made.wheels, "--store", store, *trust)
    assert err == ""
    lines = out.splitlines()
    assert f"{made.wheels[-1].name}, as release has it" in lines
    assert f"    torch: {commit_of('torch')} of https://git.example/torch.git (main)" in lines
    links = "generation wheel provenance set manifest builder statement records judgement"
    assert [line.split()[:2] for line in lines[-12:-3]] == [["✓", name] for name in links.split()]


def test_a_changed_wheel_is_refused_by_name(cairn: Cairn, made: Released, store: Path, trusted: Path) -> None:
    wheel = trusted / made.wheels[-1].name
    wheel.write_bytes(made.wheels[-1].read_bytes() + b"\0")
    trust = ("--trust", trusted / "releaser.pub")
    out, err = cairn("index", "verify", wheel, "--store", store, *trust, code=9)
    assert "✗ wheel      this file has sha256" in out
    assert err.splitlines()[0] == f"error: {wheel.name}: not what release vouches for"


def test_a_key_that_did_not_sign_is_not_enough(
    cairn: Cairn, made: Released, store: Path, trusted: Path
) -> None:
    words = ("index", "verify", made.wheels[-1], "--store", store)
    (report,) = cairn.json(*words, "--trust", trusted / "stranger.pub", code=9)
    assert not report["good"]
    broken = [link["name"] for link in report["links"] if link["state"] == "broken"]
    assert broken == ["provenance"]
    (report,) = cairn.json(*words, "--trust", trusted / "releaser.pub")
    assert (report["good"], report["file"]) == (True, made.wheels[-1].name)
    assert [source["commit"] for source in report["sources"]] == [commit_of("triton"), commit_of("torch")]


def test_nobody_is_trusted_unless_the_user_says_so(
    cairn: Cairn, made: Released, store: Path, trusted: Path
) -> None:
    words = ("index", "verify", made.wheels[-1], "--store", store)
    assert "nothing says whose signature counts" in cairn(*words, code=2).err
    assert "signature not checked" in cairn(*words, "--allow-unsigned").out
    cairn(*words, "--allow-unsigned", "--trust", trusted / "releaser.pub", code=2)


def test_a_bundle_serves_where_there_is_no_network(
    cairn: Cairn, made: Released, store: Path, trusted: Path
) -> None:
    trust = ("--trust", trusted / "releaser.pub")
    bundle = trusted / "torch.zip"
    with serving(store) as url:
        place = ("--index-url", f"{url}/release/simple/")
        cairn("index", "verify", made.wheels[-1], *place, *trust, "--save-bundle", bundle)
    assert "✗" not in cairn("index", "verify", made.wheels[-1], "--bundle", bundle, *trust).out
    cairn("index", "verify", made.wheels[0], "--bundle", bundle, *trust, code=9)  # it is of torch alone


def test_no_bundle_is_saved_of_what_is_broken(
    cairn: Cairn, made: Released, store: Path, trusted: Path
) -> None:
    bundle = trusted / "torch.zip"
    words = ("index", "verify", made.wheels[-1], "--store", store, "--trust", trusted / "stranger.pub")
    cairn(*words, "--save-bundle", bundle, code=9)
    assert not bundle.exists()


@pytest.mark.parametrize("kind", ["http", "file"])
def test_a_wheel_may_be_named_by_its_address(
    cairn: Cairn, made: Released, store: Path, trusted: Path, kind: str
) -> None:
    wheel = made.wheels[-1]
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    key = f"files/{sha256[:2]}/{sha256}/{wheel.name}"
    trust = ("--trust", trusted / "releaser.pub")
    with serving(store) as web:
        base = web if kind == "http" else store.as_uri()
        assert "✗" not in cairn("index", "verify", f"{base}/{key}#sha256={sha256}", *trust).out
        (store / key).write_bytes(b"evil")
        assert "gave bytes with sha256" in cairn("index", "verify", f"{base}/{key}", *trust, code=9).err


@pytest.mark.parametrize(
    "url",
    [
        "https://host/torch-1.whl",
        f"https://host/files/ab/ab{'0' * 62}/..%2Fevil.whl",
        f"https://host/files/ab/ab{'0' * 62}/..",
        f"https://host/files/ab/ab{'0' * 62}/index.html",
    ],
)
def test_an_address_that_is_no_wheels_is_refused(cairn: Cairn, trusted: Path, url: str) -> None:
    words = ("--index-url", "http://x/release/simple/", "--trust", trusted / "releaser.pub")
    assert "is not the address of a wheel" in cairn("index", "verify", url, *words, code=2).err


def test_what_the_attacker_writes_moves_no_cursor(
    cairn: Cairn, made: Released, store: Path, trusted: Path
) -> None:
    """Texts of an index are shown, so they must not be able to paint a check mark."""
    state = store / "release" / "state.json"
    pointer = json.loads(state.read_text())
    generation = store / "release" / "generations" / f"{pointer['generation']:08}-{pointer['digest']}.json"
    evil = generation.read_text().replace('"who":"', '"who":"\\u001b[2K\\u001b[1A\\r✓ all good\\n')
    digest = hashlib.sha256(evil.encode()).hexdigest()
    generation.with_name(f"{pointer['generation']:08}-{digest}.json").write_text(evil)
    state.write_text(json.dumps(pointer | {"digest": digest}))
    words = ("index", "verify", made.wheels[-1], "--store", store, "--trust", trusted / "releaser.pub")
    out, _ = cairn(*words)
    assert "\x1b[2K" not in out
    assert "\r" not in out
    assert not [line for line in out.splitlines() if line.startswith("✓ all good")]


def test_without_a_wheel_the_whole_index_is_audited(cairn: Cairn, store: Path) -> None:
    out, _ = cairn("index", "verify", "--store", store)
    assert out.startswith("  ✓ release is what its generation")
    assert "nothing to verify" in cairn("index", "verify", code=2).err


def test_a_key_is_made_once_and_named_by_its_id(cairn: Cairn, tmp_path: Path) -> None:
    command = ("release", "key", "create", "--output-dir", tmp_path / "keys")
    out, _ = cairn(*command)
    assert out == f"{signers.public_key(tmp_path / 'keys' / PUBLIC_NAME).key_id}\n"
    before = (tmp_path / "keys" / PRIVATE_NAME).read_bytes()
    assert "is there already" in cairn(*command, code=2).err
    assert (tmp_path / "keys" / PRIVATE_NAME).read_bytes() == before
