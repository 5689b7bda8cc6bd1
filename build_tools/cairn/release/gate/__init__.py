"""The gate: the demands that a set must meet to be promoted; the default is no.

It takes a sealed set, the index as it will be and the test records that lie beside the set: `gate.check` asks
every demand and returns one `judgement.GateReport`. Evidence is a test record of exactly these bytes or a
named bypass; `installation` installs the set as users will.
"""
