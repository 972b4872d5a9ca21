"""What Temporal's client alone does: the activities on the queue of the workflows, and what the others ask and tell."""
