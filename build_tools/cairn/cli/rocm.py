"""`cairn rocm`: fetch the artifacts of a CI run of TheRock, make the packages of an SDK, install one."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli.answer import Answer, Note, Table, Warn
from cairn.cli.binder import command
from cairn.errors import UsageError
from cairn.options import Exclusive, argument, fill, flag, option, repeated
from cairn.output import Progress, console, wording

if TYPE_CHECKING:
    from cairn.rocm.fetch.choose import Artifact, ArtifactFilters, Run
    from cairn.rocm.fetch.fetch import FetchRequest, Layout, Source
    from cairn.rocm.fetch.runs import FoundRun
    from cairn.rocm.package import PackageRequest
    from cairn.store.protocol import Store

RELEASE_TYPES = ("ci", "dev", "dev-bkc", "nightly", "nightly-bkc", "prerelease")
"""Those of `cairn.rocm.fetch.choose`, which is not loaded for `--help`."""
_PLATFORMS = ("linux", "windows")
_RUN = Exclusive()


@dataclass(frozen=True, kw_only=True)
class Artifacts:
    """Where artifacts are and which are fetched: what the command and the script of upstream's name share."""

    run_id: str | None = option(
        "GitHub's number of the run", metavar="ID", convert=converters.nonempty, group=_RUN
    )
    run_github_repo: str = option(
        "where it ran (default: %(default)s)", metavar="OWNER/NAME", default="ROCm/TheRock"
    )
    platform: str | None = option("what it built for (default: this one)", choices=_PLATFORMS)
    release_type: str = option(
        "what kind of build it was, which says in which bucket it is (default: %(default)s)",
        choices=RELEASE_TYPES,
        default="ci",
    )
    store: str | None = common.store(required=False)
    endpoint_url: str | None = common.endpoint_url()
    include: tuple[str, ...] = argument(
        "PATTERN", "regular expression that a name matches (default: all)", nargs="*"
    )
    exclude: tuple[str, ...] = option(
        "regular expressions that it must not match", nargs="*", metavar="PATTERN", default=()
    )
    allow_unverified: bool = flag("take archives without a sha256sum beside them")

    def filters(self, *, groups: tuple[str, ...], targets: tuple[str, ...]) -> ArtifactFilters:
        """The artifacts for these groups and targets, by the patterns."""
        from cairn.rocm.fetch.choose import ArtifactFilters

        return ArtifactFilters(groups=groups, targets=targets, include=self.include, exclude=self.exclude)

    def run(self, run_id: str) -> Run:
        """The run with this number."""
        from cairn.rocm.fetch import choose

        return choose.Run(
            id=run_id,
            platform=self.platform or own_platform(),
            repository=self.run_github_repo,
            release_type=self.release_type,
        )

    def place(self, run: Run | None) -> Store:
        """The store that has the artifacts: a run's own folder of it."""
        from cairn.store import opening

        if run is None:
            if self.store is None:
                raise UsageError(
                    "nothing says where the artifacts are",
                    tip="name the run: --run-id, or --store URL",
                )
            places: tuple[str, ...] = (self.store,)
        elif self.store is None:
            places = run.places()
        else:  # it may have several runs, as TheRock's buckets do
            places = (f"{self.store.rstrip('/')}/{run.folder()}",)
        say = console.current().info
        stores = [
            opening.open_store(url, endpoint_url=self.endpoint_url, public=True, say=say) for url in places
        ]
        for store in stores[:-1]:
            if any(True for _ in store.list("")):
                return store
            say(f"nothing at {store.url}; looking at {stores[-1].url}")
        return stores[-1]


@dataclass(frozen=True, kw_only=True)
class Fetch(Artifacts):
    """Options of `cairn rocm fetch`.

    Each archive is checked by the sha256sum beside it, and unpacked where nothing gets out of its folder.
    Run again after it was interrupted, the command goes on where it ended. --latest and --commit take the
    newest run that ended well and has what is wanted; they ask GitHub, with the token in GITHUB_TOKEN where
    there is one. --run-id takes what a run has, however it ended.

        cairn rocm fetch --latest --families gfx110X-all --output-dir artifacts
    """

    latest: bool = flag("take the latest run of the default branch", group=_RUN)
    commit: str | None = option(
        "take the run of this commit", metavar="SHA", convert=converters.nonempty, group=_RUN
    )
    release: str | None = option(
        "take the tarball of a release by its version, such as 10.1.0, or the newest: latest (stable), "
        "nightly, rc or dev; --store is the address of a page of tarballs then",
        metavar="NAME",
        convert=converters.nonempty,
        group=_RUN,
    )
    families: tuple[str, ...] = repeated(
        "only what is for this family of targets and for all (default: everything)",
        metavar="FAMILY",
        convert=converters.nonempty,
    )
    targets: str | None = common.targets("everything")
    output_dir: Path = common.output_dir()
    layout: Layout = option(
        "a folder per artifact, all in one tree, or the archives alone (default: %(default)s)",
        choices=("extract", "flatten", "archives"),
        default="extract",
    )
    jobs: int = common.jobs("downloads")
    dry_run: bool = common.dry_run()


def _fetch(request: Fetch) -> Answer:
    from cairn import targets
    from cairn.rocm.fetch.fetch import JOBS, FetchRequest

    names = targets.parse_targets(request.targets, unbuilt=True) if request.targets else ()
    fetch_request = fill(
        FetchRequest,
        request,
        filters=request.filters(
            groups=tuple(n for each in request.families for n in converters.words(each)), targets=names
        ),
        verified_only=not request.allow_unverified,
        jobs=request.jobs or JOBS,
    )
    if request.release is not None:
        return _fetch_release(request, fetch_request, request.release)
    if not request.latest and request.commit is None:
        return fetch_artifacts(request, fetch_request, dry_run=request.dry_run)
    with console.current().stage("find the run") as stage:
        chosen, store, passed = _find_run(request, fetch_request.filters, say=stage.update)
    answer = _fetch_from(store, fetch_request, dry_run=request.dry_run)
    run = {
        "id": chosen.run.id,
        "repository": chosen.run.repository,
        "commit": chosen.commit,
        "created": chosen.created,
        "url": chosen.url,
    }
    line = f"run {chosen.run.id} of {chosen.run.repository}: commit {chosen.commit}, {chosen.created}, "
    return dataclasses.replace(
        answer,
        text=(line + chosen.url, *answer.text, *(Note(f"passed over: {each}") for each in passed)),
        more={"run": run, "passed_over": passed},
    )


def _fetch_release(request: Fetch, fetch_request: FetchRequest, name: str) -> Answer:
    from cairn.rocm.fetch import releases

    if request.include or request.exclude:
        raise UsageError("the tarball of a release has everything", tip="leave the patterns out")
    with console.current().stage(f"find ROCm {name}") as stage:
        release, artifact, folder = releases.find_release(
            name,
            fetch_request.filters,
            platform=request.platform or own_platform(),
            page=request.store,
            say=stage.update,
        )
    answer = _fetch_from(folder, fetch_request, artifacts=(artifact,), dry_run=request.dry_run)
    of_stream = f" of the stream {release['stream']}" if release["stream"] else ""
    line = f"ROCm {release['name']}{of_stream} for {release['group']}: {folder.url}{artifact.key}"
    return dataclasses.replace(
        answer,
        text=(f"{line}, {release['created']}" if release["created"] else line, *answer.text),
        more={"release": release},
    )


def _find_run(
    request: Fetch, filters: ArtifactFilters, *, say: Progress
) -> tuple[FoundRun, Store, tuple[str, ...]]:
    """The newest run that ended well and has what is wanted, its store, and what was passed over."""
    from cairn.rocm.fetch import choose, runs

    if request.run_github_repo == choose.UPSTREAM:
        request = dataclasses.replace(request, run_github_repo=runs.repository_of(request.release_type))
    pattern = request.run("0")

    def open_whole(run: Run) -> Store:
        say(f"looking at run {run.id}")
        store = request.place(run)
        choose.choose(choose.list_artifacts(store), filters, where=store.url)
        return store

    say(f"asking GitHub for runs of {pattern.repository}")
    run_ids = runs.list_of_commit(pattern, request.commit) if request.commit else runs.list_latest(pattern)
    return runs.first_whole(run_ids, open_whole)


def fetch_artifacts(request: Artifacts, fetch_request: FetchRequest, *, dry_run: bool) -> Answer:
    """Fetch from the place that the request names."""
    store = request.place(None if request.run_id is None else request.run(request.run_id))
    return _fetch_from(store, fetch_request, dry_run=dry_run)


def _fetch_from(
    store: Source,
    fetch_request: FetchRequest,
    *,
    dry_run: bool,
    artifacts: tuple[Artifact, ...] | None = None,
) -> Answer:
    from cairn.rocm.fetch import fetch as fetching

    with console.current().stage("fetch artifacts") as stage:
        stage.update(f"looking at {store.url}")
        fetched = fetching.fetch(
            store,
            fetch_request,
            artifacts=artifacts,
            dry_run=dry_run,
            on_progress=lambda progress: stage.update(str(progress)),
        )
    plain = [
        {
            "artifact": each.artifact.name,
            "target": each.artifact.target,
            "archive": each.artifact.key,
            "size": each.artifact.size,
            "sha256": each.sha256,
            "path": each.path,
            "already": each.already,
        }
        for each in fetched
    ]
    outcome = "would be fetched" if dry_run else "fetched"
    rows = (
        (
            each.artifact.name,
            console.size(each.artifact.size),
            (each.sha256 or "-")[:12],
            "in place already" if each.already else outcome,
        )
        for each in fetched
    )
    new = [each.artifact.size for each in fetched if not each.already]
    count = Note(f"{len(new)} {outcome}, {console.size(sum(new))}")
    others = fetching.of_other_places(fetch_request.output_dir, store.url, fetched)
    mixture = Warn(
        f"{fetch_request.output_dir} also has {wording.some(others, shown=3)}, of another run: "
        "name a folder for each, or delete what should not go with these"
    )
    return Answer(
        {"store": store.url, "artifacts": plain},
        (Table(("artifact", "size", "sha256", ""), rows), count, *([mixture] if others else ())),
    )


def own_platform() -> str:
    """The platform of this machine, as TheRock calls it."""
    from cairn import platforms

    return "windows" if platforms.here.name() == "windows" else "linux"


@dataclass(frozen=True, kw_only=True)
class Install(common.SdkOptions):
    """Options of `cairn rocm install`.

    cairn rocm install --python .venv --index-url http://127.0.0.1:8383/simple/
    """

    python: Path = option(
        "an interpreter, or an environment's folder",
        metavar="PYTHON",
        convert=converters.file_or_folder,
        required=True,
    )
    family: str | None = option(
        "name of the family of the targets (default: that of the GPU, or the SDK's default)",
        "--families",
    )
    dry_run: bool = common.dry_run()


def _install(request: Install) -> Answer:
    from msgspec import structs

    from cairn.rocm import install

    install_request = fill(install.InstallRequest, request, source=request.source())
    if request.dry_run:
        command = install.install_command(install_request)
        return Answer({"command": command}, [shlex.join(command)])
    with console.current().stage(f"install {install_request.requirement}"):
        info = install.install(install_request)
    if info is None:
        return Answer({"requirement": install_request.requirement})
    values = {**structs.asdict(info), "targets": ";".join(info.targets)}
    return Answer(values, [Table(("", ""), values.items())])


_TREE = Exclusive(required=True)


@dataclass(frozen=True, kw_only=True)
class Package:
    """Options of `cairn rocm package`.

    cairn rocm package --prefix /opt/rocm --description packages.toml --rocm-version 7.10.0
    --targets gfx942,gfx1100 --output-dir dist
    """

    prefix: Path | None = option(
        "an installed prefix: the folder with bin, include and lib", convert=converters.folder, group=_TREE
    )
    artifacts: Path | None = option(
        "a folder of artifacts NAME_COMPONENT_TARGET", convert=converters.folder, group=_TREE
    )
    debs: tuple[Path, ...] = option(
        "packages of Debian's ROCm: .deb files, or folders of them",
        metavar="DEB",
        nargs="+",
        convert=converters.file_or_folder,
        group=_TREE,
        default=(),
    )
    description: Path | None = option(
        "the packages.toml that says what goes where (default: that of TheRock's artifacts, or of Debian)",
        convert=converters.file,
    )
    version: str = option(
        "such as 7.10.0 or 7.10.0a20251124", "--rocm-version", metavar="ROCM_VERSION", required=True
    )
    targets: str | None = common.targets("none")
    family: str = option(
        "name of the family of the targets (default: none)",
        "--families",
        default="",
    )
    libraries_for_all: bool = flag("put device code into wheels of its own, one for each target", "--split")
    trim: bool = flag("leave what is for other targets than these out of the libraries")
    output_dir: Path = common.output_dir()
    dry_run: bool = common.dry_run()


def _package(request: Package) -> Answer:
    from cairn.rocm.package import PackageRequest

    targets = (request.targets,) if request.targets else ()
    return write_packages(fill(PackageRequest, request, targets=targets), dry_run=request.dry_run)


def write_packages(request: PackageRequest, *, dry_run: bool) -> Answer:
    """Make the packages."""
    from cairn.build import device_packages
    from cairn.rocm import package
    from cairn.wheels.metadata import rocm_version
    from cairn.wheels.split.split import RUNTIME

    screen = console.current()
    with screen.stage("package ROCm") as stage:
        if request.libraries_for_all and not dry_run:
            dists = device_packages.package_sdk(request, say=stage.update)
        else:
            dists = package.package(request, dry_run=dry_run, say=stage.update)
    if request.libraries_for_all and rocm_version.is_before(request.version, RUNTIME):
        screen.warn(
            f"the runtime of ROCm {request.version} finds no code in device packages: {RUNTIME} is the first"
            " known to. These libraries load, and their first kernel fails. --trim makes packages for it"
        )
    for part, absent in (pair for d in dists for pair in d.lacks.items()):
        screen.warn(f"{part} has no code for {', '.join(absent)}")
    for dist in (each for each in dists if each.absent):
        consequence = "the command says so when it is started"
        if dist.distribution == "rocm":
            consequence = "pip refuses the extra of rocm that names it"
        screen.warn(f"the tree has nothing for {', '.join(dist.absent)}: {consequence}")
    rows = [(d.path.name, d.files, console.size(d.size), d.sha256[:12]) for d in dists]
    return Answer(dists, [Table(("package", "files", "size", "sha256"), rows)])


COMMANDS = {
    "fetch": command(Fetch, _fetch),
    "install": command(Install, _install),
    "package": command(Package, _package),
}
