"""What is in a wheel: its binaries, their targets and dependencies, and how two wheels differ.

Takes a wheel or an open archive, changes nothing. `binaries.read_archive` gives every ELF and PE file as a
`Binary`, the one value that all rooms above judge and edit by; `summary.summarise` gives what `cairn wheel
show` prints. What every Linux of a tag and every Windows has is in `system_libraries`, what comes with
required wheels in `providers`.
"""
