"""Pools and their rollouts, as programs see and tell them."""
