"""Publishing: from wheels to an index that users install from, and back.

It takes the files of a set and the test records of exactly those bytes, and produces the generations and
pages of an index in a store. The main calls: `publish.stage.stage_set` seals a set and brings it into
staging, `promote.promote` brings it to a release if the gate lets it, `history` takes it back. `audit` checks
a store against its generations; `serve.serving` serves a store over HTTP.
"""
