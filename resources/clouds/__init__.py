"""The clouds: what the rest of Hostler must know of each without its driver."""
