"""The modules run on the libraries of the installed torch."""

from pathlib import Path

import pytest
import torch
import torchaudio
import torchvision

MAPS = Path("/proc/self/maps")
EXPECTED = ("libc10.so", "libtorch_cpu.so", *(("libtorch_hip.so",) if torch.version.hip else ()))


def loaded() -> dict[str, set[Path]]:
    """The files mapped into this process, by their names."""
    found: dict[str, set[Path]] = {}
    for line in MAPS.read_text(encoding="utf-8").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith("/"):
            found.setdefault(Path(fields[5]).name, set()).add(Path(fields[5]))
    return found


@pytest.mark.skipif(not MAPS.exists(), reason="this system does not tell which libraries are loaded")
@pytest.mark.parametrize("name", EXPECTED)
def test_each_library_is_loaded_once_from_torch(name: str) -> None:
    assert torchaudio.__version__
    assert torchvision.__version__
    lib = Path(torch.__file__).resolve().parent / "lib"
    assert {path.resolve() for path in loaded()[name]} == {lib / name}
