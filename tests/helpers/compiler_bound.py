"""A project whose build is almost nothing but compiling: most of its sources never heard of Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from cairn.stack import Environment, Stack
from helpers import build

SETUP = """
import glob
from setuptools import Extension, setup
sources = ["module.cpp", *sorted(glob.glob("free*.cpp"))]
setup(name="demo", version="1", py_modules=["demo"], ext_modules=[Extension("_demo", sources)])
"""
PYPROJECT = """
[build-system]
requires = []
build-backend = "setuptools.build_meta"
"""
MODULE = """
#include <Python.h>
int free0(int);
static PyObject *call(PyObject *, PyObject *) { return PyLong_FromLong(free0(PY_MINOR_VERSION)); }
static PyMethodDef methods[] = {{"call", call, METH_NOARGS, 0}, {0, 0, 0, 0}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_demo", 0, -1, methods};
PyMODINIT_FUNC PyInit__demo() { return PyModule_Create(&module); }
"""
QUICK = "int free{number}(int a) {{ return a + {number}; }}\n"
# Some seconds of g++ -O2: a regular expression, maps and sorting, as templates of their own types.
HEAVY = """
#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <regex>
#include <string>
#include <unordered_map>
#include <vector>
namespace n{number} {{
struct Key {{ std::string name; int rank; bool operator<(const Key &o) const {{ return rank < o.rank; }} }};
template <int N> struct Step {{
    static int run(std::vector<Key> &keys) {{
        std::map<Key, std::unordered_map<std::string, std::function<int(int)>>> table;
        for (auto &key : keys) table[key][key.name] = [](int a) {{ return a + N + {number}; }};
        std::sort(keys.begin(), keys.end());
        std::shuffle(keys.begin(), keys.end(), std::mt19937(N));
        int found = 0;
        for (auto &entry : table)
            found += std::regex_search(entry.first.name, std::regex("a+(b|c)*[0-9]{{2,}}")) ? 1 : N;
        return found + Step<N - 1>::run(keys);
    }}
}};
template <> struct Step<0> {{ static int run(std::vector<Key> &) {{ return 0; }} }};
}}
int free{number}(int a) {{
    std::vector<n{number}::Key> keys{{{{"a", a}}, {{"b", 2}}}};
    return n{number}::Step<12>::run(keys);
}}
"""


def sources(count: int, *, heavy: bool) -> Mapping[str, str]:
    """The files of the project: one that knows Python, and as many that do not."""
    text = HEAVY if heavy else QUICK
    free = {f"free{number}.cpp": text.format(number=number) for number in range(count)}
    return {
        "pyproject.toml": PYPROJECT,
        "setup.py": SETUP,
        "demo.py": "import _demo\n",
        "module.cpp": MODULE,
        ".gitignore": "build/\n*.egg-info/\n",
        **free,
    }


def stack(folder: Path) -> Stack:
    """The stack of the project alone, for the CPU."""
    project = msgspec.structs.replace(
        build.project("demo"),
        build_requires=("setuptools==84.2.1", "wheel==0.48.0"),
        environment=Environment(always={"CFLAGS": "-g0", "CXXFLAGS": "-g0"}),
    )
    return Stack(name="s", line="l", targets=("cpu",), projects=(project,), folder=str(folder))
