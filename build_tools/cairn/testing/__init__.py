"""What was run on which bytes, on which hardware, and the verdict.

Takes a set of wheels and an index; gives a test record (`record.TestRecord`), which is all that release
knows of this room. The calls one needs are `smoke.run_smoke`, for a set in a fresh environment, and
`installed.run_installed`, for what is installed beside Cairn.

Tests run by `pytest_runs`: those of `builtin_smoke`, which hold for any stack and learn from `smoke_facts`
what to look for, and a stack's own. `dynamic_linking` reads what libraries need of each other, `junit` what
the tests left; `gpus` says which hardware they ran on, `verdict` judges.

A project's own tests, of which there are tens of thousands and which hang and crash, have a room of their
own: `suite`. What they leave out is said by `skips`.
"""
