"""Where answers come from: meters and tables."""
