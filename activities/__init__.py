"""The activities: idempotent side effects, thin. Each is behind one boundary, which translates its errors."""
