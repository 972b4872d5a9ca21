"""The entry points: the `hostler` command and the HostlerClient SDK. They start, signal and query. No decisions."""
