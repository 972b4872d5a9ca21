"""What the workflow of an owner of machines does: it plans and carries out, starts machines, tells them, hears them and
finds them again, and hears of its class and its cluster. A pool is built on it (docs/add-an-entity.md)."""
