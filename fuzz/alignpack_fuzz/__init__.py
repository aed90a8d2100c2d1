"""The fuzz harness of alignpack."""
