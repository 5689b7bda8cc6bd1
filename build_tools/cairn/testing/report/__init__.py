"""Show the results of test runs to people: as a page, as the summary of a step, and as JSON.

`results` reads what a run has left, `summary` counts the tests and compares them with earlier runs, `render`
shows them. The verdict is the record's; without one, it is the judge's.
"""
