"""The role cluster: what machines and rollouts do to Nodes."""
