"""In-toto statements with SLSA's provenance, or a test result, as their predicate, as Cairn writes them.

Sources: https://in-toto.io/Statement/v1, https://slsa.dev/provenance/v1 and
https://in-toto.io/attestation/test-result/v0.1. Fields that are not known here
are passed over when a statement is read, as in-toto's rules for parsing ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
TEST_RESULT_TYPE = "https://in-toto.io/attestation/test-result/v0.1"


class Resource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A resource descriptor: a file or a repository; `annotations` are its writer's own."""

    name: str
    uri: str = ""
    digest: Mapping[str, str]
    annotations: Mapping[str, Any] = msgspec.field(default_factory=dict)


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


class TestResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A test result: `PASSED`, `WARNED` or `FAILED`, and the tests that did so."""

    __test__ = False  # pytest would collect the name

    result: str
    configuration: tuple[Resource, ...]
    passed_tests: tuple[str, ...] = ()
    failed_tests: tuple[str, ...] = ()


class TestResultStatement(msgspec.Struct, frozen=True, kw_only=True):
    """The statement around a test result."""

    __test__ = False

    type: str = msgspec.field(name="_type", default=STATEMENT_TYPE)
    subject: tuple[Resource, ...]
    predicate_type: str = msgspec.field(name="predicateType", default=TEST_RESULT_TYPE)
    predicate: TestResult
