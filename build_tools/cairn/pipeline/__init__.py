"""A stack's whole way end to end: checkout, build, stage, smoke test, gate, promotion, installation, report.

Takes a `trail.TrailRequest`, gives a `trail.TrailResult`: `run.run`; `trail.write_page` makes its page.
The only room that knows both how wheels are made and how they are released.
"""
