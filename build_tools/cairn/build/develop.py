"""Build a project in its checkout and install it as editable: upstream's `setup.py develop`.

The environment and the variables are those of the real build, so that what works here works in the wheel. A
second run goes on where the first stopped: CMake and ninja compile what was edited, and where setuptools
compiles all sources of an extension again, the compiler cache has those that were not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import structs

from cairn import files, isolation, venv
from cairn.build import backend, build_project, cache, environments, execution, job, plan
from cairn.build.engine.events import CacheStatistics
from cairn.build.inputs import leftovers, machine, source_tree, variables
from cairn.build.model import BuildRequest, BuiltWheel, Job
from cairn.build.plan import BuildStep
from cairn.build.postprocess import Context
from cairn.errors import ProcessError, UsageError
from cairn.output import console, wording
from cairn.sources.git import lock
from cairn.sources.git.repository import root_at
from cairn.sources.hipify import build_step
from cairn.sources.worktree import journal
from cairn.stack import Project


class EditableInstall(msgspec.Struct, frozen=True, kw_only=True):
    """A project that is imported from its checkout.

    Attributes:
        project: its name.
        checkout: where it is edited.
        python: the interpreter that imports it.
        compiler_cache: what the compiler cache counted; None without one.
    """

    project: str
    checkout: Path
    python: Path
    compiler_cache: CacheStatistics | None


def run(build: Job, name: str, *, folder: Path | None = None) -> EditableInstall:
    """Build a project in its checkout, against the wheels it needs, which are built if the cache lacks them.

    Args:
        build: the build that a wheel would come from.
        name: the name of the project, or the folder of its checkout.
        folder: of the environment it is installed into, made where it is missing; None for one of ours.

    Raises:
        UsageError: the stack has no such project.
        BuildError: it does not build.
    """
    project, checkouts = _chosen(build, name)
    build = structs.replace(build, checkouts=checkouts, required=frozenset({project.name}))
    (build,) = job.check((build,))
    # To its end: another build would take SDK and environment away under the compilers.
    with job.alone(build.environments()):
        request = job.resolve(build, job.sdk_of(build))
        whole = plan.make(request)
        step = next(step for step in whole if step.project.name == project.name)
        needed = tuple(each for each in whole if each is not step)
        built = {wheel.project: wheel for wheel in (execution.run(needed) if needed else ())}
        place = folder or request.work_dir / project.name / "develop"
        with console.current().stage(f"build {project.name} in {step.checkout}") as stage:
            counted = _build(step, request, built, place, stage)
    if counted is not None:
        console.current().info(f"  {project.name}: {counted}")
    return EditableInstall(
        project=project.name,
        checkout=step.checkout,
        python=venv.describe(place).python,
        compiler_cache=counted,
    )


def _chosen(build: Job, text: str) -> tuple[Project, dict[str, Path]]:
    """Return the project of a name or folder, and its checkout and those of all that it needs."""
    stack, folder = build.stack, Path(text)
    names = [p.name for p in stack.projects if text in (p.name, p.distribution)]
    checkouts = dict(build.checkouts)
    if not names and folder.is_dir():
        names = [n for n, path in checkouts.items() if path.exists() and path.samefile(folder)]
        if not names and (note := journal.read(root_at(folder).git_dir)) is not None:
            names = [note.project]  # made by `checkout`, elsewhere than the stack's default
        for name in names:
            checkouts[name] = folder
    if not names or names[0] not in checkouts:
        raise UsageError(
            f"{text} is neither a project of the stack {stack.name} nor a checkout of one",
            tip=wording.did_you_mean(text, [p.name for p in stack.projects], what="its projects are"),
        )
    project, needed = stack.project(names[0]), {names[0]}
    while more := {n for p in stack.projects if p.name in needed for n in p.needs} - needed:
        needed |= more
    return project, {name: path for name, path in checkouts.items() if name in needed}


def _build(
    step: BuildStep,
    request: BuildRequest,
    built: Mapping[str, BuiltWheel],
    place: Path,
    stage: console.Stage,
) -> CacheStatistics | None:
    if request.sdk is None:
        machine.require_host_compiler(request.env_of(step.project))
    log = request.output_dir / "logs" / f"{step.project.name}-develop.log"
    files.write_text(log, f"{isolation.level(network=request.has_network(step.project))}\n")
    content = backend.content_of(step, request, built)
    with environments.at(place, content, request.packages(), log=log, say=stage.update) as env:
        context = backend.context_of(env, step, request, built, stage, log=log)
        settings = variables.expand_all(
            step.project.config_settings, context.values, where=f"config_settings of {step.project.name}"
        )
        command = [*venv.pip_command(env.python), "--no-deps", "--no-build-isolation", "--no-index"]
        for name, text in settings.items():
            command += ["--config-settings", f"{name}={text}"]
        with _in_tree(context), backend.prepare(context, [context.env.path]) as ready:
            try:
                ready.run([*command, "--editable", str(step.source_dir())])
            except ProcessError as error:
                raise backend.failure(context, error) from error
    return ready.compiler_cache


@contextlib.contextmanager
def _in_tree(context: Context) -> Iterator[None]:
    """Lock the tree, bring back outputs of earlier editable builds, move aside those of other builds.

    What is built stays: a real build moves it aside, and the next run here brings it back.
    """
    step, request = context.step, context.request
    root = root_at(step.checkout)
    settings_digest = cache.key_of({"develop": step.settings_digest})
    module = build_project.module_of(context)
    with lock.hold(step.checkout):
        source_tree.tidy(step.checkout, step.project.rocm_init)
        if request.clean:
            leftovers.clear(root, step.project.source_dirs)
        recorded = build_step.recorded(step.checkout, step.project.hipify, gpu=request.sdk is not None)
        with (
            leftovers.exchange(root, settings_digest, step.project.source_dirs),
            build_project.lend_module(context),
            source_tree.restore_egg_info(step.checkout),
            recorded,
        ):
            yield
        if module is not None:  # it is imported from here; `source_tree.tidy` removes it for the next build
            path, text = module
            files.write_text(step.checkout / path, text)
