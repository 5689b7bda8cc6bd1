"""Whether a store is what its generations say: every key, page, file and set. Nothing is changed.

It takes a store and gives an `AuditReport`. `audit.audit` is the call; `inventory` lists and classifies;
`generations`, `offered`, `ledger` and `sets` each look for one kind of damage, and yield a `Problem` each.
"""
