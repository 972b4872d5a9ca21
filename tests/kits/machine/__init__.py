"""Machines for tests, on a stack or with stubs."""
