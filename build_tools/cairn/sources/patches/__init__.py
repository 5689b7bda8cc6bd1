"""A user's commits on top of a checkout, as patches.

`audit.audit` checks which are allowed, `apply.export` writes them, `apply.apply` applies all or none;
`patch_files` reads and applies single files.
"""
