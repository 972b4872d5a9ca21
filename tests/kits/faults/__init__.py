"""The fault matrix: flows and their activity boundaries, what strikes there, the invariants and their saboteurs."""
