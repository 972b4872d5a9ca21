"""The vocabulary of Hostler: manifests, provider specs, error classes, messages. Imports nothing of ours."""
