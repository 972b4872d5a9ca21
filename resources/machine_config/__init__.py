"""Machine configs (seed 004): the custom resources, the keys on Nodes, and what is known of a Node."""
