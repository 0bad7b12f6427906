"""A run: from a meter file to a private forecast and its card, over one folder, for any number of homes."""
