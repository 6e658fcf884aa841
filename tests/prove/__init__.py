"""The long proofs (`make prove`): ten minutes of nothing, two hundred at once, and what is killed meanwhile."""
