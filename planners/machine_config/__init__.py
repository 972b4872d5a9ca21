"""Machine configs: what is rendered, and which nodes get it when. Pure functions."""
