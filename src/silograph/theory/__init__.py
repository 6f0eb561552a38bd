"""What the papers prove, as numbers that can be held against a run."""
