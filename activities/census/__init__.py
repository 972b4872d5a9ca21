"""The census: metrics of all machines, classes, pools and control planes, counted beside the workflows."""
