"""Every command of `cairn` with its help line and its module, from which the parser is made.

A group shows these lines without loading its commands: only the module of the named command is imported. Its
`COMMANDS`, made by `cairn.cli.binder.command`, has the options and the function of each command.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Group:
    """A group of commands, such as `cairn build`.

    Attributes:
        about: its line in the help of the group above.
        description: what its own help begins with, if that is more than `about`.
        example: a command line.
        default: the command that is meant where none is named.
        commands: what each is about, without a capital and a full stop, or a group of its own.
        module: the one below `cairn.cli` that has all of the commands.
        modules: those that have some of them; any other command has one of its own name, in the room of the
            group.
    """

    about: str
    description: str = ""
    example: str
    default: str | None = None
    commands: Mapping[str, str | Group]
    module: str = ""
    modules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def module_of(self, name: str, room: str) -> str:
        """Return the module of a command of this group, whose modules are in the package `room`."""
        several = (module for module, names in self.modules.items() if name in names)
        module = self.module or next(several, None)
        return f"cairn.cli.{module}" if module else f"{room}.{name}"


_MANIFEST = Group(
    about="freeze what a build is made from; make and compare it again",
    description="Freeze what a build is made from in a manifest; make it again, and compare.",
    example="cairn manifest create --stack pytorch --output manifest.json",
    module="manifest",
    commands={
        "create": "write the manifest of a stack's checkouts",
        "checkout": "make the checkouts that a manifest froze, and prove by their trees that they are the "
        "same",
        "verify": "compare checkouts with a manifest",
    },
)

_PATCHES = Group(
    about="explain, export and apply what a checkout has beyond upstream",
    description="Explain, export and apply what a checkout has beyond upstream's files.",
    example="cairn patches audit external-builds/pytorch/pytorch",
    module="patches",
    commands={
        "audit": "explain everything in a checkout by hipify and the allowlist, or fail",
        "report": "show what hipify read, changed, made and left in a checkout",
        "export": "write the commits above hipify's as patch files",
        "apply": "commit patch files on top of a checkout: all of them or none, and none twice",
    },
)

_ROCM = Group(
    about="fetch ROCm's artifacts, make and install SDK packages",
    description="Fetch what CI built of ROCm, turn it into pip packages, and install them.",
    example="cairn rocm install --python .venv --index-url URL",
    module="rocm",
    commands={
        "fetch": "fetch the artifacts of a CI run of TheRock, from a bucket or a folder",
        "package": "make the packages of a ROCm SDK of a prefix, artifacts, or Debian's packages",
        "install": "install a ROCm SDK into an environment, and say where its parts are",
    },
)

_BUILD = Group(
    about="build wheels from checkouts",
    description="Build the wheels of a stack from its checkouts; what has not changed is not built.",
    example="cairn build torch --gpu auto",
    default="run",
    modules={"build.cache": ("cache", "log")},
    commands={
        "run": "build the wheels; without the name of a command, this one is meant",
        "cache": "show the cache of built wheels, and keep it small",
        "log": "show the log of a project, or what the last build did",
    },
)

_WHEEL = Group(
    about="look at, compare, check and change wheels",
    description="Look at, compare, check and change built wheels. No wheel is ever changed in place.",
    example="cairn wheel show out/torch-2.9.0+rocm7.10.0-cp311-cp311-manylinux_2_28_x86_64.whl",
    modules={
        "wheel.verify": ("show", "verify"),
        "wheel.change": ("set-version", "repair", "fat", "split", "join"),
    },
    commands={
        "show": "show a wheel's name, tags, requirements, sizes, targets and needed libraries",
        "verify": "check everything that a published wheel must satisfy, and list every breach",
        "set-version": "write wheels under new versions",
        "repair": "give wheels the platform tag that their symbols justify, and the libraries that nothing "
        "else supplies",
        "fat": "write a wheel that carries the ROCm libraries and data it needs, for the wanted targets "
        "alone, and that works without any ROCm SDK package",
        "split": "write a host wheel without device code, and one device wheel for each target",
        "join": "write a wheel of a host wheel and device wheels that were split from it",
    },
)

_TEST_SKIPS = Group(
    about="look after the tests that a suite leaves out",
    description="Look after the tests that a suite leaves out: skip-tests/*.toml.",
    example="cairn test skips lint external-builds/pytorch/skip-tests",
    modules={"test.suite": ("retry",), "test.skips": ("lint", "list")},
    commands={
        "lint": "say what is wrong, out of date or without effect in files of skips",
        "list": "say which tests are skipped in a run, why, and until when",
        "retry": "run the tests that are left out, and nothing else, and propose those that pass for removal",
    },
)

_TEST = Group(
    about="smoke-test wheels, read test results",
    description="Test built wheels as they will be installed, and judge the results.",
    example="cairn test report --floor 100 results/*.xml",
    modules={"test.smoke": ("smoke", "compat"), "test.suite": ("suite", "shards", "merge")},
    commands={
        "smoke": "install a set into a fresh environment and test it",
        "suite": "run a project's own tests on a set, or on what is installed, and judge them",
        "shards": "cut a suite into shards that take equally long, and print the matrix for GitHub Actions",
        "merge": "judge the shards of a suite together, and write one record of them",
        "compat": "measure what PyTorch's compatibility pages for ROCm claim, row by row",
        "report": "show what test runs came to: verdict, modules, failures, flaky and slow tests, skips, "
        "history",
        "skips": _TEST_SKIPS,
    },
)

_INDEX_MIRROR = Group(
    about="have an index hold what sets need of other indexes, by hash",
    description="Have an index hold what sets need of other indexes, by hash. A lock, which is reviewed, "
    "names every file for all Pythons and platforms of a stack.",
    example="cairn index mirror sync --stack pytorch --store ./store",
    default="sync",
    module="index.publish",
    commands={
        "lock": "write what a stack needs of other indexes into mirror.lock.toml, to be reviewed",
        "sync": "fetch what a lock names, or distributions need, and an index lacks; or compare",
    },
)

_INDEX = Group(
    about="serve, publish, check, verify, mirror or look after an index",
    description="Work with an index: static files that pip and uv install from.",
    example="cairn index serve ./store",
    modules={"index.upkeep": ("serve", "check", "repair", "gc")},
    commands={
        "serve": "serve a store over HTTP on this machine until interrupted",
        "publish": "offer wheels and sdists in a channel: staging or dev",
        "mirror": _INDEX_MIRROR,
        "check": "compare all that is in a store with what its generations say",
        "repair": "finish what a dead writer has left, make pages anew, or choose the current generation",
        "gc": "remove files, sets and leftovers that no generation names any more",
        "verify": "check wheels against what was signed, tested and built: from their bytes to the commits",
    },
)

_RELEASE_RECORD = Group(
    about="the test records of a set, and what was said to failed ones",
    description="Test records beside the set they are of: the gate reads them all.",
    example="cairn release record add smoke/record.json --store ./store",
    module="release.record",
    commands={
        "add": "put test records beside the set they are of",
        "answer": "say by name why a failed record does not hold its set back",
        "list": "list the test records of a set, and what each comes to",
    },
)

_RELEASE_KEY = Group(
    about="keys to sign with",
    example="cairn release key create --output-dir ~/.config/cairn",
    module="release.record",
    commands={
        "create": "make a key to sign releases and test records with",
    },
)

_RELEASE = Group(
    about="promote sets, and take them back",
    description="Bring sets from channel to channel.",
    example="cairn release promote SET --stack pytorch --store ./store",
    modules={
        "release.history": ("rollback", "yank", "retain", "log"),
        "ci.night_wheels": ("night",),
    },
    commands={
        "promote": "bring a set and all it needs to a different channel, if every demand on it holds",
        "night": "bring a night that was tested to a different channel, every leg or none",
        "record": _RELEASE_RECORD,
        "rollback": "give an index the state that it had before",
        "yank": "have installers pass over a set unless its exact version is asked for",
        "retain": "take old sets off an index",
        "log": "say what was done to an index, newest first",
        "key": _RELEASE_KEY,
    },
)

_IMAGE = Group(
    about="build and run the container images of builds and tests",
    description="The container images that wheels are built and tested in, by docker, podman or buildah.",
    example="cairn image build no_rocm_image_ubuntu24_04",
    module="image",
    commands={
        "build": "build an image of dockerfiles/",
        "run": "run an image, or a command in one, with the GPUs and the current folder of this machine",
    },
)

_CI_NIGHT = Group(
    about="run a night: freeze, build, stage, test, promote, report",
    description="Run a night whole, or job by job as workflows do: freeze, step build, stage, step test, "
    "step suite, step merge, promote, report. What the jobs agree on lies in the store, and nothing is "
    "promoted but by what lies there.",
    example="cairn ci night freeze --night 2026-01-31 --stack sample --store ./store --matrix matrix.json",
    modules={
        "ci.night_wheels": ("freeze", "stage", "promote"),
        "ci.night_step": ("step",),
        "ci.night_report": ("report", "list"),
        "ci.night_run": ("run",),
    },
    commands={
        "run": "run a whole night from this process, on this machine or on a cluster",
        "freeze": "begin a night: freeze its sources in one manifest, and write down what is expected of it",
        "step": "build or test one leg of a night: fetch from the store, run, keep the results",
        "stage": "publish what the legs of a night have built into staging",
        "promote": "bring each leg of a night that is ready through the gate",
        "report": "say how a night ended: on the status pages, in the run's summary, to whoever is to know",
        "list": "list the nights of a store, or what failed in one of them",
    },
)

_CI = Group(
    about="run a stack end to end, set a repository up for nights, or run their jobs",
    example="cairn ci run --stack sample --line release/2.9 --targets gfx942,gfx1100",
    modules={"ci.init": ("init", "check")},
    commands={
        "init": "have a repository of one's own on GitHub run nights: its workflows, stack and policies",
        "check": "say what a repository lacks to run nights, and what to do about each",
        "run": "run the whole trail of a stack on this machine: checkout, build, stage, smoke-test, gate, "
        "promote, install",
        "night": _CI_NIGHT,
    },
)

_CONFIG = Group(
    about="options that need not be given again: show and set them",
    description="Show and set what options have where they are not given: in CAIRN_* variables, in "
    "cairn.toml beside the work, and in your own file.",
    example="cairn config list",
    module="config",
    commands={
        "list": "list the settings that hold here, and where each stands",
        "get": "print what an option is set to",
        "set": "set an option for every command, or for one",
    },
)

_TRUST = Group(
    about="say who may build, test and promote, and sign what users install from",
    description="The root of a store, by TUF, and the keys that it names.",
    example="cairn trust init --store ./store --root-key cairn-sign.key",
    module="trust",
    commands={
        "init": "make the root of a store, and sign its indexes",
        "change": "give keys roles, or take these away, by a new root",
        "show": "show the root: its fingerprint, and the keys of each role",
        "refresh": "sign the timestamp again, so that it counts for another week; or an index as it is",
    },
)

PROGRAM = Group(
    about="build, test and promote PyTorch wheels for AMD GPUs (ROCm)",
    example="cairn ci run --stack sample",
    commands={
        "checkout": "check projects out, hipify them and tag what upstream gave",
        "manifest": _MANIFEST,
        "patches": _PATCHES,
        "rocm": _ROCM,
        "build": _BUILD,
        "wheel": _WHEEL,
        "test": _TEST,
        "index": _INDEX,
        "release": _RELEASE,
        "challenge": "build a released set again elsewhere, and say whether the wheels are the same",
        "diff": "show what changed between two wheels, sets, nights or manifests, and what it breaks",
        "trust": _TRUST,
        "bisect": "find the first bad set between two nights, and the commits that came with it",
        "install": "install torch for the GPUs of this machine, and prove that it works",
        "image": _IMAGE,
        "doctor": "check a machine for a build, an installation or tests",
        "matrix": "list what is built and tested when, and on which runners",
        "ci": _CI,
        "config": _CONFIG,
    },
)
