"""Machine configs for tests: objects, cases, daemons, and whole lives."""
