"""A stack's whole way end to end: checkout, build, stage, smoke test, gate, promotion, installation, report.

Takes a `request.TrailRequest`, gives a `request.TrailResult`: `run.run`; `report.page.write` makes its page.
The only room that knows both how wheels are made and how they are released.
"""
