"""One file for each group of verbs. Nothing heavy is imported before a command runs: `--help` is immediate."""
