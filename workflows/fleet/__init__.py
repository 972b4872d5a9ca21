"""What the workflow of an owner of machines does: it starts machines, tells them and finds them again, permits repairs,
and hears of its class and its cluster. A pool is built on it."""
