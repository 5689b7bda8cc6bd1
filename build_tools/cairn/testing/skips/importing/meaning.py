"""The tests that a name on upstream's lists meant, and those that it hits by accident.

Upstream excludes by `pytest -k "not NAME and …"`: NAME may be anywhere in the name of a test, of its class,
or of its file, in capital or small letters, so that `test_print` also excludes `test_print_all`. What was
meant is the test of that name, in all variants that PyTorch generates of it for devices and dtypes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from cairn.testing.skips import ids
from cairn.testing.skips.collection import Collection
from cairn.testing.skips.importing.model import How, Meaning, Wanted

# What `instantiate_device_type_tests` appends to the names of tests, and to those of their classes
# (torch/testing/_internal/common_device_type.py).
_DEVICES = "cpu|cuda|meta|mps|xpu|hpu|mtia|lazy|privateuse1"
_DTYPE = re.compile(
    r"(.+)_(?:bool|u?int(?:8|16|32|64)|q(?:u?int8|int32)|b?float(?:16|32|64)|float8_e\w+|complex(?:32|64|128))"
)
_ON_GPU = re.compile(r"_cuda(?:_|$)")
_DEVICE = re.compile(rf"(.+)_(?:{_DEVICES})")
_CLASS = re.compile(rf"(.+?)(?:{_DEVICES})", re.IGNORECASE)


class Tests:
    """The tests of a collection, found by what upstream's lists call them."""

    __test__ = False  # pytest would collect the name

    def __init__(self, collection: Collection) -> None:
        self._modules = tuple(collection.modules)
        self._named: dict[str, list[str]] = {}
        self._searched: list[tuple[str, str]] = []
        for test in collection.tests:
            found = ids.take_apart(test)
            for name in _without_suffixes(found.name):
                self._named.setdefault(name, []).append(test)
            # The words that `-k` looks into; none of them has a line break.
            words = (PurePosixPath(found.module).name, *found.classes, found.name + found.arguments)
            self._searched.append((test, "\n".join(words).casefold()))
        self._names = {test: ids.take_apart(test) for test in collection.tests}

    def meant(self, wanted: Sequence[Wanted]) -> Iterator[Meaning]:
        """What each name of a list meant."""
        found = [self._tests(one) for one in wanted]
        meant = {test for _, tests in found for test in tests}
        for one, (how, tests) in zip(wanted, found, strict=True):
            accidents = tuple(test for test in self._hit(one) if test not in meant)
            yield Meaning(wanted=one, how=how, tests=tuple(tests), accidents=accidents)

    def missing_gpu(self, wanted: Sequence[Wanted]) -> list[str]:
        """Say where names are of tests on a GPU, and the machine of the collection had none."""
        asked = [one.text for one in wanted if _ON_GPU.search(one.text)]
        # A test may have the word in its name on any machine; its class has it only of a GPU.
        if not asked or any(
            name.endswith("CUDA") for found in self._names.values() for name in found.classes
        ):
            return []
        return [
            f"{len(asked)} names are of tests on a GPU; the collection has none: make it where there is one"
        ]

    def _tests(self, wanted: Wanted) -> tuple[How, list[str]]:
        named = self._named.get(wanted.text, [])
        if wanted.class_name:
            own = [test for test in named if self._of_class(test, wanted.class_name)]
            return ("exact", own) if own else ("unknown", [])
        files = [module for module in self._modules if _filed_under(module, wanted.filed)]
        if not files:
            return "not collected", []
        own = [test for test in named if self._names[test].module in files]
        if own:
            return "exact", own
        if named:
            return "elsewhere", named
        begun = [
            test
            for test, found in self._names.items()
            if found.module in files and found.name.startswith(wanted.text)
        ]
        family = [test for test in begun if self._names[test].name.startswith(f"{wanted.text}_")]
        if family:
            return "family", family
        return ("broad", begun) if begun else ("unknown", [])

    def _hit(self, wanted: Wanted) -> Iterator[str]:
        if wanted.class_name:
            # torch's own rule for disabled tests: any class whose name begins so.
            for test in self._named.get(wanted.text, ()):
                classes = self._names[test].classes
                if classes and classes[-1].startswith(wanted.class_name):
                    yield test
            return
        text = wanted.text.casefold()
        yield from (test for test, searched in self._searched if text in searched)

    def _of_class(self, test: str, name: str) -> bool:
        own = self._names[test].classes[-1:]
        generic = _CLASS.fullmatch(own[0]) if own else None
        return own == (name,) or (generic is not None and generic[1] == name)


def _filed_under(module: str, filed: str) -> bool:
    path = PurePosixPath(module)
    return path.stem in (f"test_{filed}", filed) or path.parts[0] == filed


def _without_suffixes(name: str) -> list[str]:
    """The names a test may be called by: its own, without the dtype, without device and dtype."""
    names = [name]
    for suffix in (_DTYPE, _DEVICE):
        if match := suffix.fullmatch(names[-1]):
            names.append(match[1])
    return names
