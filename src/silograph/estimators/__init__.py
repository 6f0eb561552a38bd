"""Estimators in scikit-learn's shape; `silograph` itself has them by name."""
