"""Strict readers of CSV and YAML, files written whole, and downloads of bounded size."""
