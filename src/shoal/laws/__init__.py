"""Class laws, the graph over labels and the crowds they form."""
