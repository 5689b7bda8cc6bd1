"""What is in a wheel: its binaries, their targets and dependencies, and how two wheels differ.

Takes an open archive, changes nothing: `binaries.read_libraries`, `summary.summarise`, `diff.diff`. Which tag
the binaries justify is in `manylinux`, who brings what they need in `providers`.
"""
