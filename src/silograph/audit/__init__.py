"""Attacks on what a plan or a deployment promises, played through its own pipeline."""
