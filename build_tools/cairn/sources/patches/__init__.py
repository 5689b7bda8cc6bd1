"""A user's commits on top of a checkout, as patches.

`audit.audit` says which may be there, `export.export` writes them, `apply.apply` puts them on, all or none;
`patch_files` reads and puts them.
"""
