"""Control planes for tests."""
