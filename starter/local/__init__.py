"""Everything on one machine: `hostler up`, the demo, and the processes that they run."""
