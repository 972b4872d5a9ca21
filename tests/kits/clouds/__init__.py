"""The simulated clouds as tests use them: their drivers, their clients, and whole lives counted in calls."""
