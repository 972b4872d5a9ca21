"""Machine configs (seed 004): rendering, which works on the API server's objects as dicts, and pools of nodes."""
