"""The steps of a night on the workers of a Dask cluster; needs `pip install 'cairn-wheels[cluster]'`.

`dask_executor` submits them, `worker_step` is what a worker runs. Only what a step is asked to do and how it
ended goes through the scheduler: bytes go through the store. Nothing else imports this room.
"""
