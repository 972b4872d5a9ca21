"""The role cloud: what is asked of a cloud's driver."""
