"""The programs that build and run container images; apart from these, since every `--help` names them."""

from typing import Literal, get_args

Engine = Literal["docker", "podman", "buildah"]
ENGINES: tuple[Engine, ...] = get_args(Engine)
