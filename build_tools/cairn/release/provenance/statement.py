"""The statement about one wheel: an in-toto statement with SLSA provenance as its predicate.

The statement is that of https://in-toto.io/Statement/v1. Its predicate is https://slsa.dev/provenance/v1, one
of the two that PyPI takes as attestations of an index (PEP 740; the other, `publish/v1`, has no content), so
that tools which know nothing of Cairn read who built the file of which commits. What SLSA has no place for is
in the annotations of a by-product that stands for the set: the index, and the evidence on whose strength it
took the set. Readers that refuse unknown fields take annotations; an extension field, as it was once, they do
not.

One and the same wheel gives the same bytes each time: there is no time in them, so a command that is run
again after a crash signs nothing new.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from cairn import datafile
from cairn.errors import UsageError
from cairn.formats import in_toto
from cairn.formats.in_toto import PREDICATE_TYPE, STATEMENT_TYPE, Resource
from cairn.release.index.generation import IndexSet
from cairn.release.provenance.dsse import SignatureError
from cairn.wheels import build_statement
from cairn.wheels.build_statement import BUILD_TYPE, Builder, Source
from cairn.wheels.wheelset import PARAMETERS, WheelSet


@dataclass(frozen=True, kw_only=True)
class Claims:
    """The claims of a statement.

    Attributes:
        file_name, sha256: of the wheel.
        parameters: stack, line, Python, platform, family and targets (joined by `;`) of the set.
        manifest_sha256: of the manifest that it was built from.
        sources: the projects of that manifest with their commits, in its order.
        set_id: the set that it is of.
        index: the index that offers it.
        records: digests of the test records that let it in, sorted.
        judgement: digest of what the gate found; None where no gate was asked.
        built: digest of the builder's statement about the set; None in what an earlier Cairn signed.
        untested: why it is there without a passed test, or on what it was not tested; None for a tested one.
        builder: who says so.
    """

    file_name: str = ""
    sha256: str = ""
    parameters: Mapping[str, str]
    manifest_sha256: str
    sources: tuple[Source, ...]
    set_id: str
    index: str
    records: tuple[str, ...] = ()
    judgement: str | None = None
    untested: str | None = None
    builder: Builder
    built: str | None = None


class _Release(msgspec.Struct, frozen=True, kw_only=True):
    set: str
    index: str
    records: tuple[str, ...]
    judgement: str | None
    untested: str | None
    built: str | None = None


class _Predicate(in_toto.Predicate, frozen=True, kw_only=True):
    earlier: _Release | None = msgspec.field(name="cairn_release", default=None)


_SET = "set.json"  # the name of the by-product


class _Statement(in_toto.Statement, frozen=True, kw_only=True):
    predicate: _Predicate


def claims_of(
    wheel_set: WheelSet, listed: IndexSet, *, sources: tuple[Source, ...], index: str, builder: Builder
) -> Claims:
    """The claims about every wheel of a set; the wheel's name and digest are left empty.

    Args:
        wheel_set: the sealed set.
        listed: the set as the index lists it, with the evidence for it.
        sources: the commits of its manifest.
        index: the name of the index.
        builder: who says so.
    """
    return Claims(
        parameters=wheel_set.parameters,
        manifest_sha256=wheel_set.manifest_sha256,
        sources=sources,
        set_id=wheel_set.id,
        index=index,
        records=tuple(sorted(listed.records)),
        judgement=listed.judgement,
        untested=listed.untested,
        builder=builder,
        built=listed.builder,
    )


def encode(claims: Claims) -> bytes:
    """Encode the statement: JSON in UTF-8, always the same bytes for the same claims."""
    return msgspec.json.encode(
        in_toto.Statement(
            subject=(Resource(name=claims.file_name, digest={"sha256": claims.sha256}),),
            predicate=in_toto.Predicate(
                definition=in_toto.Definition(
                    build_type=BUILD_TYPE,
                    external_parameters=claims.parameters,
                    resolved_dependencies=build_statement.dependencies(
                        claims.manifest_sha256, claims.sources
                    ),
                ),
                details=build_statement.details(claims.builder, byproducts=(_release(claims),)),
            ),
        )
    )


def _release(claims: Claims) -> Resource:
    about = {name: getattr(claims, name) for name in ("index", "records", "judgement", "untested", "built")}
    if claims.built is None:  # what was signed before is signed again with the same bytes
        del about["built"]
    return Resource(name=_SET, digest={"sha256": claims.set_id}, annotations=about)


def _read_release(predicate: _Predicate) -> _Release:
    of_set = [one for one in predicate.details.byproducts if one.name == _SET]
    if predicate.earlier is None and len(of_set) == 1:
        return datafile.convert({**of_set[0].annotations, "set": of_set[0].digest.get("sha256")}, _Release)
    if predicate.earlier is None or of_set:
        raise UsageError("it does not name one set")
    return predicate.earlier


def decode(payload: bytes, *, name: str) -> Claims:
    """Decode a statement of Cairn's. Unknown fields are ignored, as in-toto asks.

    Raises:
        SignatureError: it is not such a statement, or is about more or less than one file.
    """
    try:
        plain = datafile.parse_json(payload, name=name)
        read = datafile.convert(plain, _Statement)
        release = _read_release(read.predicate)
    except (UsageError, msgspec.ValidationError) as error:
        raise SignatureError(f"{name} is not a statement about a wheel of Cairn's: {error}") from error
    definition = read.predicate.definition
    wrong = {
        "its type": (read.type, STATEMENT_TYPE),
        "the type of its predicate": (read.predicate_type, PREDICATE_TYPE),
        "the type of its build": (definition.build_type, BUILD_TYPE),
        "its number of subjects": (len(read.subject), 1),
        # "Verifiers SHOULD reject unrecognized or unexpected fields within externalParameters" (SLSA 1.0).
        "its parameters": (sorted(definition.external_parameters), sorted(PARAMETERS)),
    }
    for what, (value, expected) in wrong.items():
        if value != expected:
            raise SignatureError(f"{name}: {what} is {str(value)[:200]}, expected {expected}")
    if set(read.subject[0].digest) != {"sha256"}:
        raise SignatureError(f"{name} does not name one wheel and one manifest by their sha256")
    try:
        manifest_sha256, sources = build_statement.read_dependencies(definition.resolved_dependencies)
    except UsageError as error:
        raise SignatureError(f"{name}: {error}") from error
    return Claims(
        file_name=read.subject[0].name,
        sha256=read.subject[0].digest["sha256"],
        parameters=definition.external_parameters,
        manifest_sha256=manifest_sha256,
        sources=sources,
        set_id=release.set,
        index=release.index,
        records=release.records,
        judgement=release.judgement,
        untested=release.untested,
        builder=build_statement.read_builder(read.predicate.details),
        built=release.built,
    )
