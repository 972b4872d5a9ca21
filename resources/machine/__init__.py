"""A machine: its manifest, its state, its intents and the facts about it."""
