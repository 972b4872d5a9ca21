"""Machine configs (seed 004): what is rendered, and which nodes get it when."""
