"""Preservation in tests: the planner alone, and a machine on stubs whose Node is a small world."""
