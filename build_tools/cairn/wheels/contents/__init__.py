"""Inspecting wheels: their binaries, the targets and dependencies of these, and how two wheels differ.

The functions take a wheel or an open archive and change nothing. `binaries.read_archive` returns each ELF and
PE file as a `Binary`, the model that verification and editing use; `summary.summarise` returns what `cairn
wheel show` prints. `system_libraries` lists the libraries of each Linux platform tag and of Windows, and
`providers` finds the libraries that required wheels bring.
"""
