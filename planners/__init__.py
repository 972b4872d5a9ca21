"""The decisions: pure functions of what is observed, what is wanted and the time. No I/O, no clock, no Temporal."""
