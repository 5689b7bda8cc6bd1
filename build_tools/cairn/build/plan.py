"""The plan of a build: the order, the keys, and the wheels that the cache has already.

Making a plan also tidies: it removes the module that an earlier build left in a tree (`source_tree.tidy`),
since all that lies there is part of the key.

A project is built again when its key is new. The key is a sha256 over everything that may change the wheel:

- the settings of the build (`_settings`): the stack's words on the project, targets, SDK, Python, compilers;
- the tree as it is now, local edits included, and what lies there that git does not see;
- the keys of the wheels it is built against: a rebuilt torch rebuilds torchvision.

A tree in which a build of the same settings has left its build folder has a second key, since going on with
that folder may give different bytes: only this tree may use the wheel of such a build again.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import structs
from packaging.utils import canonicalize_name

from cairn import datafile, platforms
from cairn import targets as gpu
from cairn.build import cache
from cairn.build.cache import Check
from cairn.build.inputs import leftovers, machine, source_tree, variables
from cairn.build.model import BuildRequest
from cairn.errors import SourceError, WheelError
from cairn.sources.checkout import describe
from cairn.sources.git.repository import root_at
from cairn.sources.worktree import contents
from cairn.stack import Project
from cairn.wheels.metadata import wheel_info

POSTPROCESS_VERSION = 4
"""Counted up with each change of what `cairn.build.postprocess` makes of a wheel: it is in every key, and not
among the settings that tell build folders apart. So wheels are made again, and nothing is compiled for it."""


class BuildStep(msgspec.Struct, frozen=True, kw_only=True):
    """One project of a build.

    Attributes:
        request: the build.
        label: which variant it is of, in a few words; empty where there is one alone.
        project: what is built.
        checkout: its tree.
        base_version: of its version file; None where the built wheel alone knows it.
        needs: name to `first_key` of the steps that come first.
        settings_digest: of the settings of the build, and of the compiler cache's launchers: what a build
            folder was made with, and must be used with again (`cairn.build.inputs.leftovers`).
        key: of the cache, over everything that may change the wheel.
        inputs: what the key is a digest of; where the cache lacks it, also the edited files of the tree,
            which are in no key (`cairn build --explain`).
        private: the key means nothing outside of this tree, or of this machine.
        hit: the wheel, where the cache has it.
    """

    request: BuildRequest
    label: str = ""
    project: Project
    checkout: Path
    base_version: str | None
    needs: Mapping[str, str]
    settings_digest: str
    key: str
    private: bool
    inputs: Mapping[str, object] = msgspec.field(default_factory=dict)
    hit: cache.Hit | None

    @property
    def name(self) -> str:
        """Its name in the whole run: `build torch`, or `build torch [gfx942 3.12]` of several variants."""
        return self.name_for(self.project.name)

    def name_for(self, project: str) -> str:
        """Return the name of the step that builds a project of the same variant."""
        return f"build {project} [{self.label}]" if self.label else f"build {project}"

    @property
    def first_key(self) -> str:
        """The key that its wheel was first built under, by which builds against it know it.

        Whether it comes from a build or from the cache, and under which of its keys, must not make others
        build again.
        """
        return self.hit.entry.first_key if self.hit else self.key

    def source_dir(self) -> Path:
        """The folder whose build backend is called.

        Raises:
            SourceError: no folder of the tree has a `pyproject.toml` or a `setup.py`.
        """
        return source_tree.source_dir(self.project, self.checkout)


Plan: TypeAlias = tuple[BuildStep, ...]
"""The steps of a build, each after those it needs."""


class Trees:
    """The states of trees, read once each: the plans of many variants are made from the same checkouts."""

    def __init__(self) -> None:
        self.digest = functools.cache(contents.tree_state)  # of a tree's files
        self.upstream = functools.cache(source_tree.upstream)  # its commit and origin, before local commits
        self.edited_files = functools.cache(source_tree.edited_files)  # by name, to tell what changed since


def make(request: BuildRequest, *, trees: Trees | None = None) -> Plan:
    """Remove what earlier builds left in the trees (`source_tree.tidy`), then look at them and at the cache.

    Args:
        request: what is built.
        trees: what is known of trees from another plan, made just now.

    Raises:
        SourceError: a checkout is missing, or lacks its version file.
    """
    trees = trees or Trees()
    first_keys: dict[str, str] = {}
    steps = []
    for project in request.projects():
        needs = {name: first_keys[name] for name in project.needs if name in request.checkouts}
        step = step_of(request, project, needs=needs, trees=trees)
        first_keys[project.name] = step.first_key
        steps.append(step)
    return tuple(steps)


def make_all(requests: Sequence[BuildRequest]) -> tuple[Plan, ...]:
    """Make the plans of several variants; each tree is read once."""
    trees = Trees()
    return tuple(make(request, trees=trees) for request in requests)


def step_of(
    request: BuildRequest,
    project: Project,
    *,
    needs: Mapping[str, str],
    trees: Trees | None = None,
    checkout: Path | None = None,
) -> BuildStep:
    """Make the step that builds a project from its tree as it is now.

    Args:
        request: the build.
        project: what is built.
        needs: project name to `BuildStep.first_key`, for the wheels it is built against.
        trees: what is known of trees; they are read otherwise.
        checkout: the tree; None for the checkout that the request names.

    Raises:
        SourceError: its checkout is missing, or lacks its version file.
    """
    trees = trees or Trees()
    checkout = checkout or request.checkouts[project.name]
    if not checkout.is_dir():
        raise SourceError(
            f"there is no checkout of {project.name} at {checkout}",
            tip="check it out first, or name its folder",
        )
    base_version = describe.base_version(project, checkout)
    source_tree.tidy(checkout, project.rocm_init)  # first: what lies in the tree is part of the key
    keys = keys_of(request, project, checkout=checkout, needs=needs, trees=trees)
    wheel_cache, hit = request.wheel_cache, None
    if not request.clean:
        # A shared wheel is taken only under the clean key, and only after it was verified.
        hit = wheel_cache.get(keys.clean, check=check_of(project, request), private=keys.private)
        hit = hit or wheel_cache.get(keys.in_tree, private=True)
    inputs = keys.inputs
    if hit is None:  # for `--explain`, and in no key
        inputs = {**inputs, source_tree.SOURCES: trees.edited_files(checkout)}
    return BuildStep(
        request=request,
        project=project,
        checkout=checkout,
        base_version=base_version,
        needs=dict(needs),
        settings_digest=keys.settings_digest,
        key=keys.in_tree,
        private=keys.private or keys.in_tree != keys.clean,
        inputs=inputs,
        hit=hit,
    )


def check_of(project: Project, request: BuildRequest) -> Check:
    """Return the check for wheels of `project` that come from a shared cache.

    It is what a built wheel goes through, except for what takes its build environment: whether the libraries
    that it needs come with the packages beside it. The key of the wheel covers those.
    """

    def check(wheel: Path) -> None:
        from cairn.wheels.verify import Expectation, verify  # noqa: PLC0415 - see `cairn.build.job`
        from cairn.wheels.verify.findings import apply_allowed, read_allowed  # noqa: PLC0415

        name = wheel_info.parse_file_name(wheel.name)
        if name.distribution != canonicalize_name(project.distribution):
            raise WheelError(f"{wheel.name} is not a wheel of {project.distribution}")
        expected = Expectation(
            targets=request.targets if project.device_code else (gpu.CPU,),
            require_device_code=project.device_code and not request.for_cpu,
            provided_libraries=("*",),
            python=request.python.version,
        )
        allowed = request.stack.gate.allow
        entries = read_allowed([Path(allowed)] if allowed else [])
        judged = apply_allowed({wheel: verify(wheel, expected)}, entries, today=datetime.now(UTC).date())
        if findings := judged.findings[wheel]:
            first = findings[0]
            raise WheelError(f"{wheel.name}: {first.member or 'the wheel'}: {first.reason}", tip=first.fix)

    return check


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    """The cache keys of one build.

    Attributes:
        settings_digest: as in `BuildStep`.
        clean: of a build that starts without a leftover build folder; any tree may have it.
        in_tree: of a build that goes on with what earlier ones left in this very tree; `clean` where there is
            nothing of that kind.
        cmake: see `cairn.build.inputs.leftovers.TreeLeftovers`; `build_project` warns of it.
        inputs: what `in_tree` is a digest of.
        private: not all inputs of this machine are known: neither key means anything on another.
    """

    settings_digest: str
    clean: str
    in_tree: str
    cmake: str | None
    inputs: Mapping[str, object]
    private: bool = False

    def in_lookup_order(self) -> tuple[str, ...]:
        """Each once, the clean one first."""
        return tuple(dict.fromkeys((self.clean, self.in_tree)))


def keys_of(
    request: BuildRequest,
    project: Project,
    *,
    checkout: Path,
    needs: Mapping[str, str],
    trees: Trees | None = None,
) -> Keys:
    """Compute the cache keys of a project's build from its tree as it is now.

    Args:
        request: the build.
        project: what is built.
        checkout: its tree; local edits count.
        needs: project name to `BuildStep.first_key`, for the wheels it is built against.
        trees: what is known of trees; they are read otherwise.
    """
    trees = trees or Trees()
    template = variables.template_of(request.stack, project, for_cpu=request.for_cpu)
    # Folders that are inputs of a build by themselves.
    inside = [*request.checkouts.values(), checkout, request.work_dir, request.output_dir]
    inside += [request.sdk.environment] if request.sdk else []
    outside = machine.look_outside(
        {**project.config_settings, **template, **request.env_of(project)}, inside=inside
    )
    settings = {**_settings(request, project), "outside": outside}
    # CMake keeps the launchers' path in the tree: it must not be met by a build without them.
    launching = {"launchers": str(request.launchers_of(project))} if request.compiler_cache else {}
    settings_digest = cache.key_of(settings | launching)
    left = leftovers.look(root_at(checkout), settings_digest, project.source_dirs, clean=request.clean)
    if (place := request.tree_of(project)) != checkout:
        # The build runs in a copy (`cairn.sources.worktree.twin`): unseen files are the checkout's, and what
        # it goes on from is what builds have left in the copy.
        copy = root_at(place)
        of_copy = leftovers.TreeLeftovers()
        if copy.has_commit() and not request.clean:
            of_copy = leftovers.look(copy, settings_digest, project.source_dirs)
        left = structs.replace(left, resumed_from=of_copy.resumed_from)
    # The names are hashed too: with another name, every wheel would be built again.
    inputs = {
        **settings,
        "tree": trees.digest(checkout),
        "unseen": left.unseen,
        "upstream": trees.upstream(checkout),  # the wheel's bill of materials names both
        "needs": dict(needs),
        "finishing": POSTPROCESS_VERSION,
    }
    clean = cache.key_of(inputs)
    in_tree = clean
    if left.resumed_from is not None:
        in_tree = cache.key_of({"clean": clean, "start": left.resumed_from})
        inputs["start"] = left.resumed_from
    return Keys(
        settings_digest=settings_digest,
        clean=clean,
        in_tree=in_tree,
        cmake=left.cmake,
        inputs=inputs,
        private=outside["packages"] is None,
    )


def _settings(request: BuildRequest, project: Project) -> dict[str, object]:
    """Return all inputs that may change the wheel, except its tree and the wheels it is built against.

    Settings that only affect a build's speed are left out: the number of jobs, the compiler cache.
    """
    rocm_init = None
    if request.sdk is not None and request.stack.sdk is not None:
        # As it is written where the SDK has every library; the SDK's digest tells what it lacks.
        preloads = request.stack.sdk.preloads(platforms.here.stack_section())
        version = request.sdk.info.version
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
        **({"network": True} if project.network else {}),
        **({"downloads": [datafile.to_plain(d) for d in project.downloads]} if project.downloads else {}),
        **({"carries": machine.carried_digests(request, project)} if project.carries else {}),
        "stack_files": variables.stack_files(request.stack, project, for_cpu=request.for_cpu),
        "rocm_init": [project.rocm_init, rocm_init],
        # What the user asked for, and what the machine has.
        "sdk": request.sdk.digest if request.sdk else None,
        "targets": list(request.targets),
        "build_env": request.env_of(project),
        "version_suffix": request.suffix_of(project),
        "build_number": request.build_number,
        "features": sorted(request.features),
        "python": request.python.tag,
        "platform": request.python.platform,
        "toolchain": machine.toolchain(
            request.python, host_compiler=request.sdk is None, build_env=request.env_of(project)
        ),
    }
