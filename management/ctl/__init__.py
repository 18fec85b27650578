"""`manage.py ctl`: administration from a shell, over the control socket.

`table.py` holds one row per command; the parser, the help, shell completion, the manual page and
the tests read it. Django is not imported, and the web process is not needed.
"""
