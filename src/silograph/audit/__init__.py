"""Attacks on the promises of a plan or a deployment, played through its own pipeline."""
