"""The decisions of a control plane: which index gets a machine, which machine may go, and what holds it up."""
