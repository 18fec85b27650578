"""The web interface: pages rendered on the server, each a view, a template and a script."""
