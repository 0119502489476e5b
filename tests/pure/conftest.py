"""Hypothesis, so that a run says the same today and tomorrow, and a slow machine is no failure."""

from hypothesis import settings

settings.register_profile("pure", deadline=None, derandomize=True, database=None, max_examples=40)
settings.load_profile("pure")
