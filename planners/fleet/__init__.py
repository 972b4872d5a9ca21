"""What owners of machines decide alike: what a report changes, how fast machines are made, and which go first."""
