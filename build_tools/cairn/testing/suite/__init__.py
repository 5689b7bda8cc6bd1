"""Run a project's own test suite, so that a test that goes wrong costs its own result and no other.

Takes the tests of the sources that a wheel was built from; gives the outcome of every test, with the device
that it used, and a verdict. A suite may be cut into `shards`, each of which runs on a machine of its own and
leaves a folder of results (`suite_results`); `merge` makes one test record of them.

pytest runs the tests in processes of its own (`attempt`), each with our plugin `worker`, which writes down
what happens while it happens; `modules` goes on behind a test that has ended its process, and tries failed
tests again.
"""
