"""Problem files in, and the run folder: manifest, journal, tables of trees, derived views."""
