"""Workers on other machines: how they find a run, are taken, and get each trial's orders and credentials.

Locust carries the load, between its master and its workers. This room is what goes before: a connection of
its own between `dra-harness load` and each `dra-harness load-worker`, for as long as the run lasts, on the
port after Locust's. All that it says is sealed with a key that both have as a file.
"""
