"""A cluster: its state, its accounts and its news."""
