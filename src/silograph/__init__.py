"""silograph: graphs and personal models across data silos, with privacy numbers that are true."""
