"""A local index in the shape of AMD's `https://stable.repo.amd.com/rocm/whl-next/`, with small wheels.

Its root only routes: `/rocm/whl-next/<project>/` leads to `/rocm/{core,pytorch}/whl-next/<project>/`, where
pages and files are; a project that nobody owns is a 404. Pages have a `<base href>`, `data-` attributes, and
no hash.
"""

from __future__ import annotations

import contextlib
import hashlib
import html
import http.server
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from packaging.utils import canonicalize_name

from cairn import interpreters
from helpers import packing
from helpers.range_server import part_of
from helpers.serving import QuietHandler

_HERE = interpreters.current()
TAG = f"cp{_HERE.version.replace('.', '')}-cp{_HERE.version.replace('.', '')}-{_HERE.platform}"
# AOTriton's images are in a wheel of a family, beside that of each target (ROCm/TheRock, issue 6223).
_AOTRITON = {"gfx1100": "gfx110x", "gfx1101": "gfx110x", "gfx1151": "gfx115x", "gfx1201": "gfx12-0"}
_CORE = ("rocm", "rocm-")


_CPU_TORCH = """\
VERSION = __version__ = "{version}"
class ones:
    def __init__(self, *size, device): assert device == "cpu"
    def __matmul__(self, other): return self
    def sum(self): return 512.0**3
"""


class Release(NamedTuple):
    """Which versions go together, without what they say of ROCm, and of which ROCm they are."""

    rocm: str
    torch: str
    vision: str
    audio: str


# As AMD's documentation names them (ROCm 10.1, 2026-10).
NEWEST = Release("10.1.0", "2.14.0", "0.29.0a0", "2.11.0.3")
OLDER_TORCH = Release("10.1.0", "2.13.0", "0.28.0", "2.11.0.2")
OLDER_ROCM = Release("10.0.0", "2.13.0", "0.28.0", "2.11.0.2")


@dataclass
class WhlNext:
    """The index: wheels in a folder, and how its pages show them.

    Attributes:
        folder: of its files.
        hidden: what pages leave out: beginnings of file names.
        hashed: pages have a sha256.
        unhashed: what has none all the same: beginnings of file names.
        absent: what pages list and the server does not have: beginnings of file names.
        sidecars: wheels have their METADATA beside them (PEP 658).
        ranges: the server sends parts of files.
        down: the server answers with 503.
        asked: the paths that were asked for.
    """

    folder: Path
    hidden: list[str] = field(default_factory=list)
    hashed: bool = False
    unhashed: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    sidecars: bool = True
    ranges: bool = False
    down: bool = False
    asked: list[str] = field(default_factory=list)
    address: str = ""

    @property
    def url(self) -> str:
        """Its root."""
        return f"{self.address}/rocm/whl-next/"

    def add(self, release: Release, targets: Sequence[str], *, torch: str = "VERSION = 1\n") -> None:
        """Write the wheels of a release for these targets."""
        local = f"+rocm{release.rocm}"
        versions = {
            "torch": release.torch + local,
            "torchvision": release.vision + local,
            "torchaudio": release.audio + local,
        }
        for name in ("rocm-bootstrap", "rocm-sdk-core", "rocm-sdk-libraries", "rocm-sdk-devel"):
            self._write(name, release.rocm, {f"{name.replace('-', '_')}/__init__.py": ""})
        parts = {"libraries": "rocm-sdk-libraries", "devel": "rocm-sdk-devel"}
        parts |= {f"device-{target}": f"rocm-sdk-device-{target}" for target in targets}
        needs = [f'{part}=={release.rocm}; extra == "{extra}"' for extra, part in parts.items()]
        self._write(
            "rocm",
            release.rocm,
            {"rocm/__init__.py": ""},
            requires=[f"rocm-sdk-core=={release.rocm}", *needs],
            extras=parts,
        )
        for target in targets:
            self._write(f"rocm-sdk-device-{target}", release.rocm, {f"rocm_{target}.txt": ""})
        pin = f"torch=={versions['torch']}"
        for name, needs in (("torch", [f"rocm[libraries]~={release.rocm}"]), ("torchvision", [pin])):
            extras = {target: [f"amd-{name}-device-{target}"] for target in targets}
            if name == "torch":
                for target in targets:
                    extras[target] += [f"amd-torch-device-{_AOTRITON[target]}"] if target in _AOTRITON else []
            wheels = [wheel for of_target in extras.values() for wheel in of_target]
            for wheel in dict.fromkeys(wheels):
                self._write(wheel, versions[name], {f"{wheel.replace('-', '_')}.txt": ""}, tag=TAG)
            content = torch.replace("{version}", versions[name]) if name == "torch" else "VERSION = 1\n"
            self._write(
                name,
                versions[name],
                {f"{name}/__init__.py": content},
                requires=[
                    *needs,
                    "rocm-bootstrap",
                    *(
                        f'{wheel}=={versions[name]}; extra == "device-{target}"'
                        for target, of_target in {**extras, "all": list(dict.fromkeys(wheels))}.items()
                        for wheel in of_target
                    ),
                    *(
                        f'rocm[device-{target}]~={release.rocm}; extra == "device-{target}"'
                        for target in targets
                        if name == "torch"
                    ),
                ],
                extras=[f"device-{target}" for target in (*targets, "all")],
                tag=TAG,
            )
        self._write(
            "torchaudio", versions["torchaudio"], {"torchaudio/__init__.py": ""}, requires=[pin], tag=TAG
        )

    def add_cpu(self, torch: str, vision: str, audio: str) -> None:
        """Write wheels for the CPU, as PyTorch's index has them: torchvision alone pins torch."""
        for name, version, needs in (
            ("torch", torch, []),
            ("torchvision", vision, [f"torch=={torch.partition('+')[0]}"]),
            ("torchaudio", audio, []),
        ):
            content = (
                f"VERSION = {version!r}\n" if name != "torch" else _CPU_TORCH.replace("{version}", version)
            )
            self._write(name, version, {f"{name}/__init__.py": content}, requires=needs, tag=TAG)

    def _write(
        self,
        name: str,
        version: str,
        members: dict[str, str],
        *,
        requires: Sequence[str] = (),
        extras: Collection[str] = (),
        tag: str = "py3-none-any",
    ) -> None:
        about = f"{name.replace('-', '_')}-{version}.dist-info"
        lines = [
            *("Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"),
            *(f"Provides-Extra: {extra}" for extra in extras),
            *(f"Requires-Dist: {text}" for text in requires),
        ]
        metadata = "\n".join([*lines, ""])
        wheel = packing.write_wheel(
            self.folder, name, version, {**members, f"{about}/METADATA": metadata}, tag=tag
        )
        wheel.with_name(f"{wheel.name}.metadata").write_text(metadata, encoding="utf-8")

    def files(self) -> list[str]:
        """The names of its files."""
        return sorted(path.name for path in self.folder.iterdir() if path.suffix in (".whl", ".gz"))

    def page(self, project: str) -> str | None:
        """The page of a project; None where nobody owns it."""
        names = [name for name in self.files() if canonicalize_name(name.partition("-")[0]) == project]
        if not (shown := [name for name in names if not any(map(name.startswith, self.hidden))]):
            return None
        lines = [f'<!DOCTYPE html><html><head><base href="{self.address}{_place(project)}"></head><body>']
        for name in shown:
            sha256 = hashlib.sha256((self.folder / name).read_bytes()).hexdigest()
            is_hashed = self.hashed and not any(map(name.startswith, self.unhashed))
            end = f"#sha256={sha256}" if is_hashed else ""
            has_sidecar = self.sidecars and (self.folder / f"{name}.metadata").is_file()
            core = ' data-dist-info-metadata="true" data-core-metadata="true"' if has_sidecar else ""
            lines.append(
                f'<a href="{quote(name)}{end}" data-requires-python="&gt;=3.10"{core}>{html.escape(name)}</a>'
            )
        return "\n".join(lines)

    def respond(self, path: str) -> tuple[int, str, bytes]:
        """The status, the content type (or where a redirection leads), and the content at a path."""
        self.asked.append(path)
        parts = unquote(path).strip("/").split("/")
        if self.down:
            return 503, "text/plain", b""
        if parts == ["rocm", "whl-next"]:
            stems = {name.partition("-")[0] for name in self.files()}
            names = [name for name in sorted(map(canonicalize_name, stems)) if self.page(name)]
            links = [f'<a href="{_place(name)}">{name}</a>' for name in names]
            return 200, "text/html", "\n".join(["<title>Simple index</title>", *links]).encode()
        if parts[:2] == ["rocm", "whl-next"] and self.page(parts[2]):
            return 302, _place(parts[2]), b""
        if len(parts) == 5 and (file := self.folder / parts[4]).is_file():
            if any(map(parts[4].startswith, self.absent)):
                return 404, "text/plain", b""
            return 200, "application/octet-stream", file.read_bytes()
        page = self.page(parts[3]) if len(parts) == 4 else None
        return (200, "text/html", page.encode()) if page else (404, "text/plain", b"")

    @contextlib.contextmanager
    def serving(self) -> Iterator[WhlNext]:
        """Serve it on a free port."""
        index = self

        class Handler(QuietHandler):
            def do_GET(self) -> None:  # noqa: N802 - the base's name
                status, kind, data = index.respond(self.path)
                span = self.headers.get("Range") if index.ranges and status == 200 else None
                begin, stop = part_of(len(data), span) if span else (0, len(data))
                self.send_response(206 if span else status)
                if span:
                    self.send_header("Content-Range", f"bytes {begin}-{stop - 1}/{len(data)}")
                data = data[begin:stop]
                self.send_header("Location" if status == 302 else "Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.address = f"http://127.0.0.1:{server.server_address[1]}"
            try:
                yield self
            finally:
                server.shutdown()


def _place(project: str) -> str:
    return f"/rocm/{'core' if project.startswith(_CORE) else 'pytorch'}/whl-next/{project}/"
