"""Estimators that work like scikit-learn's; `import silograph` gives them by name."""
