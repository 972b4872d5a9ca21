"""Machines, as programs see them and send them intents."""
