"""What owners of machines have in common, as programs see them: pools, the control plane."""
