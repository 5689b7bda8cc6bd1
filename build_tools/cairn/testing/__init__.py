"""Test wheels, and judge the tests.

The input is a set of wheels and an index, the output a test record (`record.TestRecord`), which is all that
`cairn.release` uses of this package.

`smoke` installs a set (`install_set`) and runs the checks of `builtin_smoke`, which hold for any stack, and
the stack's own smoke tests (`pytest_runs`). `suite` runs a project's own tests, tens of
thousands that may hang or crash, without those that `skips` excludes. `compat` measures the claims of
PyTorch's compatibility pages.

`junit` reads the results, `gpus` determines the GPUs that they were computed on, `verdict` judges them, and
`report` presents them.
"""
