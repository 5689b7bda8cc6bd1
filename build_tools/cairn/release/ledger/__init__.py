"""What a store never forgets, whatever becomes of its indexes: names that were published, bans, test records.

It takes names and events and gives entries of a hash chain that only grows: `chain.Ledger` reads and adds.
`begin` makes the first entry of a store that is older than its ledger.
"""
