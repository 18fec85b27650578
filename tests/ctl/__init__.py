"""`manage.py ctl` and `manage.py perf`: the appliance from a shell."""
