"""The deeds: idempotent side effects, thin; each translates errors at its boundary."""
