"""The Dockerfiles that there are, and building and pushing an image of one, by one of the three engines."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cairn import process
from cairn.errors import StoreError, UsageError
from cairn.images.engines import Engine
from cairn.output import Progress, wording

SUFFIX = ".Dockerfile"
FOLDER = "dockerfiles"
SECRET = "pip.conf"  # noqa: S105 - the name under which a Dockerfile finds pip's configuration
_REVISION = "org.opencontainers.image.revision"
_SOURCE = "org.opencontainers.image.source"
_ARGUMENT = re.compile(r"^ARG ([A-Za-z_][A-Za-z0-9_]*)(?:=(\S*))?\s*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Dockerfile:
    """How one image is built.

    Attributes:
        path: of the file; the image is called like it. What it copies is beside it.
        text: the whole of it.
    """

    path: Path
    text: str

    @property
    def name(self) -> str:
        """The image's."""
        return self.path.name.removesuffix(SUFFIX)

    @property
    def arguments(self) -> Mapping[str, str]:
        """Its build arguments with their defaults; one that is declared again keeps its first."""
        arguments: dict[str, str] = {}
        for name, default in _ARGUMENT.findall(self.text):
            arguments[name] = arguments.get(name) or default
        return arguments


def folder(start: Path) -> Path:
    """The `dockerfiles/` of a folder or of one above it, else that of the checkout Cairn runs from.

    Raises:
        UsageError: there is none.
    """
    ours = Path(__file__).resolve().parents[3]
    for place in (start.absolute(), *start.absolute().parents, ours):
        if any((place / FOLDER).glob(f"*{SUFFIX}")):
            return place / FOLDER
    raise UsageError(f"there is no folder {FOLDER} here", tip="name a Dockerfile by its path")


def find(name: str, start: Path) -> Dockerfile:
    """The Dockerfile of an image.

    Args:
        name: of the image, or the path of a Dockerfile.
        start: the folder to look in, and upwards from.

    Raises:
        UsageError: there is none of that name.
    """
    path = Path(name)
    if not path.is_file():
        if "/" in name or "\\" in name:
            raise UsageError(f"there is no Dockerfile {name}")
        place = folder(start)
        path = place / f"{name.removesuffix(SUFFIX)}{SUFFIX}"
        if not path.is_file():
            known = sorted(file.name.removesuffix(SUFFIX) for file in place.glob(f"*{SUFFIX}"))
            raise UsageError(
                f"there is no image {name!r} in {place}",
                tip=wording.did_you_mean(name, known, what="the images are"),
            )
    return Dockerfile(path=path, text=path.read_text(encoding="utf-8"))


@dataclass(frozen=True, kw_only=True)
class ImageBuild:
    """What to build.

    Attributes:
        file: how.
        engine: by which program.
        tags: the names it gets, each perhaps with a registry before it and a tag after it.
        arguments: build arguments that are not left at their defaults.
        epoch: seconds since 1970 that every time stamp in the image gets (`SOURCE_DATE_EPOCH`); None: now.
        revision: the commit of the Dockerfile, for its label, or None.
        source: where that commit is from, or None.
        pip_config: a configuration of pip for this build alone: nothing of it gets into the image.
        extra: further arguments of the engine.
    """

    file: Dockerfile
    engine: Engine
    tags: tuple[str, ...]
    arguments: Mapping[str, str] = field(default_factory=dict)
    epoch: int | None = None
    revision: str | None = None
    source: str | None = None
    pip_config: Path | None = None
    extra: tuple[str, ...] = ()


def command(build: ImageBuild) -> tuple[str, ...]:
    """The command line that builds it.

    Raises:
        UsageError: the Dockerfile has no such build argument.
    """
    known = build.file.arguments
    for name in build.arguments:
        if name not in known:
            raise UsageError(
                f"{build.file.path.name} has no build argument {name}",
                tip=wording.did_you_mean(name, tuple(known), what="it has"),
            )
    words = [build.engine, "build", "--file", str(build.file.path)]
    words += [word for tag in build.tags for word in ("--tag", tag)]
    words += [word for item in build.arguments.items() for word in ("--build-arg", "=".join(item))]
    labels = {_REVISION: build.revision, _SOURCE: build.source}
    words += [word for name, value in labels.items() if value for word in ("--label", f"{name}={value}")]
    if build.epoch is not None:
        # BuildKit takes the variable of reproducible-builds.org as a build argument; Buildah has an option.
        arguments = ("--build-arg", f"SOURCE_DATE_EPOCH={build.epoch}")
        words += arguments if build.engine == "docker" else ("--timestamp", str(build.epoch))
    if build.pip_config is not None:
        words += ["--secret", f"id={SECRET},src={build.pip_config}"]
    return (*words, *build.extra, str(build.file.path.parent))


def push_commands(build: ImageBuild, digest_file: Path) -> tuple[tuple[str, ...], ...]:
    """The command lines that push every tag; all but docker's leave the digest in a file."""
    noted = () if build.engine == "docker" else ("--digestfile", str(digest_file))
    return tuple((build.engine, "push", *noted, tag) for tag in build.tags)


def run(build: ImageBuild, *, on_line: Progress | None = None) -> None:
    """Build it.

    Raises:
        ProcessError: a step of it failed.
    """
    process.run(command(build), on_line=on_line)


def push(build: ImageBuild, *, on_line: Progress | None = None) -> str:
    """Push every tag of an image that was built; gives its name by digest, `repository@sha256:…`.

    Raises:
        ProcessError: a registry refused.
        StoreError: it took the image, and its digest is not known.
    """
    with tempfile.TemporaryDirectory() as folder:
        noted = Path(folder) / "digest"
        repository, digest = _repository(build.tags[0]), ""
        for words in push_commands(build, noted):
            process.run(words, on_line=on_line)
            if build.engine != "docker":  # a different registry may have it compressed in a different way
                digest = digest or noted.read_text(encoding="ascii").strip()
        return f"{repository}@{digest}" if digest else _docker_digest(build.tags[0], repository)


def _docker_digest(tag: str, repository: str) -> str:
    result = process.run(["docker", "image", "inspect", "--format", "{{json .RepoDigests}}", tag])
    # Docker writes `docker.io/library/x` as `x`: then the digest is right under the one name there is.
    digests = [str(name) for name in json.loads(result.output) or ()]
    named = [name for name in digests if name.startswith(f"{repository}@")] or digests
    if not named:
        raise StoreError(f"docker pushed {tag}, and does not know its digest", tip="read it in the registry")
    return named[0]


def _repository(tag: str) -> str:
    """A name without its tag; the colon of a port is followed by a slash."""
    head, colon, last = tag.rpartition(":")
    return head if colon and "/" not in last else tag
