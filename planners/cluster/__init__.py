"""Which accounts a cluster watches, and whom it tells what."""
