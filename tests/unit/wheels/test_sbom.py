from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cairn.errors import WheelError
from cairn.wheels import sbom
from cairn.wheels.metadata import wheel_info
from cairn.wheels.rewrite.wheel import Edit, edit_wheel
from cairn.wheels.sbom import Source
from cairn.wheels.verify import Expectation, verify
from helpers.formats import make_elf
from helpers.wheels import LINUX, MakeWheel, members_of

SOURCES = (
    Source(name="torch", commit="a" * 40, origin="https://github.com/ROCm/pytorch.git"),
    Source(name="third_party/fbgemm", commit="b" * 40),
)
# What CycloneDX 1.6 demands of the parts that are used here, nothing else allowed.
REFERENCE = {"type": "string", "minLength": 1}
COMPONENT = {
    "type": "object",
    "required": ["type", "name"],
    "additionalProperties": False,
    "properties": {
        "type": {"enum": ["application", "framework", "library", "file"]},
        "bom-ref": REFERENCE,
        "name": {"type": "string"},
        "version": {"type": "string", "maxLength": 1024},
        "purl": {"type": "string", "pattern": "^pkg:pypi/"},
        "hashes": {
            "items": {
                "required": ["alg", "content"],
                "properties": {"alg": {"const": "SHA-256"}, "content": {"pattern": "^[a-f0-9]{64}$"}},
            }
        },
        "pedigree": {"properties": {"commits": {"items": {"required": ["uid"]}}}},
        "externalReferences": {"items": {"required": ["url", "type"]}},
    },
}
SHAPE = {
    "type": "object",
    "required": ["bomFormat", "specVersion"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"const": "http://cyclonedx.org/schema/bom-1.6.schema.json"},
        "bomFormat": {"const": "CycloneDX"},
        "specVersion": {"const": "1.6"},
        "version": {"type": "integer", "minimum": 1},
        "metadata": {"properties": {"component": COMPONENT}},
        "components": {"type": "array", "uniqueItems": True, "items": COMPONENT},
        "dependencies": {"type": "array", "uniqueItems": True, "items": {"required": ["ref"]}},
    },
}


def bill(wheel: Path) -> dict[str, Any]:
    members = members_of(wheel)
    name = next(name for name in members if name.endswith(".dist-info/sboms/cairn.cdx.json"))
    found = dict(json.loads(members[name]))
    jsonschema.validate(found, SHAPE)
    refs = [part["bom-ref"] for part in (found["metadata"]["component"], *found["components"])]
    assert len(set(refs)) == len(refs)
    assert {entry["ref"] for entry in found["dependencies"]} == set(refs)
    return found


@pytest.fixture
def listed(make_wheel: MakeWheel, tmp_path: Path) -> Path:
    wheel = make_wheel(
        tags=LINUX,
        version="1.0+rocm7.10.0",
        files={
            "demo/own.so": make_elf(needed=("libfoo-1234.so",)),
            "demo.libs/libfoo-1234.so": make_elf(soname="libfoo-1234.so"),
        },
    )
    return sbom.add(wheel, tmp_path / "listed", sources=SOURCES, rocm_version="7.10.0")


def test_sources_sdk_and_bundled_libraries_are_named(listed: Path) -> None:
    found = bill(listed)
    own = found["metadata"]["component"]
    assert (own["name"], own["version"], own["purl"]) == (
        "demo",
        "1.0+rocm7.10.0",
        "pkg:pypi/demo@1.0%2Brocm7.10.0",
    )
    assert own["pedigree"]["commits"] == [{"uid": "a" * 40, "url": SOURCES[0].origin}]
    parts = {part["name"]: part for part in found["components"]}
    assert set(parts) == {"torch", "third_party/fbgemm", "rocm", "libfoo-1234.so"}
    assert parts["third_party/fbgemm"]["version"] == "b" * 40
    assert "externalReferences" not in parts["third_party/fbgemm"]
    assert parts["rocm"]["version"] == "7.10.0"
    digest = hashlib.sha256(make_elf(soname="libfoo-1234.so")).hexdigest()
    assert parts["libfoo-1234.so"]["hashes"] == [{"alg": "SHA-256", "content": digest}]
    assert verify(listed, Expectation(targets=("cpu",))) == ()


def test_the_same_again_gives_the_same_bytes(listed: Path, tmp_path: Path) -> None:
    again = sbom.add(listed, tmp_path / "again", sources=SOURCES, rocm_version="7.10.0")
    assert members_of(again).keys() == members_of(listed).keys()
    assert bill(again) == bill(listed)


def test_it_follows_the_version(listed: Path, tmp_path: Path) -> None:
    before, made = bill(listed), edit_wheel(listed, Edit(version="2.0"), tmp_path / "new")
    after = bill(made)
    assert after["metadata"]["component"]["version"] == "2.0"
    assert after["components"] == before["components"]
    assert after["metadata"]["component"]["pedigree"] == before["metadata"]["component"]["pedigree"]
    assert wheel_info.read(made).version == "2.0"
    assert verify(made, Expectation(targets=("cpu",))) == ()


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"[]", b"{}", b'{"metadata": {"component": {"name": 3}}}', b"\xff", b"[" * 100_000),
        b'{"metadata": {"component": {"name": "\\ud800", "bom-ref": "a"}}, "dependencies": []}',
    ],
)
def test_a_malformed_one_is_an_error_of_ours(make_wheel: MakeWheel, tmp_path: Path, content: bytes) -> None:
    wheel = make_wheel(files={"demo-1.0.dist-info/sboms/cairn.cdx.json": content})
    with pytest.raises(WheelError, match="bill of materials"):
        edit_wheel(wheel, Edit(version="2.0"), tmp_path / "new")


def test_without_rocm_and_sources(make_wheel: MakeWheel, tmp_path: Path) -> None:
    made = sbom.add(make_wheel(), tmp_path / "listed", sources=(), rocm_version=None)
    assert bill(made)["components"] == []


def test_modes_do_not_tell_the_umask_of_the_build(make_wheel: MakeWheel, tmp_path: Path) -> None:
    wheel, strict = make_wheel(files={"demo/a.py": b"", "demo/run": b""}), tmp_path / "strict"
    strict.mkdir()
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(strict / wheel.name, "w") as target:
        for info in source.infolist():
            info.external_attr = (0o100700 if info.filename == "demo/run" else 0o100600) << 16
            target.writestr(info, source.read(info.filename))
    listed = sbom.add(strict / wheel.name, tmp_path / "listed", sources=SOURCES, rocm_version=None)
    with zipfile.ZipFile(listed) as archive:
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
    assert {name for name, mode in modes.items() if mode == 0o100755} == {"demo/run"}
    assert {*modes.values()} == {0o100644, 0o100755}
    assert not verify(listed, Expectation(targets=("cpu",)))
