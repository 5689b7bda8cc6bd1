import hashlib
from pathlib import Path
from typing import Protocol

import pytest


class MakeWheel(Protocol):
    def __call__(self, content: bytes = ..., name: str = ...) -> Path: ...


@pytest.fixture
def make_wheel(tmp_path: Path) -> MakeWheel:
    """Writes a file that is called like a wheel, in a new folder each time."""

    def make(content: bytes = b"wheel", name: str = "a-1-py3-none-any.whl") -> Path:
        folder = tmp_path / "built" / hashlib.sha256(content).hexdigest()[:8]
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name
        path.write_bytes(content)
        return path

    return make


@pytest.fixture
def wheel(make_wheel: MakeWheel) -> Path:
    return make_wheel()
