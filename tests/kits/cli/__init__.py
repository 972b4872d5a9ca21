"""The command line for tests: a place of its own, stand-ins of entities, and what pages are held to."""
