"""Settings of all tests."""

import os

from hypothesis import settings

# A deadline measures the machine, not the code.
settings.register_profile("treeforge", deadline=None)
settings.load_profile("treeforge")

# Nothing a test loads may reach out for a hub; the tests bring what they need.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
