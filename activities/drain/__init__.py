"""The role drain: it empties a VM's Nodes, in one short pass per attempt."""
