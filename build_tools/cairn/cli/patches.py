"""`cairn patches`: what a checkout has beyond upstream's files, explained, exported and applied."""

from __future__ import annotations

import argparse
import datetime as dt
from pathlib import Path

from cairn import datafile
from cairn.cli import common, paths
from cairn.cli.parser import Subparsers
from cairn.errors import SourceError, UsageError
from cairn.output import console, wording
from cairn.sources.git.repository import Repository
from cairn.sources.hipify import report as hipify_report
from cairn.sources.hipify.run import BUILD_AMD
from cairn.sources.patches import allowlist
from cairn.sources.patches import apply as patches_apply
from cairn.sources.patches import audit as patches_audit
from cairn.sources.patches import export as patches_export
from cairn.sources.worktree import state
from cairn.stack import HipifyKind


def register(subparsers: Subparsers) -> None:
    """Add the group to the program's parser."""
    group = subparsers.add_parser(
        "patches",
        help="explain, export and apply what a checkout has beyond upstream",
        description="Explain, export and apply what a checkout has beyond upstream's files.",
        epilog="example: cairn patches audit external-builds/pytorch/pytorch",
    )
    commands = group.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_audit(commands)
    _add_report(commands)
    _add_export(commands)
    _add_apply(commands)


def _add_audit(commands: Subparsers) -> None:
    audit = commands.add_parser(
        "audit",
        help="explain everything in a checkout by hipify and the allowlist, or fail",
        description="Runs hipify again in a copy and compares its files with those of the second tag; looks "
        "every commit above that tag up in the allowlist of patches-policy; names edits that no commit has. "
        "Nothing in the checkout is touched.",
        epilog="example: cairn patches audit external-builds/pytorch/pytorch",
    )
    audit.add_argument("checkout", type=paths.folder, metavar="CHECKOUT", help="folder of a checkout")
    audit.add_argument(
        "--allowlist",
        type=paths.file,
        metavar="FILE",
        help="the allowlist (default: patches-policy/allowlist.toml, here or in a folder above; "
        "without one, nothing is allowed)",
    )
    audit.add_argument("--project", help="name of the project (default: what the checkout was made as)")
    common.add_stack(audit, required=False)
    common.add_python(audit, what="that hipify runs in")
    common.add_json(audit)
    audit.set_defaults(run=_audit)


def _add_report(commands: Subparsers) -> None:
    report = commands.add_parser(
        "report",
        help="show what hipify read, changed, made and left",
        description="Show what hipify read, changed, made and left in a checkout.",
        epilog="example: cairn patches report external-builds/pytorch/pytorch --json",
    )
    report.add_argument("checkout", type=paths.folder, metavar="CHECKOUT", help="folder of a checkout")
    common.add_json(report)
    report.set_defaults(run=_report)


def _add_export(commands: Subparsers) -> None:
    export = commands.add_parser(
        "export",
        help="write the commits above hipify's as patch files",
        description="Write the commits above hipify's as patch files. Patches that an earlier export left in "
        "the folder are replaced.",
        epilog="example: cairn patches export pytorch --output-dir ~/patches",
    )
    export.add_argument("checkout", type=paths.folder, metavar="CHECKOUT", help="folder of a checkout")
    common.add_output_dir(export)
    common.add_json(export)
    export.set_defaults(run=_export)


def _add_apply(commands: Subparsers) -> None:
    apply = commands.add_parser(
        "apply",
        help="commit patch files on top of a checkout, all of them or none, and none twice",
        description="Commit patch files on top of a checkout: all of them or none, and none twice.",
        epilog="example: cairn patches apply pytorch ~/patches",
    )
    apply.add_argument("checkout", type=paths.folder, metavar="CHECKOUT", help="folder of a checkout")
    apply.add_argument(
        "patches",
        type=paths.folder,
        metavar="PATCHES",
        help="folder that `export` made, or a patch set of TheRock's",
    )
    apply.add_argument("--project", help="name of the project (default: what the checkout was made as)")
    common.add_stack(apply, required=False)
    common.add_python(apply, what="that hipify runs in")
    common.add_dry_run(apply)
    common.add_json(apply)
    apply.set_defaults(run=_apply)


def _audit(options: argparse.Namespace) -> int:
    root = patches_export.root_of(options.checkout, finished=False)
    project = _project(options, root)
    path = options.allowlist or allowlist.find(Path())
    request = patches_audit.AuditRequest(
        checkout=options.checkout,
        project=project,
        kind=_kind(options, root, project),
        allowed=allowlist.load(path) if path else (),
        today=dt.datetime.now(dt.UTC).date(),
        python=options.python,
    )
    with console.current().stage(f"audit {options.checkout}") as stage:
        found = patches_audit.audit(request, say=stage.update)
    _show_audit(found, as_json=options.json)
    if found.problems:
        raise SourceError(
            f"{options.checkout}: {wording.count(found.problems, 'thing')} that nothing explains",
            tip="patches-policy/README.md says how a patch gets on the allowlist",
        )
    return 0


def _show_audit(found: patches_audit.Audit, *, as_json: bool) -> None:
    show = console.current()
    if as_json:
        show.json(patches_audit.plain(found))
        return
    for problem in found.problems:
        where = f"{problem.path}: " if problem.path else ""
        show.out(f"{problem.kind}: {where}{problem.text}")
        if problem.patch:
            show.out(f'  commit = "{problem.commit}"')
            show.out(f'  patch = "{problem.patch}"')
    for explained in found.explained:
        show.out(f"allowed: {explained.commit.id[:12]} {explained.commit.subject} ({explained.entry.why})")
    if not found.problems:
        show.out(f"all is explained: {wording.count(range(found.parts), 'part')}, hipify: {found.hipify}")


def _report(options: argparse.Namespace) -> int:
    report = hipify_report.read(patches_export.root_of(options.checkout, finished=False).git_dir)
    if report is None:
        raise SourceError(
            f"{options.checkout} has no hipify report",
            tip="it is made by `cairn checkout`, or by the build of a project that hipifies then",
        )
    if options.json:
        console.current().json(datafile.to_plain(report))
        return 0
    for line in hipify_report.in_full(report):
        console.current().out(line)
    return 0


def _export(options: argparse.Namespace) -> int:
    done = patches_export.export(options.checkout, options.output_dir)
    show = console.current()
    if options.json:
        show.json([datafile.to_plain(patch) for patch in done.patches])
    else:
        for patch in done.patches:
            show.out(str(options.output_dir / patch.file))
    if done.edits:
        show.warn(f"{wording.count(done.edits, 'edited or new file')} in no commit, so in no patch")
    if not done.patches:
        show.info("there are no commits above the diff base")
    return 0


def _apply(options: argparse.Namespace) -> int:
    root = patches_export.root_of(options.checkout, finished=False)
    note = state.read(root.git_dir)
    project = options.project or (note.project if note else None)
    request = patches_apply.ApplyRequest(
        checkout=options.checkout,
        folder=options.patches,
        kind=_kind(options, root, project),
        project=project,
        python=options.python,
        dry_run=options.dry_run,
    )
    with console.current().stage(f"apply {options.patches}") as stage:
        done = patches_apply.apply(request, say=stage.update)
    show = console.current()
    if options.json:
        show.json([datafile.to_plain(applied) for applied in done])
        return 0
    for applied in done:
        beneath = ", beneath hipify's commit" if applied.beneath and applied.commit else ""
        show.out(f"{applied.file}: {applied.commit[:12] if applied.commit else applied.outcome}{beneath}")
    if any(applied.outcome == "waits for hipify" for applied in done):
        show.warn("some are for hipified files: hipify the checkout, then apply the folder again")
    return 0


def _project(options: argparse.Namespace, root: Repository) -> str:
    note = state.read(root.git_dir)
    name = options.project or (note.project if note else None)
    if name is None:
        raise UsageError(f"{options.checkout} does not say what it is", tip="name the project with --project")
    return str(name)


def _kind(options: argparse.Namespace, root: Repository, project: str | None) -> HipifyKind:
    """Who hipifies: the stack says, else the report, else whether the tree has torch's own program."""
    if options.stack is not None and project is not None:
        return common.read_stack(options).project(project).hipify
    if (report := hipify_report.read(root.git_dir)) is not None:
        return report.kind
    return "build_amd" if (root.work_tree / BUILD_AMD).is_file() else "at-build"
