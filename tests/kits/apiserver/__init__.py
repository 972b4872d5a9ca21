"""API servers for tests: a simulated one, and a real control plane."""
