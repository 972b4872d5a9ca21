"""The control plane of a cluster, as programs see it and send it intents."""
