"""Show the results of test runs to people: as a page, as the summary of a step, and as JSON.

`results` reads the files of a run, `summary` counts the tests and compares them with earlier runs, and
`render` formats them. The verdict is that of the record; without a record, `verdict.judge` gives it.
"""
