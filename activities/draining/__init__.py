"""Draining a Node, in parts: what is judged about pods, budgets and volumes, the calls, and one pass over all of it."""
