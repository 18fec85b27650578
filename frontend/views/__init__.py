"""The views, one module a page: they ask the broker in the name of the user, and render."""
