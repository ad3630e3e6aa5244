"""scikit-learn faces of what the library can do."""
