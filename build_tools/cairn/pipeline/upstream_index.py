"""Choose a set of an index that AMD or PyTorch publishes: wheels of one ROCm build, or wheels for the CPU.

Such an index lists no sets, and no tests: what belongs together is in the versions (`2.14.0+rocm10.1.0`,
`2.13.0+cpu`) and in the requirements of the wheels. AMD has host wheels, and device wheels of a GPU: an extra
of torch names two of them, that of the target and, for AOTriton's images, that of a family; torchaudio has
none (ROCm/TheRock, issue 6223, and the pages of https://stable.repo.amd.com/rocm/whl-next/, as seen in
2026-10).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from cairn import package_index, simple_index, targets, web
from cairn.errors import CairnError, NetworkError, PrerequisiteError, WheelError
from cairn.output import wording
from cairn.release.index.generation import project_of, version_of
from cairn.release.pages.targets_file import Choice, Machine, Offer, Pick
from cairn.release.publish.compatibility import Platform
from cairn.simple_index import IndexFile
from cairn.wheels import published
from cairn.wheels.metadata import device_names, fields, rocm_version, wheel_info

PROJECTS = ("torch", "torchvision", "torchaudio")
_PREFIX = "amd-"  # of device wheels
_TOLD = 3  # newer versions that are passed over
_CPU = ""  # the build of versions for the CPU: 2.13.0+cpu, and 2.13.0 for macOS


class _Needs(NamedTuple):
    """What the METADATA of a wheel says: its requirements, and the names of its extras (PEP 685)."""

    requires: tuple[Requirement, ...]
    extras: frozenset[str]


class _LackError(Exception):
    """Something that a set needs and the index does not have."""


class _Set(NamedTuple):
    packages: tuple[str, ...]
    versions: Mapping[str, str]
    notes: tuple[str, ...]


class _Index:
    """The pages of an index, each read once, as far as they are for a Python and platform."""

    def __init__(self, url: str, place: Platform) -> None:
        self.url, self.place = url, place

    @functools.cache  # noqa: B019 - it lives as long as its index
    def every(self, project: str) -> tuple[IndexFile, ...]:
        return simple_index.files(self.url, project)

    @functools.cache  # noqa: B019
    def versions(self, project: str) -> Mapping[Version, IndexFile]:
        """The files that can be installed, by version; wheels count before sdists."""
        by_version: dict[Version, IndexFile] = {}
        for file in sorted(self.every(project), key=lambda file: file.name.endswith(".whl")):
            try:
                if not file.yanked and self.place.takes(file.name, file.requires_python):
                    by_version[Version(version_of(file.name))] = file
            except (CairnError, ValueError):
                continue  # no file of a distribution
        return by_version

    @functools.cache  # noqa: B019
    def needs(self, file: IndexFile) -> _Needs | None:
        """What a wheel says of itself; None where only its download would tell.

        Raises:
            _LackError: it cannot be read, or is that of a different wheel.
        """
        try:
            data = published.metadata(file)
        except (WheelError, web.MissingFileError) as error:
            raise _LackError(f"the metadata of {file.name} cannot be read: {error}") from error
        if data is None:
            return None
        try:
            raw = fields.core_metadata(data, name=file.name)
            requires = tuple(map(wheel_info.requirement, raw.get("requires_dist", ())))
            for need in requires:
                if need.marker is not None:
                    need.marker.evaluate({**self.place.markers(), "extra": ""})
            stated = canonicalize_name(raw.get("name", "")), Version(raw.get("version", ""))
        except (CairnError, ValueError, KeyError) as error:
            raise _LackError(f"the metadata of {file.name} cannot be read: {error}") from error
        if stated != (project_of(file.name), Version(version_of(file.name))):
            raise _LackError(f"the metadata of {file.name} is that of {stated[0]} {stated[1]}")
        return _Needs(requires, frozenset(canonicalize_name(name) for name in raw.get("provides_extra", ())))

    def serves(self, gpu: str) -> bool:
        """Whether there is code of torch for a GPU."""
        return bool(self.versions(f"{_PREFIX}torch-{device_names.extra_of(gpu)}"))


def is_upstream(index_url: str) -> bool:
    """Whether an index has torch, but not Cairn's list of sets.

    Raises:
        NetworkError: it does not answer.
    """
    return bool(simple_index.files(index_url, "torch"))


def choose(index_url: str, machine: Machine, *, stream: str | None = None) -> Choice:
    """Choose the newest whole set of an index for the GPUs of a machine, or for the CPU where it has none.

    Args:
        index_url: the index.
        machine: what to install on.
        stream: which of AMD's streams it is; None for an index that the user named.

    Raises:
        PrerequisiteError: there is none; the tip says which stream has one, or what the index has.
        NetworkError: the index does not answer.
    """
    index = _Index(index_url, Platform(python=machine.python, tag=machine.platform))
    if not index.versions("torch"):
        raise _nothing_for_place(index, machine)
    if machine.gpus in ((), (targets.CPU,)):
        chosen, passed_over = _newest(index, ())
        warnings = [] if machine.gpus else ["no GPU was found: this is the build for the CPU"]
        return _choice(index, machine, (targets.CPU,), chosen, [*warnings, *_told(passed_over)])
    discrete = targets.discrete(machine.gpus)
    warnings = []
    if left := [name for name in machine.gpus if name not in discrete]:
        warnings.append(f"left out, as graphics of the processor: {', '.join(left)}; --gpu installs for it")
    served = tuple(gpu for gpu in discrete if index.serves(gpu))
    if not served:
        raise _nothing_for_gpus(index, discrete, machine, stream)
    if missing := [gpu for gpu in discrete if gpu not in served]:
        usable = ",".join(str(i) for i, name in enumerate(machine.gpus) if name in served)
        warnings.append(
            f"{index_url} has nothing for {' and '.join(missing)}: "
            f"hide it from programs with ROCR_VISIBLE_DEVICES={usable}"
        )
    chosen, passed_over = _newest(index, served)
    return _choice(index, machine, served, chosen, [*warnings, *_told(passed_over)])


def _told(passed_over: Sequence[str]) -> Iterator[str]:
    for text in passed_over[:_TOLD]:
        yield f"passed over: {text}"
    if len(passed_over) > _TOLD:
        yield f"passed over: {len(passed_over) - _TOLD} older versions more"


def _choice(
    index: _Index, machine: Machine, served: tuple[str, ...], chosen: _Set, warnings: Sequence[str]
) -> Choice:
    offer = Offer(
        index=index.url,
        index_url=index.url,
        family=targets.CPU if served == (targets.CPU,) else targets.family_of(served),
        line="",
        python=machine.python,
        platform=machine.platform,
        packages=chosen.packages,
        versions=chosen.versions,
        set_id="",
        added="",
    )
    tested = "what was tested" if served == (targets.CPU,) else "what was tested on which GPU"
    untested = "; ".join((f"{index.url} does not say {tested}", *chosen.notes))
    return Choice(picks=(Pick(targets=served, offer=offer, untested=untested),), warnings=tuple(warnings))


def _newest(index: _Index, gpus: Sequence[str]) -> tuple[_Set, list[str]]:
    """The first whole set, newest ROCm first and then newest torch; and why newer ones are passed over.

    Without GPUs it is a set for the CPU.
    """
    by_age = sorted(
        (
            (Version(build or "0"), version, build)
            for version in index.versions("torch")
            if (build := _build_of(version)) is not None and bool(build) == bool(gpus)
        ),
        reverse=True,
    )
    passed_over: list[str] = []
    for _, version, build in by_age:
        try:
            return _whole(index, version, build, gpus), passed_over
        except _LackError as lack:
            passed_over.append(f"torch {version}: {lack}")
    if not passed_over and not gpus:
        raise PrerequisiteError(
            f"no GPU is named, and {index.url} has builds for GPUs",
            tip="name one: --gpu gfx1100; or leave the index out for a build for the CPU",
        )
    reasons = passed_over or [
        f"no torch of it names a ROCm version: {', '.join(map(str, index.versions('torch')))}"
    ]
    raise PrerequisiteError(
        f"{index.url} has no whole set for {' and '.join(gpus) or 'the CPU'}: {reasons[0]}",
        tip="its publisher may be at work: try again later, or another stream"
        + (f"; older ones lack something, too: {'; '.join(reasons[1:_TOLD])}" if reasons[1:] else ""),
    )


def _whole(index: _Index, version: Version, build: str, gpus: Sequence[str]) -> _Set:
    """The set of a torch, if all that it needs of ROCm and its siblings is there."""
    lead = index.versions("torch")[version]
    chosen = {"torch": lead}
    for project in PROJECTS[1:]:
        if (sibling := _sibling(index, project, version, build, gpus)) is not None:
            chosen[project] = sibling
    words, unhashed, unread = [], [], []
    for project, file in chosen.items():
        extras = _extras(index, project, file, gpus) if gpus else ()
        of_it = f"[{','.join(extras)}]" if extras else ""
        words.append(f"{project}{of_it}=={version_of(file.name)}")
        unread += [file.name] if index.needs(file) is None else []
        wheels = [file, *_required(index, file, extras, Version(version_of(file.name)))]
        unhashed += [wheel.name for wheel in wheels if wheel.sha256 is None]
    # Which goes with this torch only its requirements tell, which the installer reads.
    words += (unknown := [project for project in PROJECTS if project not in chosen])
    if build != _CPU and (pin := _rocm_pin(index, lead, build)):
        words.append(pin)
    notes = [f"the installer finds the {name} that goes with it" for name in unknown]
    if unhashed:
        notes.append(f"it gives no hash of {wording.some(unhashed, shown=2)}: unverified")
    if unread:
        notes.append(
            f"it shows no requirements of {wording.some(unread, shown=2)}: the installer may find more"
        )
    return _Set(
        packages=tuple(words),
        versions={project: version_of(file.name) for project, file in chosen.items()},
        notes=tuple(notes),
    )


def _sibling(
    index: _Index, project: str, torch: Version, build: str, gpus: Sequence[str]
) -> IndexFile | None:
    """The newest file of a project of the same build that goes with a torch; None where nobody can tell."""
    of_build = sorted((v for v in index.versions(project) if _build_of(v) == build), reverse=True)
    of_torch = [v for v in index.versions("torch") if _build_of(v) == build]
    unread = False
    for version in of_build:
        needs = index.needs(file := index.versions(project)[version])
        if needs is None:
            # The newest go together, and the newest of those that have code for the GPUs.
            if (torch, version) == (max(of_torch), of_build[0]) or (
                torch == max(_with_code(index, "torch", of_torch, gpus), default=None)
                and version == max(_with_code(index, project, of_build, gpus), default=None)
            ):
                return file
            unread = True
            continue
        pins = [need.specifier for need in needs.requires if canonicalize_name(need.name) == "torch"]
        if all(pin.contains(torch, prereleases=True) for pin in pins):
            return file
    if unread and torch == max(_with_code(index, "torch", of_torch, gpus), default=None):
        return None
    rest = f", and has {wording.some([str(v) for v in of_build], shown=3)}" if of_build else ""
    of = "for the CPU" if build == _CPU else f"of ROCm {build}"
    raise _LackError(f"the index has no {project} {of} that goes with it{rest}")


def _with_code(
    index: _Index, project: str, versions: Sequence[Version], gpus: Sequence[str]
) -> Iterator[Version]:
    """The versions of a project that have device wheels for all GPUs."""
    projects = [f"{_PREFIX}{project}-{device_names.extra_of(gpu)}" for gpu in gpus]
    yield from (v for v in versions if projects and all(v in index.versions(name) for name in projects))


def _extras(index: _Index, project: str, file: IndexFile, gpus: Sequence[str]) -> tuple[str, ...]:
    """The extras of a wheel that bring the code for some GPUs; none if it was not split."""
    version, needs = Version(version_of(file.name)), index.needs(file)
    extras = [device_names.extra_of(gpu) for gpu in gpus]
    of_devices = {extra for extra in extras if version in index.versions(f"{_PREFIX}{project}-{extra}")}
    has = of_devices if needs is None else needs.extras.intersection(extras)
    is_split = bool(has) or project == "torch"
    if needs is not None:
        is_split |= any(extra.startswith("device-") for extra in needs.extras)
    if not is_split:
        return ()
    if lacking := [extra for extra in extras if extra not in has]:
        raise _LackError(f"{file.name} has no code for {lacking[0].removeprefix('device-')}")
    return tuple(extras)


def _required(index: _Index, file: IndexFile, extras: Sequence[str], version: Version) -> Iterator[IndexFile]:
    """The wheels of ROCm and of device code that a wheel requires with some extras."""
    needs = index.needs(file)
    if needs is None:
        project = canonicalize_name(file.name.partition("-")[0])
        for extra in extras:
            if (device := index.versions(f"{_PREFIX}{project}-{extra}").get(version)) is None:
                raise _LackError(f"the index has no {_PREFIX}{project}-{extra} {version}")
            yield device
        return
    markers = index.place.markers()
    for need in needs.requires:
        name = canonicalize_name(need.name)
        if (
            not name.startswith("rocm")
            and device_names.processor_of(name, file.name.partition("-")[0]) is None
        ):
            continue  # what others publish need not be here
        if need.marker is not None and not any(
            need.marker.evaluate({**markers, "extra": extra}) for extra in ("", *extras)
        ):
            continue
        fitting = [v for v in index.versions(name) if need.specifier.contains(v, prereleases=True)]
        if not fitting:
            raise _LackError(f"the index has no {name}{need.specifier}, which {file.name} requires")
        yield index.versions(name)[max(fitting)]


def _rocm_pin(index: _Index, torch: IndexFile, rocm: str) -> str | None:
    """A requirement that keeps the SDK at one build, where a torch allows several (`rocm~=10.1.0`)."""
    needs = index.needs(torch)
    pins = [need.specifier for need in needs.requires if need.name == "rocm"] if needs else []
    if not pins or Version(rocm) not in index.versions("rocm"):
        return None
    return f"rocm=={rocm}" if all(pin.contains(rocm, prereleases=True) for pin in pins) else None


def _build_of(version: Version) -> str | None:
    """The ROCm version that a build is against, `_CPU`, or None for a different kind of build (CUDA, XPU)."""
    if version.local in (None, "cpu"):
        return _CPU
    try:
        return rocm_version.rocm_version_of(str(version))
    except WheelError:
        return None


def _nothing_for_place(index: _Index, machine: Machine) -> CairnError:
    if not (every := index.every("torch")):
        if problem := package_index.index_problem(index.url, "torch"):
            return NetworkError(problem, tip=package_index.TIP)
        return PrerequisiteError(f"{index.url} has no torch", tip="name an index that has: --index-url URL")
    message = f"{index.url} has no torch for {machine}"
    fitting = []
    for file in every:
        with contextlib.suppress(CairnError, ValueError):  # no file of a distribution
            fitting += [file] if index.place.takes(file.name, None) else []
    if fitting and all(file.yanked for file in fitting):
        return PrerequisiteError(
            f"{message} that is not yanked", tip="try again later, or a different stream"
        )
    if fitting:
        pythons = sorted({f"Python {file.requires_python}" for file in fitting if file.requires_python})
        return PrerequisiteError(
            message, tip=f"its wheels require {wording.some(pythons)}: take such a Python"
        )
    tags = sorted({"-".join(file.name.removesuffix(".whl").split("-")[-3:]) for file in every})
    return PrerequisiteError(message, tip=f"it has {wording.some(tags)}: take such a Python")


def _nothing_for_gpus(
    index: _Index, gpus: Sequence[str], machine: Machine, stream: str | None
) -> PrerequisiteError:
    names = " and ".join(gpus)
    if stream is None:
        prefix = f"{_PREFIX}torch-device-"
        keywords = [
            name.removeprefix(prefix) for name in simple_index.projects(index.url) if name.startswith(prefix)
        ]
        targets_known = targets.in_order(name for name in keywords if name in targets.known_targets())
        tip = (
            f"it has code for {', '.join(targets_known)}" if targets_known else "it lists no code for any GPU"
        )
        return PrerequisiteError(f"{index.url} has no torch with code for {names}", tip=tip)
    return PrerequisiteError(
        f"AMD's stream {stream} ({index.url}) has nothing for {names} on {machine}",
        tip=other_streams(stream, lambda url: any(map(_Index(url, index.place).serves, gpus))),
    )


def other_streams(stream: str, serves: Callable[[str], bool]) -> str:
    """Return which of AMD's other streams have what one lacks, as a tip.

    Args:
        stream: the one that lacks it.
        serves: whether the index at an address has it.
    """
    have, silent = [], []
    for name, url in targets.upstream_streams().items():
        if name != stream:
            try:
                served = serves(url)
            except NetworkError:
                silent.append(name)
            else:
                have += [name] if served else []
    tip = f"the stream {' and '.join(have)} has: --stream {have[0]}" if have else "no other stream has"
    return f"{tip}; {' and '.join(silent)} did not answer" if silent else tip
