"""The readings' promise: tables that protect every home's whole readings, whatever is known of all the others."""
