"""Machines, as programs see and tell them."""
