"""The lives of entities: deterministic orchestration, one entity per file or folder, phases in lifecycle order."""
