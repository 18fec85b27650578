"""The web application around the broker: settings, sign-in, live numbers, reports, commands."""
