"""What `apply` does with manifests, and what it would do."""
