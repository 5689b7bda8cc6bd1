"""Which indexes there are, who may write to them, and how sets in them are named."""

from pathlib import Path

import msgspec
import pytest

from cairn import targets as gpu
from cairn.cli.main import main
from cairn.errors import GateError, StoreError, UsageError
from cairn.release.index import keys
from cairn.release.index.snapshot import Index, Snapshot, empty, existing, whole_id
from cairn.release.promote import promote
from cairn.release.publish.files import publish
from cairn.release.publish.mirror import mirror
from cairn.release.weighing import Bypass
from cairn.store.folder import LocalStore
from helpers.gate import stack_of, write_stack
from helpers.release import audit, keys_of, make_set, make_wheel, stage_set

A, B, C = "abcd" * 16, "abce" * 16, "1234" * 16


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """A folder, which commands can open."""
    return LocalStore(tmp_path / "store")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("relase", "did you mean release?"),
        ("Staging", "did you mean staging?"),
        ("stage", "did you mean staging?"),
        ("qqq", "the channels are: staging, release, dev, nightly, prerelease, untested"),
        ("release/gfx110X-al", "did you mean gfx110X-all?"),
        ("release/", f"the families are: {', '.join(gpu.index_families())}"),
        ("release/../staging", f"the families are: {', '.join(gpu.index_families())}"),
    ],
)
def test_a_mistyped_index_is_not_the_beginning_of_a_new_one(given: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        keys.checked_index(given)
    assert caught.value.tip == meant


@pytest.mark.parametrize("name", ["staging", "prerelease", "release/gfx110X-all", "staging/gfx942"])
def test_channels_and_their_families_are_indexes(name: str) -> None:
    assert keys.checked_index(name) == name
    assert name in keys.possible_indexes()


@pytest.mark.parametrize("index", ["release", "nightly", "prerelease", "untested", "release/gfx110X-all"])
def test_nothing_reaches_what_people_install_from_but_through_the_gate(
    store: LocalStore, tmp_path: Path, index: str
) -> None:
    wheel = make_wheel(tmp_path, "a", "1.0")
    made = make_set([wheel])
    for act in (
        lambda: publish(store, index, [wheel]),
        lambda: publish(store, index, [wheel], dry_run=True),
        lambda: stage_set(store, index, made, [wheel]),
        lambda: mirror(store, index, requirements=["a==1.0"]),
    ):
        with pytest.raises(GateError, match="sets reach it through the gate") as caught:
            act()
        assert "cairn release promote" in str(caught.value.tip)
    assert not store.path.exists()


def test_the_commands_refuse_a_gated_index_too(
    store: LocalStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = str(make_wheel(tmp_path, "a", "1.0"))
    at = ["--store", str(store.path)]
    assert main(["index", "publish", wheel, *at, "--index", "release"]) == 10
    assert main(["index", "mirror", wheel, *at, "--index", "release"]) == 10
    assert main(["index", "publish", wheel, *at, "--index", "dev"]) == 0
    assert "cairn release promote SET --to release" in capsys.readouterr().err
    assert existing(store) == ("dev",)


@pytest.mark.parametrize(("name", "kind"), [("nope", UsageError), ("dev", StoreError)])
def test_an_index_that_is_not_there_is_not_audited_as_good(
    store: LocalStore, tmp_path: Path, name: str, kind: type[Exception]
) -> None:
    publish(store, "staging", [make_wheel(tmp_path, "a", "1.0")])
    for hashes in (False, True):
        with pytest.raises(kind, match=r"not a channel|no index dev") as caught:
            audit(store, name, hashes=hashes)
        assert "staging" in str(getattr(caught.value, "tip", None))
        command = "verify" if hashes else "check"
        assert main(["index", command, "--store", str(store.path), "--index", name]) != 0


def test_an_index_of_one_family_is_whole(store: LocalStore, tmp_path: Path) -> None:
    publish(store, "staging/gfx110X-all", [make_wheel(tmp_path, "a", "1.0")])
    assert existing(store) == ("staging/gfx110X-all",)
    assert audit(store, "staging/gfx110X-all", hashes=True) == ()
    page = store.path / "staging" / "gfx110X-all" / "simple" / "a"
    href = (page / "index.html").read_text().split('href="', 1)[1].split("#", 1)[0]
    assert (page / href).resolve().is_file()
    assert all(keys.is_own(key) for key in keys_of(store, ""))


@pytest.mark.parametrize(("targets", "family"), [(("gfx942",), "gfx94X-dcgpu"), (("cpu",), "cpu")])
def test_a_set_is_not_put_into_the_index_of_a_different_family(
    store: LocalStore, tmp_path: Path, targets: tuple[str, ...], family: str
) -> None:
    wheel = make_wheel(tmp_path, "a", "1.0")
    made = make_set([wheel], family=family, targets=targets)
    with pytest.raises(GateError, match=f"for {family}, not for gfx110X-all"):
        stage_set(store, "staging/gfx110X-all", made, [wheel])
    assert existing(store) == ()
    made = stage_set(store, "staging", made, [wheel])
    with pytest.raises(GateError, match=f"for {family}, not for gfx110X-all"):
        promote(store, made.id, stack=stack_of(made), target="release/gfx110X-all")
    assert existing(store) == ("staging",)


def test_a_set_goes_into_the_indexes_that_have_its_targets(store: LocalStore, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "a", "1.0")
    made = make_set([wheel], family="gfx110X-all", targets=("gfx1100", "gfx1101"))
    for index in ("staging", "staging/gfx110X-all", "staging/gfx110X-dgpu"):
        assert existing(store) != (index,)
        assert stage_set(store, index, made, [wheel]).id in Index(store, index).load().set_ids
    with pytest.raises(GateError, match="for gfx110X-all, not for gfx1100"):
        stage_set(store, "staging/gfx1100", made, [wheel])


def snapshot(store: LocalStore, name: str, *ids: str) -> Snapshot:
    number = 1 if ids else 0
    found = msgspec.structs.replace(empty(name), number=number, sets=dict.fromkeys(ids, "0" * 64))
    return Snapshot(index=Index(store, name), generation=found, digest="0" * 64 if ids else None)


def test_the_beginning_of_a_set_id_will_do_where_it_is_of_one_set(store: LocalStore) -> None:
    staging, release = snapshot(store, "staging", A, B), snapshot(store, "release", A, C)
    for given, meant in (("abcda", A), ("ABCE", B), ("1234", C), (A, A)):
        assert whole_id(given, staging, release) == meant


NEAR = A[:60] + "0000"


@pytest.mark.parametrize(
    ("given", "ids", "kind", "said", "tips"),
    [
        ("abcda", (A, NEAR), UsageError, "beginning of 2 set ids", (A, NEAR)),
        *((given, (A,), UsageError, "neither a set.json nor the id of a set", ()) for given in
          ("abc", "xyzw", "", "0" * 65)),
        ("ffff", (A,), StoreError, "staging has no set ffff", (A[:12],)),
        ("ffff", (), StoreError, "there is no index staging", ()),
    ],
)  # fmt: skip
def test_what_names_no_set_or_several_is_refused_with_what_there_is(
    store: LocalStore,
    *,
    given: str,
    ids: tuple[str, ...],
    kind: type[Exception],
    said: str,
    tips: tuple[str, ...],
) -> None:
    with pytest.raises(kind, match=said) as caught:
        whole_id(given, snapshot(store, "staging", *ids))
    assert all(tip in str(getattr(caught.value, "tip", None)) for tip in tips)


def test_promotion_takes_the_beginning_of_a_set_id_or_a_set_file(
    store: LocalStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = make_wheel(tmp_path, "a", "1.0")
    made = stage_set(store, "staging", make_set([wheel]), [wheel])
    at = ["--store", str(store.path), "--dry-run", "--stack", str(write_stack(tmp_path / "stack", made))]
    assert main(["release", "promote", made.id[:8], *at]) == 10
    assert made.id[:12] in capsys.readouterr().err
    assert main(["release", "promote", str(tmp_path), *at]) == 2
    assert "is a folder" in capsys.readouterr().err
    assert main(["release", "promote", "missing/set.json", *at]) == 2
    assert "there is no file missing/set.json" in capsys.readouterr().err
    assert main(["release", "promote", made.id[:8], *at, "--to", "relase"]) == 2
    assert "did you mean release?" in capsys.readouterr().err
    assert existing(store) == ("staging",)


@pytest.mark.parametrize("text", ["", " ", "\u200b", "an\nn", "ann\u202e", "\x1b[2J"])
def test_the_word_of_a_person_can_be_read_on_every_page(text: str) -> None:
    for words in ({"who": text, "reason": "no GPU"}, {"who": "ann", "reason": text}):
        with pytest.raises(UsageError, match="a bypass needs a name and a reason"):
            Bypass(**words)
    assert str(Bypass(who="Änn", reason="no GPU here")) == "bypassed by Änn: no GPU here"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["abcd", "--bypass", ""], "a bypass needs a name and a reason"),
        (["abcd", "--bypass", "", "--reason", "no GPU"], "a bypass needs a name and a reason"),
        (["abcd", "--reason", ""], "--reason belongs to --bypass"),
        ([""], "neither a set.json nor the id of a set"),
    ],
)
def test_a_variable_that_is_empty_bypasses_and_names_nothing(
    store: LocalStore, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    store.path.mkdir()
    stack = write_stack(tmp_path / "stack", make_set([make_wheel(tmp_path, "a", "1.0")]))
    assert main(["release", "promote", *more, "--store", str(store.path), "--stack", str(stack)]) == 2
    assert said in capsys.readouterr().err
