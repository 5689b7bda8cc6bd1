"""What promotion demands; the default is no.

`gate.check` asks every demand and gives one `judgement.GateReport`. Evidence is a test record of exactly
these bytes or a named bypass; `install_check` installs the set as people will; `audit` says whether a channel
is what its state says.
"""
