"""Usage reports: what the broker's usage feed adds up to, computed by Spark.

`process` is the long-running part (schedule, requests); it starts `job` as a child process for each
run, and `job` is the only place where Spark lives. `transforms` say what is computed, `catalog`
which reports there are, `runs` what is kept of each run. The web process reads `runs` and talks to
`process` through `client`.
"""
