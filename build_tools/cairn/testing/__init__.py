"""Test wheels, and judge the tests.

Takes a set of wheels and an index; gives a test record (`record.TestRecord`), which is all that release
knows of this room.

`smoke` installs a set (`install_set`) and runs the checks of `builtin_smoke`, which hold for any stack, and
the stack's own smoke tests (`pytest_runs`). `suite` runs a project's own tests, of which there are tens of
thousands and which hang and crash, without those that `skips` leaves out. `compat` measures the claims of
PyTorch's compatibility pages.

`junit` reads the results, `gpus` knows on which GPUs they were computed, `verdict` judges, `report` shows it.
"""
