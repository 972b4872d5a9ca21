"""What activities take and return, by role."""
