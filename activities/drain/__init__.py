"""The role drain: a VM's Nodes are emptied, one short pass per attempt."""
