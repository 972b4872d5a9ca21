"""The Kubernetes API, for activities and the command line: the client, Nodes, Secrets. It imports nothing but this."""
