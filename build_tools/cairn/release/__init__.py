"""From wheels to an index that users install from, and back from it.

It takes the files of a set and the test records of exactly those bytes, and gives generations and pages of an
index in a store. The calls one needs: `publish.wheel_set.stage_set` seals a set and brings it into staging,
`promote.promote` brings it to a release if the gate lets it, `history` takes it back. `audit` says whether a
store is what its generations say; `serve.serving` is a store over HTTP.
"""
