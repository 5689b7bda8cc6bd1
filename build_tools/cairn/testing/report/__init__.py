"""What a test run came to, for people: a page, the summary of a step, and JSON.

`results.read` takes what a run has left, `history` says which of its failures are new, `summary` counts;
`page` and `step_summary` show it. The verdict is the record's; without one, it is what the judge says.
"""
