"""Run a project's own test suite, so that a test that crashes or hangs affects no other result.

Takes the tests from the sources that a wheel was built from; returns the outcome of every test, with the
device that it used, and a verdict. A suite may be divided into `shards`, each of which runs on its own
machine and leaves a folder of results (`suite_results`); `merge` makes one test record of them.

pytest runs the tests in separate processes (`attempt`), each with our plugin `worker`, which keeps a journal
of events as they happen; `modules` continues after a test that has ended its process, and retries failed
tests.
"""
