"""Stand-in for triton's setup.py: name and version are the environment's, as upstream's; in Python alone."""

import os

from setuptools import find_packages, setup

setup(
    name=os.environ.get("TRITON_WHEEL_NAME", "triton"),
    version="3.5.0" + os.environ.get("TRITON_WHEEL_VERSION_SUFFIX", ""),
    license="MIT",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    package_dir={"": "python"},
    packages=find_packages("python"),
)
