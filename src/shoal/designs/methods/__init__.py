"""One file per method, each with one function from a problem to its moves."""
