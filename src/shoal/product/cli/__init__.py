"""The command ``shoal``: thin commands over the public API."""
