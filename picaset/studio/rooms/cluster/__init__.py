"""Draw points and see, method by method, which mixture each takes them for."""
