"""Build wheels from checkouts: the plan, the order of builds, and the build of one project.

Takes a `model.Job` (what a user asks for), gives `model.BuiltWheel`s with `manifest.json` and `set.json`
beside them: `job.run`, and `job.plans_of` for what it would do. Their way: `job` checks (`preflight`) and
resolves the job (targets, SDK, version suffix), `plan` computes each project's key over `inputs` and asks the
`cache`, `execution` has the `engine` run the steps that are left, `build_project` and `postprocess` make one
wheel.
"""
