"""The control plane: machines by index, replaced one at a time, never below quorum."""
