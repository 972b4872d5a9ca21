"""How a changed class reaches its users."""
