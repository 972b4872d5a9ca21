"""The way in: the `hostler` command and the HostlerClient SDK. Starts, signals, queries. No decisions."""
