"""What only Temporal's client can do: the activities on the queue of the workflows, and what the others ask and
tell."""
