"""Build a released set again from its manifest, and compare the wheels byte by byte.

Nothing of the release helps: the sources come from their origins, the wheels are built in a folder of their
own, and no wheel is taken from a cache. Whoever does this on a machine of their own, and gets the same bytes,
knows that the sources are all that is in the wheels, and so does everybody who believes them
(https://reproducible-builds.org/docs/definition/).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import structs
from packaging.utils import canonicalize_name

from cairn import extras, files, interpreters, venv
from cairn import stack as stacks
from cairn.build import job, preflight
from cairn.build.inputs import machine
from cairn.build.model import BuiltWheel, InstalledSdk, Job, SdkRequest
from cairn.errors import PrerequisiteError, UsageError
from cairn.interpreters import Interpreter
from cairn.output import console
from cairn.output.wording import short_id
from cairn.pipeline.night import build as night_build
from cairn.pipeline.night import plan
from cairn.release import rebuilds, recipes
from cairn.release.index import keys
from cairn.release.index.generation import now
from cairn.release.index.snapshot import MANIFEST_FILE, read_set
from cairn.release.provenance import evidence
from cairn.release.rebuilds import Rebuild, RebuiltWheel
from cairn.release.serve import serving
from cairn.sources.manifest import manifest
from cairn.sources.manifest.manifest import Manifest
from cairn.stack import Stack, recipe
from cairn.store import transfer
from cairn.store.protocol import Store
from cairn.wheels import build_statement
from cairn.wheels.contents import reproducibility
from cairn.wheels.metadata import device_names
from cairn.wheels.wheelset import SetWheel, WheelSet

VERDICT = "rebuild.json"
"""In the work folder: the verdict, unsigned."""

_LOCK_WAIT = 2.0  # seconds: the other takes minutes, and its user should not wait in silence


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    """A set to build again.

    Attributes:
        store: has it.
        set_id: which.
        stack: of the set, on its line.
        index: whose packages of the ROCm SDK builds take, where no address is named.
        rocm_index_url: where the ROCm SDK comes from; empty for the manifest's, else `index`.
        work_dir: receives checkouts, environments, wheels, logs and the verdict.
        jobs: compile jobs at once; 0 is one per processor.
    """

    store: Store
    set_id: str
    stack: Stack
    index: str
    rocm_index_url: str = ""
    work_dir: Path
    jobs: int = 0


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A challenge that can begin.

    Attributes:
        wheel_set: the set.
        frozen: its manifest.
        python: the interpreter to build with.
        toolchain: tools that are of another version here, by name: the manifest's version and this one's.
    """

    wheel_set: WheelSet
    frozen: Manifest
    python: Interpreter
    toolchain: Mapping[str, tuple[str, str]]


def frozen_stack(store: Store, set_id: str, work_dir: Path, *, line: str | None = None) -> Stack:
    """Write the stack that a set was frozen with into the folder `stack-<digest>`; return it on its line.

    Args:
        store: has the set, and the files of its stack.
        set_id: the set.
        work_dir: receives the folder; one of an earlier challenge is taken as long as it is the same.
        line: its line; None for the set's.

    Raises:
        StoreError: the store lacks the set or its stack, or one was changed.
        UsageError: the manifest names no stack, or the folder has other files.
    """
    wheel_set = read_set(store, set_id)
    data = store.read(keys.set_key(set_id, MANIFEST_FILE)).data
    digest = build_statement.recipe_in(data, sha256=wheel_set.manifest_sha256)
    if not digest or not store.exists(keys.recipe_key(digest)):
        raise UsageError(
            f"{store.url} lacks the stack of {short_id(set_id)}", tip="name its stack.toml with --stack"
        )
    frozen, folder = recipes.read(store, digest), work_dir / f"stack-{short_id(digest)}"
    path = folder / frozen.stack
    if not path.is_file():
        recipe.write(frozen, folder)
    stack = stacks.load(path)
    recipes.require(store, digest, stack)
    return stack.for_line(line or wheel_set.line)


def prepare(request: Challenge) -> Prepared:
    """Read what is to be built again, and refuse what cannot be.

    Raises:
        UsageError: the set is of another stack, or its wheels were not built but given new versions.
        PrerequisiteError: this machine builds for another Python or platform.
        StoreError: the store lacks the set or its manifest, or one was changed.
    """
    wheel_set = read_set(request.store, request.set_id)
    if wheel_set.derived_from is not None:
        raise UsageError(
            f"the wheels of {short_id(wheel_set.id)} are those of {short_id(wheel_set.derived_from)} under "
            "new versions, and were not built",
            tip=f"challenge that one: cairn challenge {short_id(wheel_set.derived_from)}",
        )
    key = keys.set_key(wheel_set.id, MANIFEST_FILE)
    data = request.store.read(key).data
    build_statement.sources_in(data, sha256=wheel_set.manifest_sha256, name=f"{request.store.url}/{key}")
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder, MANIFEST_FILE)).write_bytes(data)
        frozen = manifest.read(path)
    if (frozen.stack, frozen.line) != (request.stack.name, request.stack.line):
        raise UsageError(
            f"the set is of the stack {frozen.stack}, line {frozen.line}, not of {request.stack.name}, "
            f"{request.stack.line}",
            tip="name its stack.toml with --stack, and --line if it is not the stack's own",
        )
    python = interpreters.find(wheel_set.python)
    if python.platform != wheel_set.platform:
        raise PrerequisiteError(
            f"the set is for {wheel_set.platform}, and this machine builds for {python.platform}",
            tip="run it on a machine of that kind",
        )
    tools = machine.toolchain_of_manifest(
        python, host_compiler="c++" in frozen.toolchain, build_env=frozen.build_env
    )
    toolchain = {
        name: (version, tools.get(name, "none"))
        for name, version in frozen.toolchain.items()
        if version != tools.get(name) and tools.get(name, "none") not in version.split("; ")
    }
    return Prepared(wheel_set=wheel_set, frozen=frozen, python=python, toolchain=toolchain)


def demand_packing(prepared: Prepared) -> None:
    """Refuse to begin where the deflate library is another one: no archive could come out the same.

    Raises:
        PrerequisiteError: the manifest names another library than this machine has.
    """
    frozen, current = prepared.toolchain.get("deflate", ("", ""))
    if current.split(" ")[0] not in {tool.split(" ")[0] for tool in frozen.split("; ")}:
        raise PrerequisiteError(
            f"the wheels were packed with {frozen}, this Cairn packs with {current}: none would be the same",
            tip="install it without its extra `fast`" if frozen.startswith("zlib ") else extras.line("fast"),
        )


def run(request: Challenge, prepared: Prepared, *, rebuilder: str) -> Rebuild:
    """Build the set again, and compare what came out with what was released.

    Args:
        request: the set.
        prepared: of `prepare`.
        rebuilder: the name that the verdict gives to whoever builds.

    Raises:
        SystemFailureError: another challenge is under way in the same work folder.
        SourceError: the sources cannot be had any more.
        BuildError: a project did not become a wheel.
    """
    with files.locked(request.work_dir / "challenge.lock", timeout=_LOCK_WAIT):
        output = request.work_dir / "wheels"
        shutil.rmtree(output, ignore_errors=True)  # of a challenge that was ended
        (request.work_dir / VERDICT).unlink(missing_ok=True)
        wheels = build(request, prepared, output)
        with console.current().stage("compare the wheels") as stage:
            compared = _compare(request, prepared.wheel_set, output, {w.project: w.first_key for w in wheels})
            differing = sum(not wheel.is_identical for wheel in compared)
            stage.update(f"{differing} of {len(compared)} differ")
        here = {"python": prepared.python.version, "platform": prepared.python.platform}
        rebuild = Rebuild(
            set_id=prepared.wheel_set.id,
            manifest_sha256=prepared.wheel_set.manifest_sha256,
            wheels=compared,
            rebuilder=rebuilder,
            finished=now(),
            machine=here | {name: current for name, (_, current) in prepared.toolchain.items()},
        )
        files.write_bytes(
            request.work_dir / VERDICT, rebuilds.encode(rebuild, build_statement.this_builder())
        )
        return rebuild


def build(
    request: Challenge, prepared: Prepared, output: Path, *, instead: Manifest | None = None
) -> tuple[BuiltWheel, ...]:
    """Build the wheels of the set into a folder, each anew.

    Args:
        request: the set.
        prepared: of `prepare`.
        output: receives the wheels.
        instead: its manifest with other commits. What is in the cache is then not built again.

    Raises:
        SourceError: the sources cannot be had any more.
        BuildError: a project did not become a wheel.
    """
    wheel_set, frozen = prepared.wheel_set, instead or prepared.frozen
    trees = night_build.checkouts(
        request.stack,
        frozen,
        request.work_dir / "src",
        name="check out commits" if instead else f"check out what {short_id(wheel_set.id)} was built from",
        exact=instead is None,
    )
    split = any(
        device_names.processor_of(wheel.distribution, project.distribution)
        for wheel in wheel_set.wheels
        for project in request.stack.projects
    )
    build_job = Job(
        stack=request.stack,
        line=request.stack.line,
        checkouts={tree.project.name: tree.path for tree in trees},
        output_dir=output,
        clean=instead is None,  # an answer from a cache would be no answer
        sdk=SdkRequest(version=frozen.sdk_version, family=wheel_set.family, digest=wheel_set.id),
        install_rocm=not wheel_set.for_cpu,
        targets=",".join(wheel_set.targets),
        jobs=request.jobs,
        build_env=tuple(f"{name}={value}" for name, value in frozen.build_env.items()),
        env_dir=request.work_dir / "envs",
        python=prepared.python,
        split=split,
        version_suffix=plan.version_suffix(request.stack, frozen, wheel_set.targets),
        frozen=None if instead else frozen,
    )
    preflight.targets(build_job)
    (build_job,) = job.check((build_job,))
    installed = None if wheel_set.for_cpu else _install_sdk(request, build_job, frozen)
    (wheels,) = job.build((build_job,), (installed,), trees=trees)
    return wheels


def _install_sdk(request: Challenge, build_job: Job, frozen: Manifest) -> InstalledSdk:
    """Install the ROCm SDK of the manifest: from the index that it names, else from the store of the set."""
    log = request.work_dir / "logs" / "install-sdk.log"

    def install(url: str) -> InstalledSdk:
        source = venv.PackageSource(index_url=url, pre=True)
        return job.install_rocm(
            structs.replace(build_job, sdk=structs.replace(build_job.sdk, source=source)), log=log
        )

    if url := request.rocm_index_url or frozen.rocm_index_url:
        return install(url.replace("{family}", build_job.sdk.family or ""))
    with serving(request.store) as server:
        return install(keys.index_url(server.url, request.index))


def _compare(
    request: Challenge, wheel_set: WheelSet, folder: Path, inputs: Mapping[str, str]
) -> tuple[RebuiltWheel, ...]:
    """Compare the released wheels with those in a folder; only one that differs is fetched."""
    claimed = evidence.builder_statement(request.store, wheel_set).inputs
    projects = {str(canonicalize_name(p.distribution)): p.name for p in request.stack.projects}

    def compare(wheel: SetWheel) -> RebuiltWheel:
        path, project = folder / wheel.file_name, projects.get(wheel.distribution, "")
        result = RebuiltWheel(
            file_name=wheel.file_name,
            sha256=wheel.sha256,
            rebuilt=files.sha256_of(path) if path.is_file() else None,
            same_inputs=claimed[project] == inputs.get(project) if project in claimed else None,
        )
        if result.is_identical or result.rebuilt is None:
            return result
        key = keys.file_key(wheel.sha256, wheel.file_name)
        with transfer.as_files(request.store, [key]) as paths:
            differences = reproducibility.differences(paths[key], path)
        return structs.replace(result, differences=differences)

    return tuple(compare(wheel) for wheel in wheel_set.wheels)
