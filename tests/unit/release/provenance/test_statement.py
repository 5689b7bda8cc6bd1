"""What a statement says, as anybody's tools read it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs
from sigstore.dsse import Statement

from cairn.release.provenance import dsse
from cairn.release.provenance.dsse import Claims, SignatureError
from cairn.wheels.build_statement import Builder, Source

CLAIMS = Claims(
    file_name="torch-2.9.0+rocm7.10.0-cp311-cp311-linux_x86_64.whl",
    sha256="1" * 64,
    parameters={
        "stack": "pytorch",
        "line": "release/2.9",
        "python": "3.11",
        "platform": "linux_x86_64",
        "family": "gfx94X-dcgpu",
        "targets": "gfx942",
    },
    manifest_sha256="2" * 64,
    sources=(
        Source(
            name="torch", origin="https://github.com/ROCm/pytorch.git", hashtag="release/2.9", commit="3" * 40
        ),
        Source(name="triton", origin="git@git.example:a/triton", hashtag="odd@{name} ü", commit="4" * 64),
    ),
    set_id="5" * 64,
    index="release/gfx94X-dcgpu",
    records=("6" * 64, "7" * 64),
    judgement="8" * 64,
    untested="untested on hardware: gfx942; bypassed by me: ☃",
    builder=Builder(
        id="https://github.com/a/b/.github/workflows/c.yml@refs/heads/main", invocation="https://x"
    ),
)


def test_it_is_an_in_toto_statement_with_slsa_provenance() -> None:
    assert json.loads(dsse.encode(CLAIMS)) == {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": CLAIMS.file_name, "digest": {"sha256": "1" * 64}}],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:cairn:build:1",
                "externalParameters": CLAIMS.parameters,
                "resolvedDependencies": [
                    {"name": "manifest.json", "digest": {"sha256": "2" * 64}},
                    {
                        "name": "torch",
                        "uri": "git+https://github.com/ROCm/pytorch.git@release/2.9",
                        "digest": {"gitCommit": "3" * 40},
                    },
                    {
                        "name": "triton",
                        "uri": "git+git@git.example:a/triton@odd%40%7Bname%7D%20%C3%BC",
                        "digest": {"gitCommit": "4" * 64},
                    },
                ],
            },
            "runDetails": {
                "builder": {"id": CLAIMS.builder.id, "version": {"cairn": CLAIMS.builder.version}},
                "metadata": {"invocationId": "https://x"},
                "byproducts": [
                    {
                        "name": "set.json",
                        "digest": {"sha256": "5" * 64},
                        "annotations": {
                            "index": "release/gfx94X-dcgpu",
                            "records": ["6" * 64, "7" * 64],
                            "judgement": "8" * 64,
                            "untested": CLAIMS.untested,
                        },
                    }
                ],
            },
        },
    }


def test_it_comes_back_as_it_was() -> None:
    assert dsse.decode(dsse.encode(CLAIMS), name="it") == CLAIMS


def _as_before(plain: dict[str, Any]) -> None:
    (of_set,) = plain["predicate"]["runDetails"].pop("byproducts")
    plain["predicate"]["cairn_release"] = {**of_set["annotations"], "set": of_set["digest"]["sha256"]}


def test_one_that_was_signed_with_an_extension_field_still_reads() -> None:
    assert dsse.decode(_changed(_as_before), name="it") == CLAIMS


def test_sigstore_takes_it_as_a_statement() -> None:
    Statement(dsse.encode(CLAIMS))  # raises where it is none


def _changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    plain = json.loads(dsse.encode(CLAIMS))
    change(plain)
    return json.dumps(plain).encode()


def _definition(change: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], object]:
    return lambda plain: change(plain["predicate"]["buildDefinition"])


def test_fields_that_it_does_not_know_are_passed_over() -> None:
    """In-toto: "Consumers MUST ignore unrecognized fields"."""
    more = _changed(
        lambda s: (s.update(more=1), s["predicate"].update(more={}), s["subject"][0].update(uri="x"))
    )
    assert dsse.decode(more, name="it") == CLAIMS


def _byproducts(change: Callable[[list[Any]], object]) -> Callable[[dict[str, Any]], object]:
    return lambda plain: change(plain["predicate"]["runDetails"]["byproducts"])


def _in_both_ways(plain: dict[str, Any]) -> None:
    details = plain["predicate"]["runDetails"]
    kept = details["byproducts"]
    _as_before(plain)
    details["byproducts"] = kept


WRONG: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "an earlier statement": (lambda s: s.update(_type="https://in-toto.io/Statement/v0.1"), "its type is"),
    "another predicate": (
        lambda s: s.update(predicateType="https://docs.pypi.org/attestations/publish/v1"),
        "the type of its predicate",
    ),
    "another build": (
        _definition(lambda d: d.update(buildType="urn:cairn:build:2")),
        "the type of its build",
    ),
    "no subject": (lambda s: s.update(subject=[]), "number of subjects is 0"),
    "two subjects": (lambda s: s["subject"].append(s["subject"][0]), "number of subjects is 2"),
    "a weaker digest": (lambda s: s["subject"][0].update(digest={"md5": "1"}), "by their sha256"),
    "two digests": (lambda s: s["subject"][0]["digest"].update(md5="1"), "by their sha256"),
    "another parameter": (_definition(lambda d: d["externalParameters"].update(more="x")), "its parameters"),
    "a parameter less": (_definition(lambda d: d["externalParameters"].pop("family")), "its parameters"),
    "no manifest": (_definition(lambda d: d["resolvedDependencies"].pop(0)), "one manifest"),
    "two manifests": (
        _definition(lambda d: d["resolvedDependencies"].append(d["resolvedDependencies"][0])),
        "one manifest",
    ),
    "a source without a commit": (
        _definition(lambda d: d["resolvedDependencies"][1].update(digest={"sha256": "1"})),
        "neither an origin nor a commit",
    ),
    "a source from elsewhere": (
        _definition(lambda d: d["resolvedDependencies"][1].update(uri="https://x@y")),
        "neither an origin nor a commit",
    ),
    "nothing of the release": (_byproducts(lambda b: b.clear()), "one set"),
    "two sets": (_byproducts(lambda b: b.append(b[0])), "one set"),
    "a set in two ways": (_in_both_ways, "one set"),
    "a set without a digest": (_byproducts(lambda b: b[0].update(digest={})), "set"),
    "a set without an index": (_byproducts(lambda b: b[0]["annotations"].pop("index")), "index"),
    "no predicate": (lambda s: s.pop("predicate"), "predicate"),
    "a number for a name": (lambda s: s["subject"][0].update(name=1), "Expected `str`"),
}


@pytest.mark.parametrize(("change", "words"), WRONG.values(), ids=WRONG)
def test_any_other_statement_is_refused(change: Callable[[Any], object], words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        dsse.decode(_changed(change), name="it")


@pytest.mark.parametrize(
    "payload",
    [b"", b"{}", b"[]", dsse.encode(CLAIMS) + b"{}", dsse.encode(CLAIMS)[:-1] + b',"subject":[]}'],
    ids=["empty", "nothing", "a list", "two documents", "a name twice"],
)
def test_what_is_no_statement_is_refused(payload: bytes) -> None:
    with pytest.raises(SignatureError):
        dsse.decode(payload, name="it")


def test_nothing_in_it_is_of_the_machine_or_the_moment() -> None:
    once, again = dsse.encode(CLAIMS), dsse.encode(structs.replace(CLAIMS))
    assert once == again
