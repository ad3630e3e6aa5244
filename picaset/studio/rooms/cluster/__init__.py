"""Draw points and compare the Gaussian mixtures that networks and classical methods fit to them."""
