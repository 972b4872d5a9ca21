"""The census: metrics of all machines, classes and pools, counted beside the workflows."""
