"""Choose the set of an index to install on a machine, and the command line that installs it.

`prepare` takes the address of an index and a description of the machine, and returns an `Installation`; `run`
carries it out, and `prove` has the GPU compute something.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
from packaging.utils import canonicalize_name

from cairn import (
    datafile,
    files,
    interpreters,
    isolation,
    package_index,
    platforms,
    process,
    requirements,
    targets,
    venv,
    web,
)
from cairn.concurrency import side_by_side
from cairn.errors import PrerequisiteError, ProcessError, StoreError, UsageError
from cairn.interpreters import Interpreter
from cairn.output import Progress
from cairn.pipeline import installed, upstream_index
from cairn.release.index import keys, write
from cairn.release.index.snapshot import Index, read_set
from cairn.release.pages import targets_file
from cairn.release.pages.targets_file import (
    Choice,
    Installer,
    Machine,
    Offer,
    Pick,
    TargetsFile,
    choose,
    shown,
)
from cairn.release.pages.view import IndexView
from cairn.release.provenance import chain, evidence
from cairn.testing.gpus.visible import gpus_here

if TYPE_CHECKING:
    from cairn.release.trust.client import SignedStore
    from cairn.store.protocol import Store

_AT_ONCE = 16  # requests side by side
_LARGEST = 16 << 20  # bytes of a targets.json
_TIMEOUT = 30  # seconds, for a file of a few hundred kilobytes
_MISSING = "name an index that Cairn publishes, such as https://…/release/simple/"
MAKE_ONE = "make one: python3 -m venv torch-env; then activate it, or name its Python with --python"


class NoEnvironmentError(UsageError):
    """There is no environment that the user works in."""


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """The Python to install for.

    Attributes:
        interpreter: its path.
        origin: why this one.
    """

    interpreter: Interpreter
    origin: str

    @property
    def to_name(self) -> Path | None:
        """The interpreter to name in a command line; None for the active environment."""
        return None if self.origin.startswith("the active environment") else self.interpreter.path

    def __str__(self) -> str:
        return f"Python {self.interpreter.version}: {self.interpreter.path} ({self.origin})"


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """The sets to install on a machine.

    Attributes:
        address: of the targets.json that it was chosen from.
        machine: what it is for.
        python: the interpreter to name in the lines; None where they are for the active environment.
        gpus: the machine's GPUs, each with its products.
        choice: the sets, and what to know about them.
        signed: the store as its promoter signed it; None where it has no root, or nobody signs the index.
    """

    address: str
    machine: Machine
    python: Path | None
    gpus: tuple[str, ...]
    choice: Choice
    signed: SignedStore | None = None

    def index_url(self, pick: Pick) -> str:
        """Return the value of `--index-url`."""
        return urllib.parse.urljoin(self.address, pick.offer.index_url)

    def line(self, installer: Installer, pick: Pick) -> str:
        """Return the command line that installs a set."""
        return targets_file.install_line(
            installer, self.index_url(pick), _exact(pick.offer), python=self.python
        )


def prepare(
    index_url: str | None,
    machine: Machine,
    *,
    python: Path | None = None,
    line: str | None = None,
    stream: str | None = None,
) -> Installation:
    """Choose the sets that a machine should install from an index.

    Args:
        index_url: of the simple pages of a channel, or of one index of it, or the folder these are in; a path
            stands for the URL of a folder. It may be one in the shape of AMD's, which lists no sets and no
            tests. None takes AMD's.
        machine: what to install on.
        python: the interpreter to name in the lines; None where they are for the active environment.
        line: the release line to take, where not the first that is offered.
        stream: which of AMD's; None for the stable one.

    Raises:
        PrerequisiteError: the index has nothing for the machine.
        NetworkError: it cannot be reached.
        StoreError: its list of sets is missing or cannot be trusted, or no promoter has signed a state of it.
    """
    if index_url is None:
        return _of_upstream(None, machine, python, line, stream or next(iter(targets.upstream_streams())))
    if "://" not in index_url:  # pip and uv take a path as well, but only a URL can be put together
        index_url = files.expanded(index_url).absolute().as_uri()
    address = f"{index_url.rstrip('/').removesuffix('/simple')}/targets.json"
    signed, folder = chain.signed_store(
        f"{address.removesuffix('/targets.json')}/simple/", tip=package_index.TIP
    )
    if signed and keys.is_gated(folder):
        offered = _offered(signed, folder)
    else:
        try:
            data = _read(address)
        except StoreError:
            if not upstream_index.is_upstream(index_url):
                raise
            return _of_upstream(index_url, machine, python, line, None)
        offered = datafile.loads(data, TargetsFile, name=address)
        for offer in (offer for entry in offered.targets for offer in entry.offers):
            _check(offer, address)
    return Installation(
        address=address,
        machine=machine,
        python=python,
        gpus=tuple(shown(offered.entry(name)) for name in dict.fromkeys(machine.gpus) if name != targets.CPU),
        choice=choose(offered, machine, line=line),
        signed=signed,
    )


def _of_upstream(
    index_url: str | None, machine: Machine, python: Path | None, line: str | None, stream: str | None
) -> Installation:
    """A set of an index in the shape of AMD's; of PyTorch's builds for the CPU where there is no GPU."""
    if line is not None:
        raise UsageError(
            "release lines are of an index of Cairn's, and none is named", tip="name it: --index-url URL"
        )
    names = tuple(name for name in dict.fromkeys(machine.gpus) if name != targets.CPU)
    url = index_url or (targets.upstream_streams()[stream or ""] if names else targets.upstream_cpu_index())
    choice = upstream_index.choose(url, machine, stream=stream)
    return Installation(
        address=url,
        machine=machine,
        python=python,
        gpus=tuple(shown(TargetsFile(index="", targets=()).entry(name)) for name in names),
        choice=choice,
    )


def this_machine(python: Interpreter, *, gpus: Sequence[str] | None, topology: Path | None) -> Machine:
    """Describe this machine, with one of its Pythons.

    Args:
        python: the interpreter to install for.
        gpus: the targets to install for, `cpu` among them, where the user named any.
        topology: the kernel's description of the GPUs; that of this machine where it is None.
    """
    targets = gpus_here(topology) if gpus is None else tuple(gpus)
    return Machine(gpus=targets, python=python.version, platform=python.platform)


def destination(place: Path | None, *, to_change: bool) -> Destination:
    """Return the Python to install for: the named one, or that of the user's active environment.

    It is never the environment that Cairn itself is installed in, unless that is named: nobody works in the
    environment of a tool (`uv tool install`, pipx), and torch does not belong there.

    Args:
        place: an interpreter, or the folder of an environment.
        to_change: something will be installed; else the first Python on PATH serves, to choose by.

    Raises:
        NoEnvironmentError: there is none.
        UsageError: it does not run.
    """
    if place is not None:
        path, same = platforms.here.python_of(place) if place.is_dir() else place, False
        with contextlib.suppress(UsageError):  # a variable left over from an environment that is gone
            active = interpreters.active()
            same = active is not None and path.absolute().parent == active.absolute().parent
        return Destination(
            interpreter=interpreters.ask(path), origin="the active environment" if same else "--python"
        )
    active = interpreters.active()
    if active is not None and not (to_change and interpreters.is_ours(active)):
        whose = ", Cairn's own" if interpreters.is_ours(active) else ""
        return Destination(interpreter=interpreters.ask(active), origin=f"the active environment{whose}")
    if to_change:
        why = f"the active one, {sys.prefix}, is Cairn's own" if active else "none is active"
        raise NoEnvironmentError(f"there is no environment to install into: {why}", tip=MAKE_ONE)
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        for name in ("python3", "python"):
            if (program := shutil.which(name, path=folder)) and not interpreters.is_ours(Path(program)):
                with contextlib.suppress(UsageError):  # such as a stand-in that offers to install one
                    return Destination(
                        interpreter=interpreters.ask(Path(program)),
                        origin="the first on PATH: no environment is active",
                    )
    raise UsageError("there is no Python to install for", tip=MAKE_ONE)


def _offered(store: SignedStore, folder: str) -> TargetsFile:
    """What targets.json says, made here of what was signed: nobody signs that file, and it chooses."""
    views = []
    for name in store.indexes(folder) or (folder,):
        snapshot = store.current(Index(cast("Store", store), name))  # it reads no more than a reader can
        sets = side_by_side(snapshot.set, snapshot.set_ids, jobs=_AT_ONCE)
        views.append(IndexView(name=name, sets=sets))
    return targets_file.make(folder, views)


@contextlib.contextmanager
def pages(prepared: Installation, pick: Pick) -> Iterator[str]:
    """Yield an index of the chosen set alone, made here of what was signed; else the index as it is.

    Installers take a file only if it has the hash that its page says, so that the bytes are those of the set.
    """
    index_url, store = prepared.index_url(pick), prepared.signed
    if store is None:
        yield index_url
        return
    index, index_set = pick.offer.index, None
    if keys.is_gated(index):  # what nobody signs, such as staging, is believed for its builder's signature
        index_set = store.current(Index(cast("Store", store), index)).set(pick.offer.set_id)
    wheel_set = read_set(cast("Store", store), pick.offer.set_id)
    evidence.require_builder(store, wheel_set, ())
    evidence.builder_signers(store, wheel_set, store.anchor.root.trust(), entry=index_set)
    prefix = keys.set_simple_prefix(wheel_set.id)
    up = keys.relative_url("files/", prefix=prefix)
    with tempfile.TemporaryDirectory(prefix="cairn-install-") as folder:
        for key, data in write.set_objects(wheel_set).items():
            page = data.replace(up.encode(), f"{chain.parse_index_url(index_url)[0]}/files/".encode())
            files.write_bytes(Path(folder, key), page)
        yield keys.set_url(Path(folder).as_uri(), wheel_set.id)


def run(
    prepared: Installation, installer: Installer | None, python: Path, *, on_line: Progress | None
) -> dict[str, int | None]:
    """Install the chosen set, ignoring indexes from the user's configuration, and compare what is there.

    Where the store has a root, nothing but the files of the set as it was signed is installed.

    Args:
        prepared: what was chosen.
        installer: what installs; None takes pip, or uv where there is no pip.
        python: the interpreter to install for.
        on_line: receives each line of its output.

    Returns:
        Distribution to the number of files that were compared; None where only its version was.

    Raises:
        UsageError: several sets were chosen, each for an environment of its own.
        PrerequisiteError: the installer is not here, the Python is a system's, or the environment has
            something else afterwards.
        ProcessError: it refused.
    """
    pick, *further_picks = prepared.choice.picks
    if further_picks:
        each = [pick.targets[0] for pick in prepared.choice.picks]
        raise UsageError(
            f"{' and '.join(each)} need an environment each",
            tip=f"name one of them, and --python: --gpu {each[0]}",
        )
    start = _installer(installer, python)
    with pages(prepared, pick) as index_url, isolation.own_home(index_url) as home:
        command = [*start, *targets_file.install_arguments(index_url, _exact(pick.offer))]
        env = isolation.variables(isolation.Isolation.INSTALLER, home)
        try:
            # The pages of a signed store are ours; the files that they name are its own, maybe in a folder.
            store = chain.parse_index_url(prepared.index_url(pick))[0] if prepared.signed else None
            reads = [f"{store}/files"] if store else []
            writes = venv.places(python)
            completed = process.run(
                command, env=env, on_line=on_line, reads=reads, writes=writes, network=True
            )
        except ProcessError as error:
            if "externally managed" in error.output.replace("-", " "):
                why = f"{python} is the system's, which alone installs packages there (PEP 668)"
                raise PrerequisiteError(why, tip=MAKE_ONE) from error
            raise
        installed.require_extras(completed.output)
        return installed.require_announced(pick.offer, index_url, python)


def _exact(offer: Offer) -> tuple[str, ...]:
    """The offer's requirements at its versions: installers leave a bare name as it is, whatever is there."""
    exact = []
    for word in offer.packages:
        parsed = requirements.requirement(word)
        version = offer.versions.get(canonicalize_name(parsed.name))
        is_bare = version is not None and not parsed.specifier and not parsed.marker
        exact.append(f"{word}=={version}" if is_bare else word)
    return tuple(exact)


def _installer(chosen: Installer | None, python: Path) -> Sequence[str]:
    if chosen != "uv":
        try:
            pip = venv.pip_command(python)
            return (*pip[: pip.index("install")], "--isolated", *pip[pip.index("install") :])
        except PrerequisiteError:
            if chosen is not None:
                raise
    return (venv.uv_program(), "pip", "install", "--no-config", "--python", str(python))


def say(prepared: Installation) -> Iterator[str]:
    """Yield sentences for the user, shown before the command lines."""
    if prepared.gpus:
        yield f"GPU{'s' if len(prepared.gpus) > 1 else ''}: {', '.join(prepared.gpus)}"
    for pick in prepared.choice.picks:
        offer = pick.offer
        if not offer.set_id:
            each = ", ".join(f"{name} {version}" for name, version in offer.versions.items())
            yield f"for {' and '.join(pick.targets)}: {each or 'the newest'} of {offer.index}, UNTESTED"
            continue
        name = next((word for word in offer.versions if word == "torch"), next(iter(offer.versions), ""))
        yield (
            f"for {' and '.join(pick.targets)}: {name} {offer.versions.get(name, '')}, line {offer.line}, of "
            f"{offer.added[:10]} on {offer.index}, {'UNTESTED' if pick.untested else 'tested'}"
        )


def _read(address: str) -> bytes:
    if urllib.parse.urlsplit(address).scheme not in ("file", "http", "https"):
        raise UsageError(
            f"pip and uv cannot install from {address}", tip="name the https:// address where it is served"
        )
    data = web.whole(address, most=_LARGEST, timeout=_TIMEOUT, tip=package_index.TIP)
    if data is None:
        raise StoreError(f"there is no {address}", tip=_MISSING)
    return data


def _check(offer: Offer, address: str) -> None:
    """Refuse an offer of anything but a set of the index that was named, or of one below it."""
    parts = urllib.parse.urlsplit(offer.index_url)
    try:
        valid = bool(offer.packages) and all(
            requirements.requirement(word).url is None for word in offer.packages
        )
        base, index = chain.parse_index_url(f"{address.removesuffix('/targets.json')}/simple/")
        its_base, its_index = chain.parse_index_url(urllib.parse.urljoin(address, offer.index_url))
    except (ValueError, UsageError):
        valid = False
    else:
        valid &= bool(offer.set_id) and its_base == base and f"{its_index}/".startswith(f"{index}/")
    if parts.scheme or parts.netloc or not valid:
        raise StoreError(
            f"{address} names something that is not of its own index: {offer.index_url} {offer.packages}",
            tip="it was changed from outside: tell who runs the index",
        )
