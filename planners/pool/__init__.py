"""What a pool does next: `plan` in plan.py, from budgets, deletion order, repair, pace and rollout."""
