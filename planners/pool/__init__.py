"""What a pool does next: `plan` in plan.py, made of budgets, deletion order, repair, pace and rollout."""
