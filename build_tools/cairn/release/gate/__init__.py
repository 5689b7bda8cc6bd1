"""What promotion demands; the default is no.

It takes a sealed set, the index as it will be and the test records that lie beside the set: `gate.check` asks
every demand and gives one `judgement.GateReport`. Evidence is a test record of exactly these bytes or a named
bypass; `installation` installs the set as users will.
"""
