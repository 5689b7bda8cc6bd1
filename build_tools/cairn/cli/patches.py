"""`cairn patches`: what a checkout has beyond upstream's files, explained, exported and applied."""

from __future__ import annotations

import argparse
import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command, add_commands
from cairn.errors import SourceError, UsageError
from cairn.output import console, wording

if TYPE_CHECKING:
    from cairn.sources.git.repository import Repository
    from cairn.sources.patches.audit import Audit
    from cairn.stack import HipifyKind


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the commands of the group."""
    commands = add_commands(
        parser,
        description="Explain, export and apply what a checkout has beyond upstream's files.",
        example="cairn patches audit external-builds/pytorch/pytorch",
    )
    _add_audit(commands)
    report = add_command(
        commands,
        "report",
        _report,
        about="show what hipify read, changed, made and left in a checkout",
        example="cairn patches report external-builds/pytorch/pytorch --json",
    )
    _add_checkout(report)
    export = add_command(
        commands,
        "export",
        _export,
        about="write the commits above hipify's as patch files",
        more="Patches that an earlier export left in the folder are replaced.",
        example="cairn patches export pytorch --output-dir ~/patches",
    )
    _add_checkout(export)
    arguments.add_output_dir(export)
    _add_apply(commands)


def _add_audit(commands: Subparsers) -> None:
    audit = add_command(
        commands,
        "audit",
        _audit,
        about="explain everything in a checkout by hipify and the allowlist, or fail",
        more="Runs hipify again in a copy and compares its files with those of the second tag; looks every "
        "commit above that tag up in the allowlist of patches-policy; names edits that no commit has. The "
        "checkout is not touched.",
        example="cairn patches audit external-builds/pytorch/pytorch",
    )
    _add_checkout(audit)
    audit.add_argument(
        "--allowlist",
        type=converters.file,
        metavar="FILE",
        help="the allowlist (default: patches-policy/allowlist.toml, here or in a folder above; "
        "without one, nothing is allowed)",
    )
    _add_project(audit)


def _add_apply(commands: Subparsers) -> None:
    apply = add_command(
        commands,
        "apply",
        _apply,
        about="commit patch files on top of a checkout: all of them or none, and none twice",
        example="cairn patches apply pytorch ~/patches",
    )
    _add_checkout(apply)
    apply.add_argument(
        "patches",
        type=converters.folder,
        metavar="PATCHES",
        help="folder that `export` made, or a patch set of TheRock's",
    )
    _add_project(apply)
    arguments.add_dry_run(apply)


def _add_checkout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkout", type=converters.folder, metavar="CHECKOUT", help="folder of a checkout")
    arguments.add_json(parser)


def _add_project(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--project", help="name of the project (default: what the checkout was made as)")
    arguments.add_stack(parser, required=False)
    arguments.add_python(parser, what="that hipify runs in")


def _audit(options: argparse.Namespace) -> int:
    from cairn.sources.patches import allowlist, audit, export

    root = export.root_of(options.checkout, finished=False)
    project = _project(options, root)
    path = options.allowlist or allowlist.find(Path())
    request = audit.AuditRequest(
        checkout=options.checkout,
        project=project,
        kind=_kind(options, root, project),
        allowed=allowlist.load(path) if path else (),
        today=dt.datetime.now(dt.UTC).date(),
        python=options.python,
    )
    with console.current().stage(f"audit {options.checkout}") as stage:
        found = audit.audit(request, say=stage.update)
    _show_audit(found, as_json=options.json)
    if found.problems:
        raise SourceError(
            f"{options.checkout}: {wording.count(found.problems, 'thing')} that nothing explains",
            tip="patches-policy/README.md says how a patch gets on the allowlist",
        )
    return 0


def _show_audit(found: Audit, *, as_json: bool) -> None:
    from cairn.sources.patches import audit

    show = console.current()
    if as_json:
        show.json(audit.plain(found))
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
    from cairn import datafile
    from cairn.sources.hipify import report as hipify_report
    from cairn.sources.patches import export

    report = hipify_report.read(export.root_of(options.checkout, finished=False).git_dir)
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
    from cairn import datafile
    from cairn.sources.patches import export

    done = export.export(options.checkout, options.output_dir)
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
    from cairn import datafile
    from cairn.sources.patches import apply, export
    from cairn.sources.worktree import state

    root = export.root_of(options.checkout, finished=False)
    note = state.read(root.git_dir)
    project = options.project or (note.project if note else None)
    request = apply.ApplyRequest(
        checkout=options.checkout,
        folder=options.patches,
        kind=_kind(options, root, project),
        project=project,
        python=options.python,
        dry_run=options.dry_run,
    )
    with console.current().stage(f"apply {options.patches}") as stage:
        done = apply.apply(request, say=stage.update)
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
    from cairn.sources.worktree import state

    note = state.read(root.git_dir)
    name = options.project or (note.project if note else None)
    if name is None:
        raise UsageError(f"{options.checkout} does not say what it is", tip="name the project with --project")
    return str(name)


def _kind(options: argparse.Namespace, root: Repository, project: str | None) -> HipifyKind:
    """Who hipifies: the stack says, else the report, else whether the tree has torch's own program."""
    from cairn.sources.hipify import report as hipify_report
    from cairn.sources.hipify.run import BUILD_AMD

    if options.stack is not None and project is not None:
        return arguments.read_stack(options).project(project).hipify
    if (report := hipify_report.read(root.git_dir)) is not None:
        return report.kind
    return "build_amd" if (root.work_tree / BUILD_AMD).is_file() else "at-build"
