"""The role cluster: what a machine and a rollout do at Nodes."""
