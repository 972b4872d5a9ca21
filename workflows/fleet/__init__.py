"""What the workflow of whoever owns machines does: it starts, tells and finds them again, permits repairs, and hears of
its class and its cluster. A pool is built on it."""
