"""Runs docker-compose.yml without Docker: `make stack`, or `Engine` in a test.

Docker Compose itself reads the file (`docker compose config` needs no Docker). Each service then is a process in
namespaces of its own: a root file system made of layers, a network, process ids, the volumes, secrets, user, command,
environment, health check and restart policy that the file states. Only what an image holds is a table here
(`images.py`). Needs Linux, root, Go and PostgreSQL.
"""
