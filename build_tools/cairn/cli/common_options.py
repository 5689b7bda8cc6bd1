"""Options that several commands share, as fields of their requests: one name and one wording each.

Those that belong together are requests to inherit from: `StackOptions`, `StoreOptions`. The others are
functions, each of which declares one field: `index: str = common.index("dev")`. A completer (`complete_…`) is
what argcomplete calls with the beginning of the word at the cursor, and with what was given before it.
"""

from __future__ import annotations

import argparse
import os
import sys
from argparse import ArgumentTypeError
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn import converters
from cairn.cli.parser import completion_words
from cairn.errors import CairnError, UsageError
from cairn.options import Exclusive, argument, fill, flag, option, repeated, switch

if TYPE_CHECKING:
    from cairn.build.model import SdkRequest
    from cairn.retry import RetryPolicy
    from cairn.stack import Stack
    from cairn.store.protocol import Store
    from cairn.venv import PackageSource


def complete_stack_folders(prefix: str, **_: object) -> list[str]:
    """Folders with a stack, folders on the way to one, and the names of Cairn's own."""
    from cairn import shipped

    folder = Path(prefix) if prefix.endswith("/") else Path(prefix).parent
    folders = [path for path in sorted(folder.glob("*/")) if not path.name.startswith(".")]
    near = [] if prefix else sorted(Path("external-builds").glob("*/stack.toml"))
    return [*(f"{path}/" for path in folders), *(str(path.parent) for path in near), *shipped.STACKS]


def complete_projects(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """The projects of the stack that is named, and what else `checkout` takes."""
    stack = _stack(parsed_args)
    return ["all", "origins", *(project.name for project in stack.projects)] if stack else ["all", "origins"]


def complete_lines(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """The release lines of the stack that is named."""
    stack = _stack(parsed_args)
    return list(stack.line_names()) if stack else []


def complete_indexes(**_: object) -> tuple[str, ...]:
    """The channels, and the families of each."""
    from cairn.release.index import keys

    return keys.possible_indexes()


def complete_targets(prefix: str, **_: object) -> list[str]:
    """Targets and families, after those that are on the list already."""
    from cairn import targets as gpu

    # A shell replaces the whole word, `gfx942,gf` too.
    before = prefix[: prefix.rfind(",") + 1]
    return [f"{before}{name}" for name in (gpu.CPU, *gpu.families(), *gpu.known_targets())]


def _stack(parsed_args: argparse.Namespace) -> Stack | None:
    from cairn import stack as stacks

    # argcomplete gives the options that it has parsed so far.
    path = getattr(parsed_args, "stack", None)
    line = completion_words()
    if path is None and "--stack" in line[:-1]:  # it may stand behind the cursor's word, or be parsed later
        path = Path(line[line.index("--stack") + 1])
    try:
        return stacks.load(path) if path is not None else None
    except CairnError:  # nothing to offer; the command itself will say what is wrong
        return None


LINE_OF_CHECKOUTS = "that of the checkouts"
"""The default of `line` where checkouts exist already."""
_SDK_EXTRAS = ("libraries", "devel")  # of the `rocm` package: those that a build needs


def stack(*, required: bool = True, default: Path | None = None) -> Any:
    """`--stack`, which must be given where it is `required` and has no default."""
    return option(
        "a stack.toml, its folder, or one of Cairn's own: sample, pytorch, pyg, torchdevice"
        + (" (default: %(default)s)" if default else ""),
        required=required and default is None,
        default=default,
        convert=converters.any_path,
        completer=complete_stack_folders,
    )


def line(default: str = "the stack's") -> Any:
    """`--line`; `default` says in words what applies without it."""
    return option(
        f"release line, such as nightly or release/2.9 (default: {default})",
        convert=converters.nonempty,
        completer=complete_lines,
    )


@dataclass(frozen=True, kw_only=True)
class StackOptions:
    """`--stack` and `--line`."""

    stack: Path = stack()
    line: str | None = line()

    def load_stack(self) -> Stack:
        """The stack, on the line."""
        from cairn import stack as stacks

        return stacks.load(self.stack).for_line(self.line)


@dataclass(frozen=True, kw_only=True)
class OptionalStack:
    """`--stack` and `--line`, for a command that does without them."""

    stack: Path | None = stack(required=False)
    line: str | None = line()

    def load_stack(self) -> Stack | None:
        """The stack, on the line; None where none is named."""
        from cairn import stack as stacks

        return stacks.load(self.stack).for_line(self.line) if self.stack else None


def store(*, required: bool = True, group: Exclusive | None = None) -> Any:
    """`--store`."""
    return option(
        "the store: a path, file://…, s3://bucket/prefix, gs:// or az://",
        metavar="URL",
        required=required,
        group=group,
    )


def stream(default: str, *, group: Exclusive) -> Any:
    """`--stream`; `default` says which index counts without it and without a named one."""
    return option(
        f"which of AMD's indexes to take, where no other is named (default: {default})",
        choices=("stable", "nightly", "rc", "dev"),
        group=group,
    )


def endpoint_url() -> Any:
    """`--endpoint-url`."""
    return option(
        "server of a bucket that is not the cloud's own (default: AWS_ENDPOINT_URL_S3)",
        metavar="URL",
        convert=converters.url,
    )


@dataclass(frozen=True, kw_only=True)
class OptionalStoreOptions:
    """`--store`, which may be left out, and `--endpoint-url`."""

    store: str | None = store(required=False)
    endpoint_url: str | None = endpoint_url()

    def open_store(self, *, existing: bool = False) -> Store:
        """The store; it need not be there yet, unless it must be an `existing` one, in which something is."""
        from cairn.output import console
        from cairn.store import opening

        say, retry = console.current().info, self.retry_policy()
        opened = opening.open_existing if existing else opening.open_store
        return opened(self.store or "", endpoint_url=self.endpoint_url, retry=retry, say=say)

    def open_existing_store(self) -> Store:
        """The store, in which something is."""
        return self.open_store(existing=True)

    def retry_policy(self) -> RetryPolicy | None:
        """How often a request to a bucket is tried again; None for as often as the store wants."""
        return None


@dataclass(frozen=True, kw_only=True)
class StoreOptions(OptionalStoreOptions):
    """`--store` and `--endpoint-url`."""

    store: str = store()


@dataclass(frozen=True, kw_only=True)
class PatientStoreOptions(StoreOptions):
    """`--store`, `--endpoint-url` and `--patience`, for commands that run when nobody is there."""

    patience: float | None = option(
        "seconds for which a bucket that does not answer is waited for (default: 600; 15 on a terminal)",
        metavar="SECONDS",
        convert=converters.seconds,
    )

    def retry_policy(self) -> RetryPolicy | None:
        """One that lasts so long."""
        from cairn.retry import RetryPolicy

        # A runner may give its jobs a terminal, before which nobody sits.
        is_watched = sys.stderr.isatty() and not os.environ.get("CI")
        return RetryPolicy.lasting(self.patience or (15.0 if is_watched else 600.0))


def cache_store(default: str) -> Any:
    """`--cache-store`; `default` says in words which cache it is without it."""
    return option(
        f"cache to share: a path, file://…, s3://bucket/prefix, gs:// or az:// (default: {default})",
        metavar="URL",
        convert=converters.nonempty,
    )


def index(default: str, *, explicit: bool = False) -> Any:
    """`--index`, and its other name; with `explicit`, it is None where the user does not say which."""
    return option(
        f"a channel, or a channel and a family: staging, release/gfx110X-all (default: {default})",
        "--index",
        "--channel",
        default=None if explicit else default,
        completer=complete_indexes,
    )


def set_argument() -> Any:
    """`SET`, to be read by `set_id_of`."""
    return argument("SET", "its set.json, or its id: the first digits will do")


def set_id_of(text: str) -> str:
    """The id that a set.json has, or the beginning of one as it was given."""
    from cairn.wheels import wheelset

    if text and Path(text).is_dir():
        raise UsageError(f"{text} is a folder, not a set.json", tip=f"did you mean {Path(text, 'set.json')}?")
    if Path(text).is_file():
        return wheelset.read(Path(text)).id
    if Path(text).suffix or "/" in text:
        raise UsageError(f"there is no file {text}", tip="name a set.json, or the id of a set")
    return text


def root_checkout_dir() -> Any:
    """`--root-checkout-dir`."""
    return option("folder of the checkouts (default: beside the stack.toml)", convert=converters.new_folder)


def output_dir(*, default: Path | None = None) -> Any:
    """`--output-dir`, which must be given where it has no default and something is written."""
    return option(
        "folder to write into; made if missing" + (" (default: %(default)s)" if default else ""),
        convert=converters.new_folder,
        required=default is None,
        default=default,
    )


def targets(default: str) -> Any:
    """`--targets`; `default` says in words what applies without it."""
    return option(
        f"GPU targets or families, joined by commas, or cpu (default: {default})",
        convert=converters.nonempty,
        completer=complete_targets,
    )


def test_config() -> Any:
    """`--test-config`."""
    return option(
        "configuration in suite.toml: default, distributed, inductor, full (default: %(default)s)",
        metavar="NAME",
        convert=converters.nonempty,
        default="default",
    )


def skip_files() -> Any:
    """`FILE|DIR …`."""
    return argument(
        "FILE|DIR", "a file of skips, or a folder of them", nargs="+", convert=converters.file_or_folder
    )


def jobs(work: str) -> Any:
    """`--jobs`: how many of `what` at once; 0 without it, for as many as suits."""
    return option(f"{work} at once (default: what suits)", convert=converters.positive, default=0)


def offline() -> Any:
    """`--offline`."""
    return flag(
        "fetch nothing, and let no build fetch: what it needs is there from an earlier run, "
        "or in the folders of --find-links"
    )


def version_suffix() -> Any:
    """`--version-suffix`."""
    return option("local version of the wheels, such as +rocm7.10.0 (default: the SDK's)")


def wheels() -> Any:
    """`WHEEL …`."""
    return argument("WHEEL", "a wheel", nargs="+", convert=converters.file)


def published_wheels() -> Any:
    """`WHEEL …`, each of which may lie elsewhere."""
    return argument("WHEEL", "a wheel, its URL, or INDEX#NAME==VERSION", nargs="+", convert=converters.wheel)


def binaries() -> Any:
    """`--binaries`."""
    return flag("fetch wheels that lie elsewhere whole, to read their libraries too")


def provided() -> Any:
    """`--provided`."""
    return repeated("a library that a different wheel supplies", metavar="GLOB")


def index_url(*, group: Exclusive | None = None) -> Any:
    """`--index-url`."""
    return option("the only package index to use", metavar="URL", convert=converters.url, group=group)


def find_links() -> Any:
    """`--find-links`."""
    return repeated("folder or page with packages", metavar="PLACE", convert=converters.place)


def sdk_version(text: str) -> str | None:
    """A version, or what one must be by the comparisons of PEP 440; None for an empty text: the newest."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    exact = text.strip().removeprefix("==").strip()
    try:
        Version(exact)
    except InvalidVersion:
        try:
            return str(SpecifierSet(text)) or None
        except InvalidSpecifier:
            raise ArgumentTypeError(f"{text!r} is no version, such as 7.10.0, '>1.0' or '~=7.10'") from None
    return exact


def sdk_extras(text: str) -> tuple[str, ...]:
    """Extras of the `rocm` package, after those that a build needs: upstream adds too."""
    return tuple(dict.fromkeys((*_SDK_EXTRAS, *filter(None, map(str.strip, text.split(","))))))


def rocm_version(*names: str, **more: Any) -> Any:
    """`--rocm-version`, of the ROCm SDK that is installed; upstream's script has a different name for it."""
    return option(
        "version of the ROCm SDK: 7.10.0, ==7.10.0, '>1.0' or '~=7.10' (default: the newest)",
        *(names or ("--rocm-version",)),
        metavar="VERSION",
        convert=sdk_version,
        **more,
    )


_SDK_INDEX = Exclusive()


@dataclass(frozen=True, kw_only=True)
class SdkOptions:
    """Where pip finds the ROCm SDK: upstream's flags (build_prod_wheels.py), and `--stream`."""

    index_url: str | None = index_url(group=_SDK_INDEX)
    stream: str | None = stream("pip's own index; with --gpu, stable", group=_SDK_INDEX)
    find_links: tuple[str, ...] = find_links()
    cache_dir: Path | None = option("pip's cache folder", "--pip-cache-dir", convert=converters.new_folder)
    version: str | None = rocm_version()
    pre: bool = switch("take pre-releases too", default=True)
    extras: tuple[str, ...] = option(
        "extras of the rocm package in addition to libraries and devel, such as device-gfx1100",
        "--rocm-extras",
        metavar="ROCM_EXTRAS",
        default=_SDK_EXTRAS,
        convert=sdk_extras,
    )
    offline: bool = False

    def source(self) -> PackageSource:
        """Where pip looks for the ROCm SDK."""
        from cairn.targets import upstream_streams
        from cairn.venv import PackageSource

        url = upstream_streams()[self.stream] if self.stream else self.index_url
        return fill(PackageSource, self, index_url=url)

    def sdk_request(self) -> SdkRequest:
        """The ROCm SDK to install."""
        from cairn.build.model import SdkRequest

        return fill(SdkRequest, self, source=self.source())


def topology_dir() -> Any:
    """`--topology-dir`."""
    return option(
        "a copy of a machine's /sys/class/kfd/kfd/topology/nodes, to choose for that machine",
        convert=converters.folder,
    )


def python(use: str, default: str = "Cairn's own") -> Any:
    """`--python`, an interpreter; `what` says which it is."""
    return option(f"interpreter {use} (default: {default})", convert=converters.program)


def tested_python() -> Any:
    """`--python`, the interpreter that has what is tested (`interpreters.of_user`)."""
    return python("that has the wheels", "that of the active environment, else Cairn's own")


def work_dir(default: Path = Path(".cairn")) -> Any:
    """`--work-dir`."""
    return option(
        "folder of checkouts, environments and logs (default: %(default)s)",
        convert=converters.new_folder,
        default=default,
    )


def translate() -> Any:
    """`--translate`, for commands that run tests where there may be no GPU."""
    return option(
        "run the tests through TorchDevice, whose wheel this is: code that says cuda computes on the "
        "CPU; the record says so, and is `untested` where nothing failed, whatever the set is for",
        metavar="WHEEL",
        convert=converters.file,
    )


def dry_run() -> Any:
    """`--dry-run`."""
    return flag("say what would be done, and change nothing")
