"""etcd for the guard's tests: real members, a list of members, and OpenShift's operator."""
