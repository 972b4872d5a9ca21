"""What a machine does next, and why."""
