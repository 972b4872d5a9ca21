"""What whoever owns machines knows of them, and what both exchange."""
