"""A worker pool, machines over several zones, as Gardener writes it: `apply` makes a pool and a class in each."""
