"""A machine class: its state, and what travels between it and its users."""
