"""The ways of running a pattern on each platform, and the choice among them."""
