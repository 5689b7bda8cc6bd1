"""`cairn test`: test built wheels, and judge the results; one module per command.

`suite` has all that runs a suite, or plans or judges a run: suite, shards, merge, skips retry.
"""
