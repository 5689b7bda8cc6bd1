"""`cairn patches`: what a checkout has beyond upstream's files, explained, exported and applied."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli.answer import Answer, Piece, Warn
from cairn.cli.binder import command
from cairn.errors import SourceError, UsageError
from cairn.options import argument, fill, option
from cairn.output import console, wording
from cairn.output.wording import short_id

if TYPE_CHECKING:
    from cairn.sources.git.repository import Repository
    from cairn.sources.patches.audit import Audit
    from cairn.stack import HipifyKind


@dataclass(frozen=True, kw_only=True)
class Report:
    """Options of `cairn patches report`.

    cairn patches report external-builds/pytorch/pytorch --json
    """

    checkout: Path = argument("CHECKOUT", "folder of a checkout", convert=converters.folder)


@dataclass(frozen=True, kw_only=True)
class Export(Report):
    """Options of `cairn patches export`.

    Patches that an earlier export left in the folder are replaced.

        cairn patches export pytorch --output-dir ~/patches
    """

    output_dir: Path = common.output_dir()


@dataclass(frozen=True, kw_only=True)
class ProjectRequest(common.OptionalStack, Report):
    """A checkout, and which project it is."""

    project: str | None = option("name of the project (default: what the checkout was made as)")
    python: Path | None = common.python("that hipify runs in")

    def name(self, root: Repository) -> str | None:
        """Return the name of the project: `project`, else what the checkout was made as."""
        from cairn.sources.worktree import journal

        note = journal.read(root.git_dir)
        return self.project or (note.project if note else None)

    def hipify_kind(self, root: Repository, project: str | None) -> HipifyKind:
        """Return the kind of hipify, from the stack, the report, or whether the tree has torch's script."""
        from cairn.sources.hipify import report as hipify_report
        from cairn.sources.hipify.run import BUILD_AMD

        if project is not None and (stack := self.load_stack()) is not None:
            return stack.project(project).hipify
        if (report := hipify_report.read(root.git_dir)) is not None:
            return report.kind
        return "build_amd" if (root.work_tree / BUILD_AMD).is_file() else "at-build"


@dataclass(frozen=True, kw_only=True)
class AuditCheckout(ProjectRequest):
    """Options of `cairn patches audit`.

    Runs hipify again in a copy and compares its files with those of the second tag; looks every commit
    above that tag up in the allowlist of patches-policy; names edits that no commit has. The checkout is
    not touched.

        cairn patches audit external-builds/pytorch/pytorch
    """

    allowlist: Path | None = option(
        "the allowlist (default: patches-policy/allowlist.toml, here or in a folder above; "
        "without one, nothing is allowed)",
        convert=converters.file,
    )


@dataclass(frozen=True, kw_only=True)
class Apply(ProjectRequest):
    """Options of `cairn patches apply`.

    cairn patches apply pytorch ~/patches
    """

    folder: Path = argument(
        "PATCHES", "folder that `export` made, or a patch set of TheRock's", convert=converters.folder
    )
    dry_run: bool = common.dry_run()


def _audit(request: AuditCheckout) -> Answer:
    from cairn.sources.patches import apply, audit

    root = apply.root_of(request.checkout, finished=False)
    project = request.name(root)
    if project is None:
        raise UsageError(f"{request.checkout} does not say what it is", tip="name the project with --project")
    path = request.allowlist or audit.find_allowlist(Path())
    audit_request = fill(
        audit.AuditRequest,
        request,
        project=project,
        kind=request.hipify_kind(root, project),
        allowed=audit.load_allowlist(path) if path else (),
        today=dt.datetime.now(dt.UTC).date(),
    )
    with console.current().stage(f"audit {request.checkout}") as stage:
        verdict = audit.audit(audit_request, say=stage.update)
    error = SourceError(
        f"{request.checkout}: {wording.count(verdict.problems, 'thing')} that nothing explains",
        tip="patches-policy/README.md says how a patch gets on the allowlist",
    )
    return Answer(audit.plain(verdict), _audit_text(verdict), error=error if verdict.problems else None)


def _audit_text(verdict: Audit) -> Iterator[str]:
    for problem in verdict.problems:
        where = f"{problem.path}: " if problem.path else ""
        yield f"{problem.kind}: {where}{problem.text}"
        if problem.patch:
            yield f'  commit = "{problem.commit}"'
            yield f'  patch = "{problem.patch}"'
    for explained in verdict.explained:
        yield f"allowed: {short_id(explained.commit.id)} {explained.commit.subject} ({explained.entry.why})"
    if not verdict.problems:
        parts = wording.count(range(verdict.parts), "part")
        yield f"all is explained: {parts}, hipify: {verdict.hipify}"


def _report(request: Report) -> Answer:
    from cairn.sources.hipify import report as hipify_report
    from cairn.sources.patches import apply

    report = hipify_report.read(apply.root_of(request.checkout, finished=False).git_dir)
    if report is None:
        raise SourceError(
            f"{request.checkout} has no hipify report",
            tip="it is made by `cairn checkout`, or by the build of a project that hipifies then",
        )
    return Answer(report, hipify_report.in_full(report))


def _export(request: Export) -> Answer:
    from cairn.sources.patches import apply

    patches, edits = apply.export(request.checkout, request.output_dir)
    screen = console.current()
    if edits:
        screen.warn(f"{wording.count(edits, 'edited or new file')} in no commit, so in no patch")
    if not patches:
        screen.info("there are no commits above the diff base")
    return Answer(patches, (str(request.output_dir / patch.file) for patch in patches))


def _apply(request: Apply) -> Answer:
    from cairn.sources.patches import apply

    root = apply.root_of(request.checkout, finished=False)
    project = request.name(root)
    kind = request.hipify_kind(root, project)
    apply_request = fill(apply.ApplyRequest, request, project=project, kind=kind)
    with console.current().stage(f"apply {request.folder}") as stage:
        patches = apply.apply(apply_request, say=stage.update)
    text: list[Piece] = []
    for each in patches:
        beneath = ", beneath hipify's commit" if each.beneath and each.commit else ""
        text.append(f"{each.file}: {short_id(each.commit) if each.commit else each.outcome}{beneath}")
    if any(each.outcome == "waits for hipify" for each in patches):
        text.append(Warn("some are for hipified files: hipify the checkout, then apply the folder again"))
    return Answer(patches, text)


COMMANDS = {
    "audit": command(AuditCheckout, _audit),
    "report": command(Report, _report),
    "export": command(Export, _export),
    "apply": command(Apply, _apply),
}
