"""Local files for the texts that a corpus declares."""
