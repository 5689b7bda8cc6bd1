"""Wheel variants: wheels of one version for one Python and platform, of which an installer takes the best.

A variant has a label as the last part of its file name, and says in `variant.json` which properties of a
machine it is for. An index has the same of all variants of a version in `<name>-<version>-variants.json`.

Sources: PEP 825 (file names and files) and PEP 850 (providers, who tell an installer what its machine has).
Both are drafts, so the version of their format is one that no released tool need accept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec
from packaging.utils import canonicalize_name, canonicalize_version

from cairn import datafile
from cairn.errors import UsageError, WheelError
from cairn.wheels.metadata.wheel_info import split_label

IN_WHEEL = "variant.json"
"""Its name in the dist-info folder of a variant."""

SCHEMA = "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json"
"""The one version of the format that is written and read: the newest that uv 0.13 knows."""

NULL = "null"
"""The label of the variant that fits every machine."""

AMD, GFX_ARCH = "amd", "gfx_arch"
"""The namespace and the feature of ROCm's provider: the processors of the GPUs of a machine."""

_Word = Annotated[str, msgspec.Meta(pattern="^[a-z0-9_]+$")]
_Value = Annotated[str, msgspec.Meta(pattern="^[a-z0-9_.]+$")]
_Values = Annotated[tuple[_Value, ...], msgspec.Meta(min_length=1)]
_Features = Mapping[_Word, _Values]
_Properties = Mapping[_Word, _Features]
_Label = Annotated[str, msgspec.Meta(pattern="^[a-z0-9_.]+$")]


class Priorities(datafile.Value):
    """Which namespaces count more when several variants fit, the first most."""

    namespace: Annotated[tuple[_Word, ...], msgspec.Meta(min_length=1)]


class Provider(datafile.Value, omit_defaults=True, rename="kebab"):
    """The provider of a namespace, which tells a machine's properties in exactly one of three ways.

    Attributes:
        requires: what to install for a plugin that looks at the machine.
        plugin_api: where the plugin is in that, `module:Class`.
        optional: ask the plugin only where a user wants it.
        static_properties: features that every machine has, and their values, the best first.
        feature_order: the features of these, the most important first.
        builtin: the name of a provider that installers have themselves.
    """

    requires: tuple[str, ...] = ()
    plugin_api: str | None = None
    optional: bool = False
    static_properties: _Features = msgspec.field(default_factory=dict)
    feature_order: tuple[_Word, ...] = ()
    builtin: str | None = None


class Variants(datafile.Value, rename="kebab"):
    """What `variant.json` says of one variant, and the file of an index of all those of a version.

    Attributes:
        schema: the address of the JSON schema, which tells the version of the format.
        default_priorities: see `Priorities`.
        providers: namespace to provider.
        variants: label to namespace to feature to values; a machine must have one value of each feature.
    """

    schema: str = msgspec.field(name="$schema", default=SCHEMA)
    default_priorities: Priorities
    providers: Mapping[_Word, Provider]
    variants: Mapping[_Label, _Properties]


def with_label(file_name: str, label: str) -> str:
    """The file name of the variant of a wheel."""
    return f"{file_name.removesuffix('.whl')}-{label}.whl"


def index_file_name(file_name: str) -> str:
    """The name of the index file for all variants of a version, from the file name of one variant."""
    prefix, version = file_name.split("-")[:2]
    name = canonicalize_name(prefix).replace("-", "_")
    return f"{name}-{canonicalize_version(version, strip_trailing_zero=False)}-variants.json"


def loads(data: bytes, *, name: str) -> Variants:
    """Read a `variant.json`, or the file of an index.

    Raises:
        WheelError: it is not one by PEP 825 and 850, or of a different version of these.
    """
    try:
        variants = datafile.loads(data, Variants, name=name)
    except UsageError as error:
        raise WheelError(str(error), tip="make the variants again") from error
    if problem := next(_problems(variants), None):
        raise WheelError(f"{name}: {problem}", tip="make the variants again")
    return variants


def of_wheel(data: bytes, file_name: str) -> Variants:
    """Read the `variant.json` of a variant of this file name.

    Raises:
        WheelError: it cannot be read, or is of a different label.
    """
    variants, label = loads(data, name=IN_WHEEL), split_label(file_name)[1]
    if tuple(variants.variants) != (label,):
        labels = " and ".join(variants.variants) or "no variant"
        named = f"has the label {label}" if label else "has no label"
        raise WheelError(
            f"the {IN_WHEEL} of {file_name} is of {labels}, and its name {named}",
            tip="a variant cannot be renamed: make it again",
        )
    return variants


def merged(first: Variants, second: Variants) -> Variants:
    """The variants of both files, which are of one version (PEP 825, "Metadata consistency").

    Raises:
        WheelError: they contradict each other.
    """
    short, long = sorted((first.default_priorities.namespace, second.default_priorities.namespace), key=len)
    if long[: len(short)] != short:
        raise WheelError(
            f"variants of one version order {', '.join(short)} and {', '.join(long)} differently"
        )
    for what, mine, theirs in (
        ("label", first.variants, second.variants),
        ("provider", first.providers, second.providers),
    ):
        for name in sorted(mine.keys() & theirs.keys()):
            if mine[name] != theirs[name]:
                raise WheelError(f"two variants of one version say different things of the {what} {name}")
    variants = {**first.variants, **second.variants}
    return Variants(
        default_priorities=Priorities(namespace=long),
        providers={**first.providers, **second.providers},
        variants={label: variants[label] for label in sorted(variants)},
    )


def _problems(variants: Variants) -> Iterator[str]:
    """Problems beyond the types of the fields."""
    if variants.schema != SCHEMA:
        yield f"its $schema is {variants.schema[:200]!r}, and only {SCHEMA} is known"
    namespaces = variants.default_priorities.namespace
    if set(variants.providers) != set(namespaces) or len(set(namespaces)) < len(namespaces):
        yield "its default-priorities do not name the namespace of each provider once"
    for name, provider in variants.providers.items():
        ways = (provider.requires, provider.static_properties, provider.builtin)
        if sum(map(bool, ways)) != 1:
            yield f"its provider {name} must have one of requires, static-properties and builtin"
    yield from _label_problems(variants)


def _label_problems(variants: Variants) -> Iterator[str]:
    for label, properties in variants.variants.items():
        if unknown := sorted(properties.keys() - variants.providers.keys()):
            yield f"its variant {label} has properties of {unknown[0]}, for which it has no provider"
        if (label == NULL) == any(properties.values()):
            yield f"its variant {label} {'has' if label == NULL else 'has no'} properties"
        every = [pair for features in properties.values() for pair in features.items()]
        for feature, values in every:
            if list(values) != sorted(set(values)):
                yield f"its variant {label} does not have the values of {feature} in order, each once"
