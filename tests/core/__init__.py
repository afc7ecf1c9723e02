"""Tests of the shared core: no platform, no database."""
