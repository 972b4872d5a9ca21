"""Machine configs: the custom resources of a cluster, the workflows of its config pools, and rendering without either."""
