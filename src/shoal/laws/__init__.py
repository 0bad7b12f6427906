"""Class laws and the graph over labels."""
