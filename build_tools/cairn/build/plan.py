"""What a build will do, before it does it: the order, the keys, and what is already in the cache.

A project is built again when its key is new. The key is a sha256 over everything that may change the wheel:

- the settings of the build (`_settings`): the stack's words on the project, targets, SDK, Python, compilers;
- the tree as it is now, local edits included, and what lies there that git does not see;
- the keys of the wheels it is built against: a rebuilt torch rebuilds torchvision.

A tree in which a build of the same settings has left its build folder has a second key, since going on with
that folder may give different bytes: the wheel of such a build is found again from this tree alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cairn.build import cache
from cairn.build.inputs import leftovers, source_tree, toolchain, variables
from cairn.build.model import BuildRequest
from cairn.errors import SourceError
from cairn.sources.git.repository import root_at
from cairn.sources.worktree import contents
from cairn.stack import Project


@dataclass(frozen=True, kw_only=True)
class BuildStep:
    """One project of the plan.

    Attributes:
        project: what is built.
        checkout: its tree.
        base_version: of its version file; None where the built wheel alone knows it.
        needs: name to key of the steps that come first.
        flavour: names the settings of the build: all of the key but the tree and the wheels built before.
        key: of the cache, over everything that may change the wheel.
        hit: the wheel, where the cache has it.
    """

    project: Project
    checkout: Path
    base_version: str | None
    needs: Mapping[str, str]
    flavour: str
    key: str
    hit: cache.Hit | None

    def source_dir(self) -> Path:
        """The folder whose build backend is called.

        Raises:
            SourceError: no folder of the tree has a `pyproject.toml` or a `setup.py`.
        """
        return source_tree.source_dir(self.project, self.checkout)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The steps, each after those it needs."""

    request: BuildRequest
    steps: tuple[BuildStep, ...]


def make(request: BuildRequest) -> Plan:
    """Look at the trees and the cache; removes from the trees the modules that killed builds left there.

    Raises:
        SourceError: a checkout is missing, or lacks its version file.
    """
    wheel_cache = cache.WheelCache(request.cache_dir)
    identities: dict[str, str] = {}
    steps = []
    for project in request.projects():
        checkout = request.checkouts[project.name]
        if not checkout.is_dir():
            raise SourceError(
                f"there is no checkout of {project.name} at {checkout}",
                tip="check it out first, or name its folder",
            )
        base_version = source_tree.read_version(project, checkout)
        source_tree.tidy(checkout, project.rocm_init)  # first: what lies in the tree is part of the key
        needs = {name: identities[name] for name in project.needs if name in request.checkouts}
        keys = keys_of(request, project, checkout=checkout, needs=needs)
        hit = None if request.clean else next(filter(None, map(wheel_cache.get, keys.all())), None)
        # What builds against this wheel knows it by the key it was first built under: whether it comes from a
        # build or from the cache, and under which of its keys, must not make others build again.
        identities[project.name] = hit.identity if hit else keys.own
        steps.append(
            BuildStep(
                project=project,
                checkout=checkout,
                base_version=base_version,
                needs=needs,
                flavour=keys.flavour,
                key=keys.own,
                hit=hit,
            )
        )
    return Plan(request=request, steps=tuple(steps))


@dataclass(frozen=True, kw_only=True)
class Keys:
    """Under which names the cache may have a wheel.

    Attributes:
        flavour: as in `BuildStep`.
        clean: of a build that begins with the files the key covers and nothing else; any tree may have it.
        own: of a build that goes on with what earlier ones left in this very tree; `clean` where there is
            nothing of that kind.
        cmake: see `cairn.build.inputs.leftovers.Seen`.
    """

    flavour: str
    clean: str
    own: str
    cmake: str | None

    def all(self) -> tuple[str, ...]:
        """Each once, the better one first."""
        return tuple(dict.fromkeys((self.clean, self.own)))


def keys_of(request: BuildRequest, project: Project, *, checkout: Path, needs: Mapping[str, str]) -> Keys:
    """The cache keys of a project's build, from its tree as it is now.

    Args:
        request: the build.
        project: what is built.
        checkout: its tree; local edits count.
        needs: project name to key, for the wheels it is built against.
    """
    settings = _settings(request, project)
    flavour = cache.key_of(settings)
    seen = leftovers.look(root_at(checkout), flavour, project.source_dirs, clean=request.clean)
    inputs = {
        **settings,
        "tree": contents.tree_state(checkout),
        "unseen": seen.foreign,
        "upstream": source_tree.upstream(checkout),  # the wheel's bill of materials names both
        "needs": dict(needs),
    }
    clean = cache.key_of(inputs)
    own = clean if seen.start is None else cache.key_of({"clean": clean, "start": seen.start})
    return Keys(flavour=flavour, clean=clean, own=own, cmake=seen.cmake)


def _settings(request: BuildRequest, project: Project) -> dict[str, object]:
    """All that may change the wheel except its tree and the wheels it is built against.

    What only makes a build faster or slower is not here: the number of jobs, the compiler cache.
    """
    rocm_init = None
    if request.sdk is not None and request.stack.sdk is not None:
        # As it is written where the SDK has every library; the SDK's digest tells what it lacks.
        preloads, version = request.stack.sdk.preload, request.sdk.info.version
        rocm_init = source_tree.rocm_init_module(preloads=preloads, rocm_version=version)
    return {
        # The stack's words on the project.
        "project": project.name,
        "distribution": project.distribution,
        "environment": dict(variables.template_of(request.stack, project, for_cpu=request.for_cpu)),
        "source_dirs": list(project.source_dirs),
        "version": [project.version_file, project.version_edit],
        "device_code": project.device_code,
        "requires": [list(project.requires), list(project.requires_rocm)],
        "build_requires": [*project.build_requires, *request.stack.extra_wheels],
        "build_requires_file": project.build_requires_file,
        "config_settings": dict(project.config_settings),
        "rocm_init": [project.rocm_init, rocm_init],
        # What the user asked for, and what the machine has.
        "sdk": request.sdk.digest if request.sdk else None,
        "targets": list(request.targets),
        "build_env": request.env_of(project),
        "version_suffix": request.version_suffix,
        "build_number": request.build_number,
        "features": sorted(request.features),
        "python": request.python.tag,
        "platform": request.python.platform,
        "toolchain": toolchain.identity(request.python, host_compiler=request.sdk is None),
    }
