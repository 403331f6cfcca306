"""The fixtures of experiments: processes of their own, and a folder of text."""

from tests.experiments.conftest import begin, folder

__all__ = ["begin", "folder"]
