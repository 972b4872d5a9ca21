"""A pool: its manifest, its state, its intents and its rollouts."""
