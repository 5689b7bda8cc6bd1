"""An in-toto statement with SLSA's provenance as its predicate, as far as Cairn writes it.

Sources: https://in-toto.io/Statement/v1 and https://slsa.dev/provenance/v1. Fields that are not known here
are passed over when a statement is read, as in-toto's rules for parsing ask.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"


class Resource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A resource descriptor: a file or a repository."""

    name: str
    uri: str = ""
    digest: Mapping[str, str]


class Definition(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The inputs of a build: parameters of the user and of the builder, and its dependencies."""

    build_type: str
    external_parameters: Mapping[str, str]
    internal_parameters: Mapping[str, str] = msgspec.field(default_factory=dict)
    resolved_dependencies: tuple[Resource, ...]


class Builder(msgspec.Struct, frozen=True, kw_only=True):
    """The builder."""

    id: str
    version: Mapping[str, str]


class Metadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The metadata of a build run."""

    invocation_id: str | None = None


class Details(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The run: its builder, its invocation, and by-products besides the subject."""

    builder: Builder
    metadata: Metadata
    byproducts: tuple[Resource, ...] = ()


class Predicate(msgspec.Struct, frozen=True, kw_only=True):
    """SLSA's provenance; what it has no place for, a subclass adds."""

    definition: Definition = msgspec.field(name="buildDefinition")
    details: Details = msgspec.field(name="runDetails")


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """The statement around a predicate, which a subclass may narrow."""

    type: str = msgspec.field(name="_type", default=STATEMENT_TYPE)
    subject: tuple[Resource, ...]
    predicate_type: str = msgspec.field(name="predicateType", default=PREDICATE_TYPE)
    predicate: Predicate
