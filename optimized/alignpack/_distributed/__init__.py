"""Communication between the ranks of context parallelism."""
