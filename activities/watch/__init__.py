"""The role watch: what happens to a cluster's Nodes, and which workflows somebody has ended."""
