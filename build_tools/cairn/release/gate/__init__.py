"""What promotion demands; the default is no.

It takes a staged set and its test records: `gate.check` asks every demand and gives one
`judgement.GateReport`. Evidence is a test record of exactly these bytes or a named bypass; `install_check`
installs the set as users will; `audit.audit` says whether a channel is what its state says.
"""
