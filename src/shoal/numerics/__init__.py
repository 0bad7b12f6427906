"""Arrays and kernels: compilation, threads, eigenpairs, matrices, exact null spaces."""
