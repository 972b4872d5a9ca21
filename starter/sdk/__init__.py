"""The SDK: connection → entity client → one shelf per kind of entity → apply → HostlerClient."""
