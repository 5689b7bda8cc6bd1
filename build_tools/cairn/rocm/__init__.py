"""The ROCm SDK as pip packages, as upstream makes them: writing, installing and querying them.

Takes a ROCm tree (an installed prefix, TheRock's artifacts or Debian's packages) and a `packages.toml` that
shares its files out; gives wheels and the `rocm` sdist. The calls one needs are `package.package` to write an
SDK, `install.install` and `install.query` to use one. `runtime/` is not part of Cairn's program: it is what
the `rocm` sdist holds.

`package` reads the tree (`tree`, with `debian` for packages) and its description (`packages_toml`), decides
which file goes where (`assign_files`), and writes the packages (`write_packages`, by `archive` and
`binaries`).
"""
