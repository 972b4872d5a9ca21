"""Pools in tests: the planner alone, the workflow with stand-ins for its machines, and whole lives on a stack."""
