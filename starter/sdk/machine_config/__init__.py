"""Machine configs: the custom resources of a cluster, and the workflows of its config pools."""
