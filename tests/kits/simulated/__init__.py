"""The simulator for its own tests, in a thread or as a program."""
