"""Pools and their rollouts, as programs see them and send them intents."""
