"""Manifests of TheRock's, told from others and read strictly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cairn.errors import UsageError
from cairn.sources.manifest import manifest

ENTRY = {"repo": "https://github.com/pytorch/pytorch", "commit": "1" * 40}


def write(folder: Path, data: Any) -> Path:
    path = folder / "m.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


@pytest.mark.parametrize(
    ("data", "is_one"),
    [
        ({"schema_version": 1, "pytorch": ENTRY}, True),
        ({"pytorch": ENTRY}, True),  # before there was a version
        ({"schema_version": 9}, True),
        ({"schema": "cairn.manifest/1", "projects": []}, False),
        ({}, False),
        ([], False),
        ("no JSON", False),
        ("[" * 200_000, False),
    ],
)
def test_it_is_told_from_other_files(tmp_path: Path, data: Any, *, is_one: bool) -> None:
    assert manifest.is_of_therock(write(tmp_path, data)) is is_one


def test_an_entry(tmp_path: Path) -> None:
    whole = ENTRY | {"branch": "nightly", "version": "2.13.0a0+rocm7.14.0"}
    (found,) = manifest.read_therock(
        write(tmp_path, {"schema_version": 1, "pytorch": whole, "therock": ENTRY})
    )
    assert (found.name, found.branch, found.version) == ("pytorch", "nightly", "2.13.0a0+rocm7.14.0")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"schema_version": 2, "pytorch": ENTRY}, "schema_version 2, expected 1"),
        ({"schema_version": True, "pytorch": ENTRY}, "schema_version True"),
        ({"pytorch": {"repo": "x"}}, "pytorch has no commit"),
        ({"pytorch": ENTRY | {"commit": "main"}}, "'main' is not a full commit id"),
        ({"pytorch": ENTRY | {"repo": "--upload-pack=x"}}, "is not a repository"),
        ({"pytorch": ENTRY | {"branch": 7}}, "branch is not text"),
        ({"pytorch": "x"}, "pytorch is not an object"),
        ("[]", "must be a JSON object"),
        ("{", "is not JSON"),
        ("[" * 200_000, "is nested too deep"),
        ('{"pytorch":' * 100_000, "is nested too deep"),
    ],
)
def test_malformed(tmp_path: Path, data: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        manifest.read_therock(write(tmp_path, data))
