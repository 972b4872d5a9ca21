"""What a worker pool is made of, zone by zone: `expand` in expand.py, and how numbers are distributed."""
