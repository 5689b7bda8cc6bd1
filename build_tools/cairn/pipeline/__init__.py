"""Run a stack end to end: checkout, build, stage, smoke test, gate, promotion, installation, report.

`run.run` takes a `trail.TrailRequest` and returns a `trail.TrailResult`; `trail.write_page` renders its page.
This is the only package that depends on both the building and the releasing of wheels.
"""
