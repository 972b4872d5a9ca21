"""Histories of workflows: recorded, read, and held to deadlines."""
