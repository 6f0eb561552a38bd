"""The papers' tables, ours beside theirs. Nothing is imported until an entry is requested."""
