"""A manifest's digest, which sealed sets name for ever."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from cairn.sources.manifest import manifest

OLD = {
    "schema": "cairn.manifest/1",
    "stack": "mini",
    "line": "main",
    "projects": [
        {
            "name": "torch",
            "distribution": "torch",
            "origin": "https://h/torch",
            "hashtag": "main",
            "commit": "1" * 40,
            "tree": "2" * 40,
            "hipify": "none",
            "version": "2.9.0",
            "submodules": [],
        }
    ],
    "targets": ["cpu"],
    "pythons": ["3.11"],
    "platform": "linux_x86_64",
    "sdk_version": None,
    "toolchain": {},
}


def test_a_manifest_of_old_keeps_its_digest_and_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps(OLD))
    found = manifest.read(path)
    text = json.dumps(OLD, sort_keys=True, separators=(",", ":"))
    assert found.digest() == hashlib.sha256(text.encode()).hexdigest()
    assert found.projects[0].folder == "torch"
