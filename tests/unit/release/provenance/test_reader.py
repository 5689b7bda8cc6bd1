"""Where what is checked comes from: the web and bundles, which anybody may have made."""

import io
import zipfile
from pathlib import Path

import pytest

from cairn.errors import NetworkError, StoreError, UsageError
from cairn.release.index import keys
from cairn.release.provenance import chain
from cairn.release.provenance.chain import Recorder, WebReader
from cairn.store.memory import MemoryStore
from cairn.store.protocol import MissingKeyError, Reader
from helpers.answers import answering
from helpers.provenance import Released, released
from helpers.serving import serving

SHA = "ab" + "0" * 62


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Released:
    return released(tmp_path_factory.mktemp("released"))


def _bundle(made: Released, path: Path, *, index: str = "release") -> Recorder:
    watched = Recorder(made.store)
    assert not made.over(watched).check(index=index).broken
    chain.save_bundle(path, watched.objects)
    return watched


def _check(store: Reader, made: Released) -> list[str]:
    return [link.text for link in made.over(store).check().broken]


def test_a_bundle_is_all_that_a_check_reads(made: Released, tmp_path: Path) -> None:
    _bundle(made, tmp_path / "torch.zip")
    bundle = chain.open_bundle(tmp_path / "torch.zip")
    assert chain.index_of_bundle(bundle) == "release"
    assert _check(bundle, made) == []
    with zipfile.ZipFile(tmp_path / "torch.zip") as archive:
        assert not [name for name in archive.namelist() if name.endswith(".whl")]
        archive.extractall(tmp_path / "unpacked")
    assert _check(chain.open_bundle(tmp_path / "unpacked"), made) == []


def test_a_bundle_that_lacks_something_says_what(made: Released, tmp_path: Path) -> None:
    objects = _bundle(made, tmp_path / "torch.zip").objects
    (key,) = [key for key in objects if key.endswith("manifest.json")]
    del objects[key]
    chain.save_bundle(tmp_path / "less.zip", objects)
    found = _check(chain.open_bundle(tmp_path / "less.zip"), made)
    assert found == [f"{tmp_path / 'less.zip'} holds no {key}"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    "names",
    [["../evil"], ["/etc/passwd"], ["release/../state.json"], ["evil.exe"], ["release/simple\\x"],
     ["release/state.json", "release/state.json"]],
)  # fmt: skip
def test_a_bundle_holds_keys_of_a_store_only_and_none_twice(tmp_path: Path, names: list[str]) -> None:
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        for number, name in enumerate(names):
            archive.writestr(name, bytes([number]))
    with pytest.raises(UsageError, match="it holds"):
        chain.open_bundle(tmp_path / "b.zip")


def test_a_bundle_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "_MOST_BYTES", 1000)
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("release/state.json", bytes(600))
        archive.writestr("staging/state.json", bytes(401))
    with pytest.raises(UsageError, match="too large"):
        chain.open_bundle(tmp_path / "b.zip")


def test_a_bundle_that_was_damaged_is_refused(made: Released, tmp_path: Path) -> None:
    _bundle(made, tmp_path / "b.zip")
    whole = (tmp_path / "b.zip").read_bytes()
    for at in range(0, len(whole), 11):
        (tmp_path / "b.zip").write_bytes(whole[:at] + bytes([whole[at] ^ 0x15]) + whole[at + 1 :])
        try:
            found = _check(chain.open_bundle(tmp_path / "b.zip"), made)
        except UsageError:
            continue
        # A byte that says nothing of what is in it, such as of a time, or one that hides an object.
        assert all(" holds no " in text or text.endswith(" is lost") for text in found), at


def test_the_same_objects_make_the_same_bundle(made: Released, tmp_path: Path) -> None:
    for name in ("1.zip", "2.zip"):
        _bundle(made, tmp_path / name)
    assert (tmp_path / "1.zip").read_bytes() == (tmp_path / "2.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "1.zip") as archive:
        assert {member.compress_type for member in archive.infolist()} == {zipfile.ZIP_DEFLATED}


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b.zip").write_bytes(b"PK\3\4 and no more")
    for name in ("b.zip", "missing.zip"):
        with pytest.raises(UsageError, match="is not a bundle"):
            chain.open_bundle(tmp_path / name)


def _of(*indexes: str) -> MemoryStore:
    return MemoryStore({keys.state_key(index): b"" for index in indexes})


def test_a_bundle_of_no_index_of_several_or_of_staging_asks_which() -> None:
    assert chain.index_of_bundle(_of("release/gfx110X-all")) == "release/gfx110X-all"
    for indexes, said in (
        ((), "of no index"),
        (("release/gfx110X-all", "staging"), "of staging, release/gfx110X-all"),
        (("staging",), "is a bundle of staging"),
    ):
        with pytest.raises(UsageError, match=said) as caught:
            chain.index_of_bundle(_of(*indexes))
    assert caught.value.tip == "say which: --index staging"


def test_an_index_on_the_web_is_read_like_a_store(made: Released, tmp_path: Path) -> None:
    for key, data in made.store.objects.items():
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(data)
    with serving(tmp_path) as url:
        assert _check(WebReader(f"{url}/"), made) == []
        with pytest.raises(MissingKeyError):
            WebReader(url).read("release/none.json")
        state, out = made.store.objects["release/state.json"], io.BytesIO()
        chain.fetch(f"{url}/release/state.json", out=out, most=len(state))
        assert out.getvalue() == state
        with pytest.raises(StoreError, match="larger than"):
            chain.fetch(f"{url}/release/state.json", out=out, most=len(state) - 1)
    with pytest.raises(NetworkError, match="cannot read"):
        WebReader(url).read("release/state.json")


def test_a_server_cannot_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "release").mkdir()
    (tmp_path / "release" / "state.json").write_bytes(bytes(1001))
    monkeypatch.setattr(chain, "_MOST_BYTES", 1000)
    with serving(tmp_path) as url, pytest.raises(StoreError, match="larger than"):
        WebReader(url).read("release/state.json")


def test_an_error_of_the_server_is_not_a_missing_object() -> None:
    with answering("503 Busy") as url, pytest.raises(NetworkError, match="503 Busy"):
        WebReader(url).read("release/state.json")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://host/path/release/simple/", ("https://host/path", "release")),
        ("https://host/release/simple", ("https://host", "release")),
        ("https://host/release/gfx110X-all/simple/", ("https://host", "release/gfx110X-all")),
        ("https://host/release/staging/simple/?x#y", ("https://host/release", "staging")),
    ],
)
def test_the_address_for_pip_names_store_and_index(url: str, expected: tuple[str, str]) -> None:
    assert chain.parse_index_url(url) == expected


@pytest.mark.parametrize(
    "url", ["https://pypi.example/simple/", "https://host/releases/simple/", "https://host/release/"]
)
def test_the_address_of_any_other_index_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="is not an index of Cairn's"):
        chain.parse_index_url(url)


def test_the_address_of_a_file_names_its_bytes() -> None:
    url = f"https://host/path/files/ab/{SHA}/torch-2.9.0%2Brocm7-py3-none-any.whl#sha256=x"
    assert chain.parse_file_url(url) == ("https://host/path", SHA, "torch-2.9.0+rocm7-py3-none-any.whl")
    assert chain.parse_file_url(f"https://host/files/ba/{SHA}/x.whl") is None
    assert chain.parse_file_url("https://host/x.whl") is None
